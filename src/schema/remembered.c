/* remembered.c - keeps the schemas that the process has used last.  Compiling a schema may take half a second.  A
 * request names its schema as text, and the same text is needed several times: one thread checks the options,
 * another begins the texts, each of n texts needs the schema, and a parked text needs it again.  All of them find
 * the compiled schema here. */
#include "base/thread.h"
#include "schema/schema_int.h"

#include <string.h>

enum {
    KEPT = 8,            /* schemas */
    KEPT_MOST = 16 << 20 /* bytes of a schema; a larger one is not kept */
};

/* in order of use, the last used first; each entry is one holder of its schema */
static struct kept {
    char *text; /* owned */
    struct schema *schema;
} kept[KEPT];
static uint32_t n_kept;
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
    for (uint32_t i = 0; i < n_kept; i++) {
        if (strcmp(kept[i].text, text) != 0) continue;
        use(i);
        return hold(kept[0].schema);
    }
    return NULL;
}

/* Keeps a schema if there is memory.  Cannot fail. */
static void keep_schema(const char *text, struct schema *s)
{
    struct kept last = {0};
    char *copy = bytes_of_schema(s, text) <= KEPT_MOST ? mem_strdup(text) : NULL;
    if (!copy) return;
    lock_take();
    if (n_kept == KEPT) last = kept[--n_kept];
    kept[n_kept++] = (struct kept){.text = copy, .schema = hold(s)};
    use(n_kept - 1);
    lock_give();
    mem_free(last.text);
    schema_drop(last.schema);
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
