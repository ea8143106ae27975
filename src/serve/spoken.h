/* spoken.h - divides a model's text into content, reasoning and tool calls, while the text comes. */
#pragma once
#include "base/json.h"
#include "serve/dialect.h"

enum piece { PIECE_CONTENT, PIECE_REASONING };

struct spoken;
struct spoken_calls {
    void (*text)(void *ctx, enum piece kind, const char *text, size_t n);
    /* Begins a call; id: the model's own, or NULL.  Then come its arguments (the text of a JSON object, as the model
     * wrote it) in one or more parts, and its end. */
    void (*call)(void *ctx, const char *id, const char *name);
    void (*arguments)(void *ctx, const char *text, size_t n);
    void (*called)(void *ctx);
};
struct spoken_options {
    const struct dialect *dialect;
    /* Borrowed: functions as OpenAI's chat has them.  NULL: calls are not looked for. */
    const json_t *tools;
    bool reasoning; /* the prompt has opened a block of reasoning */
    bool live;      /* tells calls while they come, if their form allows it */
    bool demanded;  /* the whole text is a call without marks */
    const struct spoken_calls *calls;
    void *ctx;
};
int spoken_open(const struct spoken_options *o, struct spoken **out);
/* Takes more text, and says the part of it that is certain. */
int spoken_put(struct spoken *s, const char *text, size_t n);
/* True while the model says reasoning. */
bool spoken_reasons(const struct spoken *s);
/* Says the rest.  A call that is not closed is a call if it is complete, else content. */
int spoken_end(struct spoken *s);
void spoken_free(struct spoken *s);

/* spoken_call.c: reads the text of one or more calls.  name: NULL, or the function, if the text is only its
 * arguments.  Returns an owned array of {"name", "arguments": text, "id"}, or NULL if the text is no call.  known:
 * only functions of `tools` count. */
json_t *spoken_read(const char *name, const char *text, size_t n, const json_t *tools, bool known);
/* Reads the head of NAME [ARGS] and similar forms: the name, the model's id or "", and where the arguments begin. */
bool spoken_parted(const char *text, size_t n, char *name, size_t name_size, char *id,
                   size_t id_size, size_t *from);
/* Returns the function with a name, borrowed, or NULL. */
const json_t *spoken_function(const json_t *tools, const char *name);
