/* remembered.c - keeps the schemas that the process has used last.  Compiling a schema may take half a second.  A
 * request names its schema as text, and the same text is needed several times: one thread checks the options,
 * another begins the texts, each of n texts needs the schema, and a parked text needs it again.  All of them find
 * the compiled schema here. */
#include "base/thread.h"
#include "schema/schema_int.h"

#include <string.h>

/* Limits of what is kept.  A server compiles a schema where it reads a request, and takes it from here on the thread
 * that computes for everybody; so the requests that wait meanwhile must not push it out. */
enum { KEPT = 64 /* schemas */, KEPT_BYTES = 64 << 20 /* of all; a larger schema is not kept */ };

/* in order of use, the last used first; each entry is one holder of its schema */
static struct kept {
    char *text; /* owned */
    size_t n_text, bytes;
    struct schema *schema;
} kept[KEPT];
static uint32_t n_kept;
static size_t kept_bytes;
FORK_LOCK(lock);

static struct schema *hold(struct schema *s)
{
    atomic_fetch_add_explicit(&s->more, 1, memory_order_relaxed);
    return s;
}

static size_t bytes_of_schema(const struct schema *s, const char *text)
{
    size_t n = strlen(text) + s->cap_basic * sizeof *s->basic + s->cap_node * sizeof *s->node;
    for (uint32_t i = 0; i < s->n_basic; i++) {
        const struct basic *b = &s->basic[i];
        if (!b->dfa) continue;
        n += (size_t)b->dfa->n_state * b->dfa->n_class * sizeof *b->dfa->next;
        n += (size_t)b->dfa->n_state * b->words * sizeof *b->reach;
    }
    return n;
}

/* Moves entry i to the front. */
static void use(uint32_t i)
{
    struct kept k = kept[i];
    memmove(kept + 1, kept, i * sizeof *kept);
    kept[0] = k;
}

/* Returns the schema of a text with one more holder, or NULL.  The caller holds the lock. */
static struct schema *find_kept(const char *text)
{
    size_t n = strlen(text);
    for (uint32_t i = 0; i < n_kept; i++) {
        if (kept[i].n_text != n || memcmp(kept[i].text, text, n) != 0) continue;
        use(i);
        return hold(kept[0].schema);
    }
    return NULL;
}

/* Keeps a schema if there is memory, in the place of those that were used least recently.  Cannot fail. */
static void keep_schema(const char *text, struct schema *s)
{
    struct kept out[KEPT];
    uint32_t n_out = 0;
    size_t bytes = bytes_of_schema(s, text);
    char *copy = bytes <= KEPT_BYTES ? mem_strdup(text) : NULL;
    if (!copy) return;
    lock_take();
    while (n_kept == KEPT || kept_bytes + bytes > KEPT_BYTES) {
        out[n_out] = kept[--n_kept];
        kept_bytes -= out[n_out++].bytes;
    }
    kept[n_kept++] = (struct kept){copy, strlen(copy), bytes, hold(s)};
    kept_bytes += bytes;
    use(n_kept - 1);
    lock_give();
    for (uint32_t i = 0; i < n_out; i++) {
        mem_free(out[i].text);
        schema_drop(out[i].schema);
    }
}

int schema_of(const char *text, const char *what, struct schema **out)
{
    lock_take();
    struct schema *s = find_kept(text);
    lock_give();
    if (!s) {
        TRY(schema_compile_text(text, what, &s));
        keep_schema(text, s); /* two threads may keep the same text twice, which does no harm */
    }
    *out = s;
    return 0;
}
