/* terminal.h - the terminal during a chat: what is typed during a reply does not show, pasted text is marked, and the
 * terminal is as before when the process stops or ends. */
#pragma once
#include "cli/cli.h"

/* Takes the terminal on standard input.  Keys that are typed from now on show only where a line is edited; they wait for
 * the next line.  Does nothing if standard input is not a terminal. */
void terminal_open(void);
void terminal_close(void);
/* Makes the terminal quiet again, after a line editor has changed its mode. */
void terminal_quiet(void);
/* Lets reads of the line editor return at once, with 0 where nothing was typed, and notes the mode of the terminal as the
 * editor's, to which a stopped process returns.  The terminal keeps this setting and not the file description, which other
 * processes share. */
void terminal_edits(void);
/* Waits until something was typed or a signal has come, also one that came before the call.  False: the terminal is gone. */
bool terminal_wait(void);
/* Gives the terminal back at once.  A signal handler may call it. */
void terminal_restore(void);
/* Says once what has happened to the terminal.  TERMINAL_CONTINUED: the process was stopped, and the cursor is on a new
 * line. */
enum terminal_event { TERMINAL_SAME, TERMINAL_RESIZED, TERMINAL_CONTINUED };
enum terminal_event terminal_event(void);
/* True if terminals can move their cursor and erase: $TERM is set and is not "dumb". */
bool terminal_moves(void);
/* Returns the columns of the terminal on a stream; 0 if there is none or it cannot move its cursor. */
unsigned terminal_columns(FILE *of);
