/* json_memory.c - notes when jansson lacks memory, because jansson does not always say so.
 *
 * Its reader ignores a token buffer that cannot grow: a key then lacks a character or a number lacks a digit, and without
 * its closing quote a string is read and copied beyond its end.  Its objects silently lack a member that could not be made.
 *
 * So every allocation of jansson passes through here to the function that jansson had before, and a failure is noted for
 * the thread.  While a text is read, a failed allocation is served from a reserve instead, and the text ends there: the
 * reader sees one more piece of it at most, for which the reserve is large enough. */
#include "base/json_memory.h"

#include <string.h>

#define PIECE 1024u /* jansson asks for at most so many bytes of a text */

static json_malloc_t below;
static json_free_t below_free;
static _Thread_local bool lost;
/* NULL outside of json_load_safely */
static _Thread_local char *reserve;
static _Thread_local size_t used, size;

static void *noting_malloc(size_t n)
{
    void *p = below(n);
    if (p) return p;
    lost = true;
    if (!reserve || n > size - used) return NULL;
    p = reserve + used;
    used += MIN((n + 15) & ~(size_t)15, size - used);
    return p;
}

static void noting_free(void *p)
{
    uintptr_t at = (uintptr_t)p, from = (uintptr_t)reserve;
    if (!reserve || at < from || at >= from + size) below_free(p);
}

__attribute__((constructor)) static void begin_notes(void)
{
    json_get_alloc_funcs(&below, &below_free);
    json_set_alloc_funcs(noting_malloc, noting_free);
}

/* A host may close this library and use jansson further. */
__attribute__((destructor)) static void end_notes(void)
{
    json_malloc_t now;
    json_free_t now_free;
    json_get_alloc_funcs(&now, &now_free);
    if (now == noting_malloc) json_set_alloc_funcs(below, below_free);
}

void json_begin(void)
{
    lost = false;
}

bool json_lost(void)
{
    return lost;
}

/* Returns a bound of the longest token: the longest stretch without a quote that delimits a string. */
static size_t longest(const char *text, size_t n)
{
    size_t most = 0, from = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\\') {
            i++;
        } else if (text[i] == '"') {
            most = MAX(most, i - from);
            from = i;
        }
    }
    return MAX(most, n - from);
}

struct source {
    const char *text;
    size_t n, at;
};

static size_t give(void *out, size_t n, void *ctx)
{
    struct source *s = ctx;
    n = lost ? 0 : MIN(n, MIN(s->n - s->at, PIECE));
    memcpy(out, s->text + s->at, n);
    s->at += n;
    return n;
}

int json_load_safely(const char *text, size_t n, size_t flags, json_t **out, json_error_t *error)
{
    struct source s = {.text = text, .n = n};
    bool before = lost;
    /* A token buffer doubles: 2 + 4 times a token, its copy, and small values for the rest of a piece. */
    size_t most = longest(text, n);
    if (most > (SIZE_MAX - (64u << 10)) / 8)
        return ERR(LIMIT, "a JSON text of %zu bytes is too long", n);
    char *memory = mem_alloc(8 * most + (64u << 10));
    if (!memory) return ERR_NOMEM;
    lost = false;
    used = 0;
    size = 8 * most + (64u << 10);
    reserve = memory;
    json_t *j = json_load_callback(give, &s, flags, error);
    bool failed = lost;
    if (failed) json_decref(j);
    reserve = NULL;
    lost = before;
    mem_free(memory);
    if (failed) return ERR(NOMEM, "out of memory reading JSON");
    *out = j;
    return 0;
}
