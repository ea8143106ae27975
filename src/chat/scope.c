/* scope.c - one habit of the reference's compiler: a name that the template's top level sets before
 * it ever reads it there is undefined until then, even for macros and loops that run earlier and
 * even if the caller gave a variable of that name.  Names set only inside `if` are exempt.  This
 * walks the top level in the order the reference does and lists those names. */
#include "chat/node.h"

#include <string.h>

struct scope {
    struct compile *c;
    bool *seen; /* [n_sym] */
    uint32_t *early;
    uint32_t n;
};

static int note_loads(struct scope *s, const struct node *n, unsigned depth);

static int note_list(struct scope *s, struct node *const *list, uint32_t n, unsigned depth)
{
    for (uint32_t i = 0; i < n; i++)
        TRY(note_loads(s, list[i], depth));
    return 0;
}

/* Every name an expression reads.  Long chains are deep on their left, so that side is a loop. */
static int note_loads(struct scope *s, const struct node *n, unsigned depth)
{
    if (depth > JINJA_MAX_DEPTH * 4)
        return ERR(LIMIT, "line %d: nested deeper than %u levels", n->line, JINJA_MAX_DEPTH);
    for (; n; n = n->a) {
        if (n->kind == N_NAME) s->seen[n->sym] = true;
        TRY(note_list(s, n->list, n->n, depth + 1));
        TRY(note_list(s, n->list2, n->n2, depth + 1));
        const struct node *rest[] = {n->b, n->c, n->d, n->e};
        for (size_t i = 0; i < countof(rest); i++)
            if (rest[i]) TRY(note_loads(s, rest[i], depth + 1));
    }
    return 0;
}

static void note_store(struct scope *s, uint32_t sym, bool branch)
{
    if (!s->seen[sym] && !branch) s->early[s->n++] = sym;
    s->seen[sym] = true;
}

static void note_target(struct scope *s, const struct node *t, bool branch)
{
    if (t->kind == N_NAME) note_store(s, t->sym, branch);
    if (t->kind == N_NSREF) s->seen[t->sym] = true;
    for (uint32_t i = 0; t->kind == N_TUPLE && i < t->n; i++)
        if (t->list[i]->kind == N_NAME) note_store(s, t->list[i]->sym, branch);
}

static int note_statement(struct scope *s, const struct node *n, bool branch)
{
    switch (n->kind) {
    case N_SEQ:
        for (uint32_t i = 0; i < n->n; i++)
            TRY(note_statement(s, n->list[i], branch));
        return 0;
    case N_PRINT:
        return note_loads(s, n->a, 0);
    case N_IF:
        for (uint32_t i = 0; i < n->n; i += 2) {
            TRY(note_loads(s, n->list[i], 0));
            TRY(note_statement(s, n->list[i + 1], true));
        }
        return n->b ? note_statement(s, n->b, true) : 0;
    case N_FOR:
        return note_loads(s, n->b, 0);
    case N_SET:
        TRY(note_loads(s, n->b, 0));
        note_target(s, n->a, branch);
        return 0;
    case N_SETBLOCK:
        note_target(s, n->a, branch);
        return 0;
    case N_MACRO:
        note_store(s, n->sym, branch);
        return 0;
    case N_CALLBLOCK:
        return note_loads(s, n->a, 0);
    case N_FILTERBLOCK:
        return note_loads(s, n->b, 0);
    case N_WITH:
        return note_list(s, n->list2, n->n2, 0);
    default:
        return 0;
    }
}

int scope_early(struct compile *c)
{
    struct scope s = {.c = c, .seen = mem_array(c->j->n_sym, sizeof *s.seen)};
    if (!s.seen) return ERR_NOMEM;
    int e = 0;
    s.early = compile_alloc(c, c->j->n_sym * sizeof *s.early, &e);
    if (s.early) e = note_statement(&s, c->j->root, false);
    mem_free(s.seen);
    c->j->early = s.early;
    c->j->n_early = s.n;
    return e;
}
