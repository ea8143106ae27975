/* spoken.h - the text that a model says, parted into content, reasoning and tool calls while it comes. */
#pragma once
#include "base/json.h"
#include "serve/dialect.h"

enum piece { PIECE_CONTENT, PIECE_REASONING };

struct spoken;
struct spoken_calls {
    void (*text)(void *ctx, enum piece kind, const char *text, size_t n);
    /* A call begins; id: as the model named it, or NULL.  Then come its arguments, the text of a JSON object as the model
     * wrote it, in one or more parts, and the end. */
    void (*call)(void *ctx, const char *id, const char *name);
    void (*arguments)(void *ctx, const char *text, size_t n);
    void (*called)(void *ctx);
};
struct spoken_options {
    const struct dialect *dialect;
    /* Borrowed: functions as OpenAI's chat has them.  NULL: calls are not looked for. */
    const json_t *tools;
    bool reasoning; /* the prompt has opened a reasoning */
    bool live;      /* calls are told while they come, where their form allows it */
    bool demanded;  /* all text is that of a call, without marks */
    const struct spoken_calls *calls;
    void *ctx;
};
int spoken_open(const struct spoken_options *o, struct spoken **out);
/* Takes more text, and says what is certain of it. */
int spoken_put(struct spoken *s, const char *text, size_t n);
/* True while reasoning is said. */
bool spoken_reasons(const struct spoken *s);
/* Says the rest: a call that is not closed is one if it is whole, else it is content. */
int spoken_end(struct spoken *s);
void spoken_free(struct spoken *s);

/* spoken_call.c: reads the text of one or more calls.  name: NULL, or the function, where its text is only the arguments.
 * Returns an owned array of {"name", "arguments": text, "id"}, or NULL where the text is no call.  known: only functions
 * of `tools` count. */
json_t *spoken_read(const char *name, const char *text, size_t n, const json_t *tools, bool known);
/* Reads NAME [ARGS] and the like, at most: the name, the id that the model gave or "", and where the arguments begin. */
bool spoken_parted(const char *text, size_t n, char *name, size_t name_size, char *id,
                   size_t id_size, size_t *from);
/* Returns the function with a name, borrowed, or NULL. */
const json_t *spoken_function(const json_t *tools, const char *name);
