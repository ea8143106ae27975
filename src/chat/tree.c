/* tree.c - what the two parsers stand on: looking at tokens, building nodes, numbering variable
 * names, and the nesting limit.  Parsing is recursive, so every way down passes nest_enter. */
#include "chat/node.h"

#include <stdio.h>
#include <string.h>

int compile_fail(int line, const char *fmt, ...)
{
    char text[768];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return ERR(FORMAT, "line %d: %s", line, text);
}

void *compile_alloc(struct compile *c, size_t n, int *code)
{
    return arena_alloc(c->mem, n, code);
}

int compile_str(struct compile *c, const char *s, size_t n, struct str **out)
{
    struct str *t;
    char *copy;
    COMPILE_NEW(c, t, 1);
    COMPILE_NEW(c, copy, n + 1);
    if (n) memcpy(copy, s, n);
    t->s = copy;
    t->n = n;
    str_chars(t); /* counted now: compiled templates are shared by threads */
    *out = t;
    return 0;
}

struct token *tok_at(struct compile *c, unsigned ahead)
{
    size_t i = MIN(c->at + ahead, c->n_tok - 1);
    return &c->tok[i];
}

bool tok_is_op(struct compile *c, uint32_t op)
{
    struct token *t = tok_at(c, 0);
    return t->type == T_OP && t->op == op;
}

bool tok_is_name(struct compile *c, const char *name)
{
    struct token *t = tok_at(c, 0);
    return t->type == T_NAME && str_is(t->s, name);
}

bool tok_skip_op(struct compile *c, uint32_t op)
{
    bool hit = tok_is_op(c, op);
    c->at += hit;
    return hit;
}

bool tok_skip_name(struct compile *c, const char *name)
{
    bool hit = tok_is_name(c, name);
    c->at += hit;
    return hit;
}

static const char *type_text(enum token_type t)
{
    static const char *const text[] = {
        [T_EOF] = "end of template",
        [T_DATA] = "template data / text",
        [T_VAR_BEGIN] = "begin of print statement",
        [T_VAR_END] = "end of print statement",
        [T_BLOCK_BEGIN] = "begin of statement block",
        [T_BLOCK_END] = "end of statement block",
        [T_NAME] = "name",
        [T_STRING] = "string",
        [T_INT] = "integer",
        [T_FLOAT] = "float",
        [T_OP] = "operator",
    };
    return text[t];
}

const char *tok_describe(const struct token *t, char buf[64])
{
    if (t->type == T_NAME)
        snprintf(buf, 64, "%.*s", (int)MIN(t->s->n, (size_t)60), t->s->s);
    else if (t->type == T_OP && t->op > 255)
        snprintf(buf, 64, "%c%c", (char)(t->op >> 8), (char)t->op);
    else if (t->type == T_OP)
        snprintf(buf, 64, "%c", (char)t->op);
    else
        snprintf(buf, 64, "%s", type_text(t->type));
    return buf;
}

int tok_unexpected(struct compile *c, const char *wanted)
{
    const struct token *t = tok_at(c, 0);
    char buf[64];
    if (t->type == T_EOF)
        return compile_fail(t->line, "unexpected end of template, expected '%s'.", wanted);
    return compile_fail(t->line, "expected token '%s', got '%s'", wanted, tok_describe(t, buf));
}

int tok_want(struct compile *c, enum token_type t)
{
    if (tok_at(c, 0)->type != t) return tok_unexpected(c, type_text(t));
    c->at++;
    return 0;
}

int tok_want_op(struct compile *c, uint32_t op)
{
    struct token want = {.type = T_OP, .op = op};
    char buf[64];
    return tok_skip_op(c, op) ? 0 : tok_unexpected(c, tok_describe(&want, buf));
}

int tok_want_name(struct compile *c, struct token **out)
{
    struct token *t = tok_at(c, 0);
    TRY(tok_want(c, T_NAME));
    *out = t;
    return 0;
}

int node_new(struct compile *c, enum node_kind k, int line, struct node **out)
{
    struct node *n;
    COMPILE_NEW(c, n, 1);
    n->kind = k;
    n->line = line;
    *out = n;
    return 0;
}

int node_push(struct compile *c, struct node_list *l, struct node *n)
{
    if (l->n == l->cap) {
        uint32_t cap = l->cap ? l->cap * 2 : 4;
        struct node **v;
        COMPILE_NEW(c, v, cap);
        if (l->n) memcpy(v, l->v, l->n * sizeof *v);
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = n;
    return 0;
}

int nest_enter(struct compile *c, int line)
{
    if (c->depth >= JINJA_MAX_DEPTH)
        return ERR(LIMIT, "line %d: nested deeper than %u levels", line, JINJA_MAX_DEPTH);
    c->depth++;
    return 0;
}

static int sym_rehash(struct compile *c, uint32_t slots)
{
    uint32_t *index = mem_array(slots, sizeof *index);
    if (!index) return ERR_NOMEM;
    for (uint32_t i = 0; i < c->j->n_sym; i++) {
        uint32_t h = hash_bytes(c->j->sym[i]->s, c->j->sym[i]->n) & (slots - 1);
        while (index[h])
            h = (h + 1) & (slots - 1);
        index[h] = i + 1;
    }
    mem_free(c->sym_index);
    c->sym_index = index;
    c->sym_slots = slots;
    return 0;
}

int sym_intern(struct compile *c, const struct str *name, uint32_t *out)
{
    struct jinja *j = c->j;
    if (j->n_sym * 2 >= c->sym_slots) TRY(sym_rehash(c, c->sym_slots ? c->sym_slots * 2 : 64));
    uint32_t h = hash_bytes(name->s, name->n) & (c->sym_slots - 1);
    for (; c->sym_index[h]; h = (h + 1) & (c->sym_slots - 1)) {
        const struct str *s = j->sym[c->sym_index[h] - 1];
        if (s->n == name->n && memcmp(s->s, name->s, s->n) == 0) {
            *out = c->sym_index[h] - 1;
            return 0;
        }
    }
    if (j->n_sym == c->cap_sym) {
        uint32_t cap = c->cap_sym ? c->cap_sym * 2 : 32;
        struct str **v;
        COMPILE_NEW(c, v, cap);
        if (j->n_sym) memcpy(v, j->sym, j->n_sym * sizeof *v);
        j->sym = v;
        c->cap_sym = cap;
    }
    TRY(compile_str(c, name->s, name->n, &j->sym[j->n_sym]));
    *out = j->n_sym++;
    c->sym_index[h] = j->n_sym;
    return 0;
}
