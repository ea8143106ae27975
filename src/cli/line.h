/* line.h - one line of a person's input: edited on a terminal, plain otherwise. */
#pragma once
#include "cli/cli.h"

struct line_editor;
int line_open(struct line_editor **out); /* never fails for a missing terminal */
void line_close(struct line_editor *e);
bool line_is_terminal(const struct line_editor *e);
/* 1 and the text (borrowed until the next call), 0 at the end of input, -1 when Ctrl-C was pressed. */
int line_read(struct line_editor *e, const char *prompt, const char **text, size_t *n);
