/* remembered.c - the schemas that the process has used last.
 *
 * A schema may take half a second to compile.  A request names it as text: its options are checked by one thread, its texts begin in another, each of
 * n texts on its own, and again where one was parked.  All of them find the schema here. */
#include "schema/schema_int.h"

#include <pthread.h>
#include <string.h>

enum {
    KEPT = 8,            /* schemas */
    KEPT_MOST = 16 << 20 /* bytes of one; a larger one is compiled each time */
};

/* In the order of use, last used first.  Each schema is held once. */
static struct kept {
    char *text; /* owned */
    struct schema *schema;
} kept[KEPT];
static uint32_t n_kept;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void take_lock(void)
{
    pthread_mutex_lock(&lock);
}

static void give_lock(void)
{
    pthread_mutex_unlock(&lock);
}

/* A child of fork() compiles schemas as well, and must not find the lock taken by a thread that it lacks. */
static void survive_fork(void)
{
    (void)pthread_atfork(take_lock, give_lock, give_lock);
}

static struct schema *hold(struct schema *s)
{
    atomic_fetch_add_explicit(&s->more, 1, memory_order_relaxed);
    return s;
}

static size_t bytes_of(const struct schema *s, const char *text)
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

/* Returns a schema with one more holder, or NULL.  The lock is held. */
static struct schema *find(const char *text)
{
    for (uint32_t i = 0; i < n_kept; i++) {
        if (strcmp(kept[i].text, text) != 0) continue;
        use(i);
        return hold(kept[0].schema);
    }
    return NULL;
}

/* Keeps a schema if it can; nothing fails. */
static void keep(const char *text, struct schema *s)
{
    struct kept last = {0};
    char *copy = bytes_of(s, text) <= KEPT_MOST ? mem_strdup(text) : NULL;
    if (!copy) return;
    take_lock();
    if (n_kept == KEPT) last = kept[--n_kept];
    kept[n_kept++] = (struct kept){.text = copy, .schema = hold(s)};
    use(n_kept - 1);
    give_lock();
    mem_free(last.text);
    schema_drop(last.schema);
}

int schema_of(const char *text, const char *what, struct schema **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, survive_fork);
    take_lock();
    struct schema *s = find(text);
    give_lock();
    if (!s) {
        TRY(schema_compile_text(text, what, &s));
        keep(text, s); /* two threads may keep one text twice, which does no harm */
    }
    *out = s;
    return 0;
}
