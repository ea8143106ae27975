/* line.h - reads a line of input, with editing if standard input is a terminal. */
#pragma once
#include "cli/cli.h"

struct line_editor;
/* Works without a terminal, too. */
int line_open(struct line_editor **out);
void line_close(struct line_editor *e);
bool line_is_terminal(const struct line_editor *e);
/* Returns 1 and the text, which is borrowed until the next call; 0 at the end of input; -1 after Ctrl-C. */
int line_read(struct line_editor *e, const char *prompt, const char **text, size_t *n);
