/* remembered.c - finds schemas by their text.  Compiling a schema may take half a second.  A request names its schema
 * as text, and the same text is needed several times: one thread checks the options, another begins the texts, each of
 * n texts needs the schema, and a parked text needs it again.
 *
 * A schema that somebody holds is always found, so a server that holds the schemas of its requests never compiles where
 * it computes.  Beside those, the schemas that were used last are kept. */
#include "base/thread.h"
#include "schema/schema_int.h"

#include <string.h>

/* Limits of what is kept. */
enum { KEPT = 64 /* schemas */, KEPT_BYTES = 64 << 20 };
enum { TEXT = 8 << 20 /* bytes; texts are compared where a server computes */ };

/* The schemas that somebody holds, their bytes, and the limit of these. */
static struct schema *held;
static size_t held_bytes, most_bytes = (size_t)512 << 20;
/* In order of use, the last used first; each entry is one holder of its schema. */
static struct schema *kept[KEPT];
static uint32_t n_kept;
static size_t kept_bytes;
FORK_LOCK(lock);

static size_t bytes_of_schema(const struct schema *s)
{
    size_t n = s->n_text + s->cap_basic * sizeof *s->basic + s->cap_node * sizeof *s->node;
    for (uint32_t i = 0; i < s->n_basic; i++) {
        const struct basic *b = &s->basic[i];
        if (!b->dfa) continue;
        n += (size_t)b->dfa->n_state * b->dfa->n_class * sizeof *b->dfa->next;
        if (b->reach) n += (size_t)b->dfa->n_state * b->words * sizeof *b->reach;
    }
    return n;
}

/* --- The caller of the functions below holds the lock. */

static struct schema *hold(struct schema *s)
{
    atomic_fetch_add_explicit(&s->more, 1, memory_order_relaxed);
    return s;
}

/* Drops one holder.  Returns s if it was the last one, else NULL. */
static struct schema *let_go(struct schema *s)
{
    if (atomic_fetch_sub_explicit(&s->more, 1, memory_order_acq_rel)) return NULL;
    for (struct schema **at = &held; s->text && *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            held_bytes -= s->bytes;
            break;
        }
    return s;
}

/* Returns the schema of a text with one more holder, or NULL. */
static struct schema *find(const char *text, size_t n)
{
    for (struct schema *s = held; s; s = s->next)
        if (s->n_text == n && !memcmp(s->text, text, n)) return hold(s);
    return NULL;
}

/* Schemas that nobody holds any more.  They are freed without the lock. */
struct gone {
    struct schema *v[KEPT + 1];
    uint32_t n;
};

/* Gives up the schema that was used least recently out of those that are kept. */
static void unkeep(struct gone *g)
{
    struct schema *s = kept[--n_kept];
    kept_bytes -= s->bytes;
    if ((s = let_go(s))) g->v[g->n++] = s;
}

/* Puts a schema before all others that are kept. */
static void keep(struct schema *s, struct gone *g)
{
    uint32_t i = 0;
    while (i < n_kept && kept[i] != s)
        i++;
    if (i == n_kept) {
        if (s->bytes > KEPT_BYTES) return;
        while (n_kept == KEPT || kept_bytes + s->bytes > KEPT_BYTES)
            unkeep(g);
        kept_bytes += s->bytes;
        hold(s);
        i = n_kept++;
    }
    memmove(kept + 1, kept, i * sizeof *kept);
    kept[0] = s;
}

/* Enters a new schema among those that are held.  Where memory is short, those that are only kept give way. */
static int enter(struct schema *s, struct gone *g)
{
    while (n_kept && held_bytes + s->bytes > most_bytes)
        unkeep(g);
    if (held_bytes + s->bytes > most_bytes)
        return ERR(BUSY,
                   "the schemas of all running and waiting texts would need more than %zu MiB; try "
                   "again later",
                   most_bytes >> 20);
    s->next = held;
    held = s;
    held_bytes += s->bytes;
    return 0;
}

/* --- */

size_t schema_limit(size_t bytes)
{
    lock_take();
    size_t before = most_bytes;
    most_bytes = bytes;
    lock_give();
    return before;
}

/* Compiles the schema of a text. */
static int compile(const char *text, size_t n, const char *what, struct schema **out)
{
    struct schema *s;
    if (n > TEXT)
        return ERR(LIMIT, "%s: the schema has %zu bytes; at most %d are possible", what, n, TEXT);
    TRY(schema_compile_text(text, what, &s));
    char *copy = mem_strndup(text, n);
    if (!copy) {
        schema_free(s);
        return ERR_NOMEM;
    }
    s->n_text = n;
    s->bytes = bytes_of_schema(s);
    s->text = copy;
    *out = s;
    return 0;
}

int schema_of(const char *text, const char *what, struct schema **out)
{
    struct gone g = {.n = 0};
    struct schema *mine = NULL, *s;
    size_t n = strlen(text);
    int e = 0;
    *out = NULL;
    lock_take();
    if (!(s = find(text, n))) {
        lock_give();
        TRY(compile(text, n, what, &mine));
        lock_take();
        /* another thread may have compiled it meanwhile */
        if (!(s = find(text, n)) && (e = enter(mine, &g)) >= 0) s = mine;
    }
    if (s) keep(s, &g);
    lock_give();
    if (mine != s) g.v[g.n++] = mine;
    for (uint32_t i = 0; i < g.n; i++)
        schema_free(g.v[i]);
    *out = s;
    return e;
}

void schema_drop(struct schema *s)
{
    if (!s) return;
    lock_take();
    s = let_go(s);
    lock_give();
    schema_free(s);
}
