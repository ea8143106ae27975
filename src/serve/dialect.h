/* dialect.h - how a model marks its reasoning and its tool calls: a table with one row for each format.
 *
 * A row is chosen by what the chat template of the model writes, since that is the text it was trained on. */
#pragma once
#include "base/base.h"
#include "kvik.h"

enum said {
    SAID_CONTENT,
    SAID_REASONING,
    SAID_CALL,     /* one call, or a list of them */
    SAID_FUNCTION, /* one call, or a list of calls, that another mark closes */
    SAID_HEAD      /* the head of a message, which says what kind of message follows */
};
/* A mark: a text by which a model changes from one state to another.  Marks are left out of the answer. */
struct dialect_mark {
    enum said from;
    const char *text;
    enum said to;
    bool kept;  /* the mark itself is a part of the call */
    bool tools; /* the mark stands around calls */
};
struct dialect {
    const char *name;
    const char *sign; /* a text that the templates of such models have */
    bool objects;     /* templates write arguments that are objects in another way than text */
    bool bare;        /* an answer that begins with "{" may be a call without marks */
    struct dialect_mark mark[10];
};
enum { DIALECT_SHOWN = 16 };
/* What a server knows of the dialect of its model. */
struct dialect_use {
    const struct dialect *dialect; /* NULL: none */
    /* Marks that are special tokens, [n_all].  The first n_plain are marks of other things than calls. */
    int32_t shown[DIALECT_SHOWN];
    size_t n_plain, n_all;
    bool objects;   /* the template wants arguments of calls as objects, not as text */
    bool short_ids; /* the template expects ids of calls with nine letters or digits */
};
/* Finds the dialect of a model; out->dialect is NULL where there is none. */
void dialect_find(const kvik_tokenizer *t, struct dialect_use *out);
/* True if a mark begins or ends tool calls. */
bool dialect_calls(const struct dialect_mark *m);
