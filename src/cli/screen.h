/* screen.h - the command's output streams.  Everything that the command prints passes one function here, which replaces
 * characters that a terminal would obey.  Text of models, templates, files and names therefore cannot move the cursor, set
 * colours or titles, or reverse the order of what is shown.  Files and pipes get the exact bytes. */
#pragma once
#include "base/base.h"

#include <stdio.h>

/* Replaces stdout and stderr.  The first output must come after this call. */
void screen_open(void);
/* Lets every character through from now on (--raw). */
void screen_raw(void);
bool screen_is_raw(void);
/* Returns the descriptor of a stream; fileno has none for stdout and stderr. */
int screen_fd(FILE *f);
bool screen_is_terminal(FILE *f);
/* True if text was written to stdout and stdout is a pipe.  The reader of the pipe, such as tee, may print that
 * text at any later time on the terminal of stderr. */
bool screen_is_piped(void);
/* Prints a control sequence of the command's own, which is not replaced. */
void screen_code(FILE *to, const char *code);
/* Returns the error number of the first write to stdout that failed, or 0. */
int screen_error(void);
/* Returns standard error without the filter, for the line editor, which cleans the typed text itself. */
FILE *screen_editor(void);
/* Writes a cleaned copy of text for a stream without the filter. */
void screen_clean(const char *text, char *out, size_t size);

/* True if a terminal obeys the character instead of showing it: controls of C0 and C1, DEL, and characters that
 * change the direction of text.  Line ends and tabs are not among them. */
static inline bool screen_obeys(uint32_t cp)
{
    if (cp == '\n' || cp == '\t') return false;
    return cp < 0x20 || (cp >= 0x7F && cp < 0xA0) || (cp >= 0x202A && cp <= 0x202E) ||
           (cp >= 0x2066 && cp <= 0x2069);
}

/* Returns a byte of a text that must stay on one line, even in a file: white space becomes a space, and other
 * control characters a question mark. */
static inline char screen_one_line(char c)
{
    if (c == '\n' || c == '\t' || c == '\r') return ' ';
    return (unsigned char)c < 0x20 || c == 0x7F ? '?' : c;
}
