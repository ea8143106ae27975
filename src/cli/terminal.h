/* terminal.h - the terminal during a chat.  Keys typed during a reply are not shown, pasted text is marked, and
 * the original mode is restored when the process stops or ends. */
#pragma once
#include "cli/cli.h"

/* Takes over the terminal on standard input.  From now on keys are shown only while a line is edited; other keys
 * wait for the next line.  Does nothing if standard input is not a terminal. */
void terminal_open(void);
void terminal_close(void);
/* Makes the terminal quiet again, after a line editor has changed its mode. */
void terminal_quiet(void);
/* Makes reads of the line editor return at once, with 0 if nothing was typed.  Notes the present mode as the
 * editor's, which is set again after a stop.  The setting belongs to the terminal, not to the file description,
 * which other processes share. */
void terminal_edits(void);
/* Waits until something was typed or a signal has come, even before the call.  False: the terminal is gone. */
bool terminal_wait(void);
/* Restores the original mode at once.  A signal handler may call it. */
void terminal_restore(void);
/* Returns, once, what has happened to the terminal.  TERMINAL_CONTINUED: the process was stopped, and the cursor
 * is on a new line. */
enum terminal_event { TERMINAL_SAME, TERMINAL_RESIZED, TERMINAL_CONTINUED };
enum terminal_event terminal_event(void);
/* True if terminals can move their cursor and erase: $TERM is set and is not "dumb". */
bool terminal_moves(void);
/* Returns the columns of the terminal on a stream; 0 if there is none or it cannot move its cursor. */
unsigned terminal_columns(FILE *of);
