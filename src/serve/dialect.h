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
    SAID_FUNCTION, /* the same, where another mark closes it */
    SAID_HEAD      /* of a message that says itself what it is, before its text */
};
/* A text that a model says to change from one state to another.  A mark that changes nothing is left out. */
struct dialect_mark {
    enum said from;
    const char *text;
    enum said to;
    bool kept;  /* the mark is a part of the call */
    bool tools; /* the mark stands around calls */
};
struct dialect {
    const char *name;
    const char *sign; /* a text that the template of such a model has */
    bool objects;     /* templates write arguments that are objects otherwise than text */
    bool bare;        /* an answer that begins with "{" may be a call without marks */
    struct dialect_mark mark[10];
};
enum { DIALECT_SHOWN = 16 };
/* What a server knows of the dialect of its model. */
struct dialect_use {
    const struct dialect *dialect; /* NULL: none */
    /* Marks that are special tokens, [n_all]; the first n_plain are not of calls. */
    int32_t shown[DIALECT_SHOWN];
    size_t n_plain, n_all;
    bool objects;   /* the template wants arguments of calls as objects, not as text */
    bool short_ids; /* it wants ids of calls that have nine letters or digits */
};
/* Finds the dialect of a model; out->dialect is NULL where there is none. */
void dialect_find(const kvik_tokenizer *t, struct dialect_use *out);
/* True if a mark has to do with tool calls. */
bool dialect_calls(const struct dialect_mark *m);
