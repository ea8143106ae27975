/* history.h - messages of earlier chats, in a file of the user: $KVIK_HISTORY, else kvik/history in $XDG_STATE_HOME or
 * ~/.local/state.  An empty KVIK_HISTORY keeps none.  The file has mode 0600 and at most some thousand messages or some
 * MiB; a chat recalls the newest thousand in the last 4 MiB. */
#pragma once
#include "cli/cli.h"

enum { HISTORY_PATH = 4096 };
/* Writes the name of the file.  Returns false if no history is kept. */
bool history_path(char out[HISTORY_PATH]);
/* Calls fn with each message, the oldest first. */
void history_load(void (*fn)(void *ctx, const char *text), void *ctx);
/* Appends a message.  The first failure of a process is said on stderr. */
void history_add(const char *text);
