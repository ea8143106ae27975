/* line.h - reads a line of input, with editing if standard input is a terminal. */
#pragma once
#include "cli/cli.h"

struct line_editor;
enum { LINE_WORDS = 256 };
/* Words that Tab can put behind the first `from` bytes of a line. */
struct line_words {
    char *word[LINE_WORDS]; /* owned */
    size_t n, from;
};
/* Adds a copy of a word if it begins with the typed text; '-' equals '_'. */
void line_offer(struct line_words *w, const char *typed, const char *word);
/* Fills in the words for a line that was typed up to the cursor. */
typedef void (*line_complete)(void *ctx, const char *typed, struct line_words *out);

/* Opens the editor; it works without a terminal, too.  complete may be NULL. */
int line_open(line_complete complete, void *ctx, struct line_editor **out);
void line_close(struct line_editor *e);
bool line_is_terminal(const struct line_editor *e); /* false for NULL */
enum { LINE_INTERRUPTED = 2 };
/* Returns 1 and the text, which is borrowed until the next call; 0 at the end of input; LINE_INTERRUPTED after
 * Ctrl-C; or an error code.  Text that was pasted into a terminal may have several lines. */
int line_read(struct line_editor *e, const char *prompt, const char **text, size_t *n);
/* Keeps a message in the history of this chat and later ones. */
void line_remember(struct line_editor *e, const char *text, size_t n);
