/* json_memory.c - counts when jansson lacks memory, because jansson does not always say so.
 *
 * Its reader ignores a token buffer that cannot grow: a key then lacks a character or a number lacks a digit, and without
 * its closing quote a string is read and copied beyond its end.  Its objects silently lack a member that could not be made.
 *
 * So while a scope of any thread is open, every allocation of jansson passes through here to the function that jansson had
 * before, and a failure is counted for the thread.  While a text is read, a failed allocation is served from a reserve
 * instead, and the text ends there: the reader sees one more piece of it at most, for which the reserve is large enough.
 *
 * The functions of jansson are one pair for the whole process, and the host may use jansson too.  Its own functions are in
 * place whenever no scope is open.  In a scope its calls reach them through here, unchanged, and values may be made in a scope
 * and freed outside.  Functions that the host sets while a scope is open stay, and the scope then counts no failures. */
#include "base/json_memory.h"
#include "base/thread.h"

#include <stdatomic.h>
#include <string.h>

#define PIECE 1024u /* jansson asks for at most so many bytes of a text */

/* The allocation functions of the host.  Other threads of the host may run counting_malloc while these are set. */
static _Atomic(json_malloc_t) below;
static _Atomic(json_free_t) below_free;
/* Guards n_scopes, and is held while the functions of jansson are exchanged. */
FORK_LOCK(lock);
static uint64_t n_scopes;
/* Of this thread: failed allocations, open scopes, and the failures that are already reported or that came before
 * the outermost scope. */
static _Thread_local uint64_t failures, depth, told;
/* NULL outside of json_load_safely */
static _Thread_local char *reserve;
static _Thread_local size_t used, size;

static void *counting_malloc(size_t n)
{
    void *p = atomic_load(&below)(n);
    if (p) return p;
    failures++;
    if (!reserve || n > size - used) return NULL;
    p = reserve + used;
    used += MIN((n + 15) & ~(size_t)15, size - used);
    return p;
}

static void counting_free(void *p)
{
    uintptr_t at = (uintptr_t)p, from = (uintptr_t)reserve;
    if (!reserve || at < from || at >= from + size) atomic_load (&below_free)(p);
}

void json_scope_open(struct json_scope *s)
{
    json_malloc_t now;
    json_free_t now_free;
    lock_take();
    json_get_alloc_funcs(&now, &now_free);
    if (now != counting_malloc) {
        atomic_store(&below, now);
        atomic_store(&below_free, now_free);
        json_set_alloc_funcs(counting_malloc, counting_free);
    }
    n_scopes++;
    lock_give();
    s->before = failures;
    if (!depth++) told = failures;
}

void json_scope_close(struct json_scope *s)
{
    json_malloc_t now;
    json_free_t now_free;
    (void)s;
    depth--;
    lock_take();
    json_get_alloc_funcs(&now, &now_free);
    if (--n_scopes == 0 && now == counting_malloc)
        json_set_alloc_funcs(atomic_load(&below), atomic_load(&below_free));
    lock_give();
}

int json_whole(const struct json_scope *s)
{
    return failures == s->before ? 0 : ERR(NOMEM, "out of memory");
}

bool json_lost_outside(void)
{
    bool lost = failures != told;
    told = failures;
    return lost;
}

/* Returns a bound of the longest token: the longest stretch without a quote that delimits a string. */
static size_t longest_token(const char *text, size_t n)
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

struct text_source {
    const char *text;
    size_t n, at;
    uint64_t before; /* failures */
};

static size_t give_bytes(void *out, size_t n, void *ctx)
{
    struct text_source *s = ctx;
    n = failures != s->before ? 0 : MIN(n, MIN(s->n - s->at, PIECE));
    memcpy(out, s->text + s->at, n);
    s->at += n;
    return n;
}

int json_load_safely(const char *text, size_t n, size_t flags, json_t **out, json_error_t *error)
{
    struct text_source s = {.text = text, .n = n, .before = failures};
    /* A token buffer doubles: 2 + 4 times a token, its copy, and small values for the rest of a piece. */
    size_t most = longest_token(text, n);
    if (most > (SIZE_MAX - (64u << 10)) / 8)
        return ERR(LIMIT,
                   "a JSON text of %zu bytes has a string of %zu bytes, which is too long to read",
                   n, most);
    char *memory = mem_alloc(8 * most + (64u << 10));
    if (!memory) return ERR_NOMEM;
    JSON_SCOPE(scope);
    used = 0;
    size = 8 * most + (64u << 10);
    reserve = memory;
    json_t *j = json_load_callback(give_bytes, &s, flags, error);
    bool failed = failures != s.before;
    if (failed) json_decref(j);
    reserve = NULL;
    failures = s.before; /* the caller gets an error for these failures, so they count no longer */
    mem_free(memory);
    if (failed) return ERR(NOMEM, "out of memory reading JSON");
    *out = j;
    return 0;
}
