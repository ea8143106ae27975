/* taken.h - gives results of tokenizers to the caller, as arrays that the caller owns. */
#pragma once
#include "base/buf.h"
#include "tok/tok.h"

/* Gives the ids to the caller as an array that the caller frees; never NULL. */
static inline int take_ids(struct ids *v, int e, int32_t **ids, size_t *n)
{
    if (e >= 0 && !v->id && !(v->id = mem_alloc(sizeof *v->id))) e = ERR_NOMEM;
    if (e < 0) {
        ids_done(v);
        return e;
    }
    *ids = v->id;
    *n = v->n;
    return 0;
}

static inline int take_text(struct buf *b, int e, char **text, size_t *n)
{
    size_t len = b->len;
    char *s = e < 0 ? NULL : buf_take(b);
    if (!s) {
        buf_done(b);
        return e < 0 ? e : ERR_NOMEM;
    }
    *text = s;
    if (n) *n = len;
    return 0;
}
