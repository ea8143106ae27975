/* history.h - messages of earlier chats, in a file of the user: $KVIK_HISTORY, else kvik/history in $XDG_STATE_HOME
 * or ~/.local/state.  With an empty KVIK_HISTORY no messages are kept.  The file has mode 0600.  A chat recalls the
 * newest thousand messages in its last 4 MiB; a file with more than twice as much is shortened when a chat begins. */
#pragma once
#include "cli/cli.h"

enum { HISTORY_PATH = 4096 };
/* Writes the name of the file.  Returns false if no history is kept. */
bool history_path(char out[HISTORY_PATH]);
/* Calls fn with each message, the oldest first. */
void history_load(void (*fn)(void *ctx, const char *text), void *ctx);
/* Appends a message.  The first failure in a process is printed on stderr. */
void history_add(const char *text);
