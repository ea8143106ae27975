/* statement.c - the tags: for, if, set, macro, call, filter, with, generation, break, continue.
 * Tags that reach beyond the template (include, import, extends, block) do not exist here. */
#include "chat/node.h"

#include <stdio.h>
#include <string.h>

static int parse_body(struct compile *c, const char *const *ends, struct node **out);

/* Error for a tag nobody asked for, or for the end of the source (name NULL). */
static int fail_tag(struct compile *c, const struct str *name, int line)
{
    char text[640];
    size_t k = 0;
    bool nested = false;
    if (name)
        k += (size_t)snprintf(text + k, sizeof text - k, "Encountered unknown tag '%.*s'.",
                              (int)MIN(name->n, (size_t)60), name->s);
    else
        k += (size_t)snprintf(text + k, sizeof text - k, "Unexpected end of template.");
    for (unsigned i = 0; name && i < c->n_ends; i++)
        for (const char *const *p = c->ends[i]; *p; p++)
            nested |= str_is(name, *p);
    if (c->n_ends) {
        k += (size_t)snprintf(text + k, sizeof text - k,
                              nested ? " You probably made a nesting mistake. Jinja is expecting "
                                       "this tag, but currently looking for "
                                     : " Jinja was looking for the following tags: ");
        for (const char *const *p = c->ends[c->n_ends - 1]; *p && k < sizeof text; p++)
            k += (size_t)snprintf(text + k, sizeof text - k, "%s'%s'",
                                  p == c->ends[c->n_ends - 1] ? "" : " or ", *p);
        if (k < sizeof text) k += (size_t)snprintf(text + k, sizeof text - k, ".");
    }
    if (c->n_tag && k < sizeof text)
        snprintf(text + k, sizeof text - k, " The innermost block that needs to be closed is '%s'.",
                 c->tag[c->n_tag - 1]);
    return compile_fail(line, "%s", text);
}

/* The rest of an opening tag and what it encloses, up to one of `ends`, whose name is consumed. */
static int parse_block(struct compile *c, const char *const *ends, struct node **body,
                       const char **end)
{
    tok_skip_op(c, ':');
    TRY(tok_want(c, T_BLOCK_END));
    c->ends[c->n_ends++] = ends;
    TRY(parse_body(c, ends, body));
    const struct token *t = tok_at(c, 0);
    if (t->type != T_NAME) return fail_tag(c, NULL, t->line);
    c->n_ends--;
    for (; *ends && !str_is(t->s, *ends); ends++) {
    }
    if (end) *end = *ends;
    c->at++;
    return 0;
}

static int parse_target(struct compile *c, unsigned flags, const char *end_name, struct node **out)
{
    struct node *n;
    TRY(parse_tuple(c, TUPLE_SIMPLE | flags, end_name, &n));
    *out = n;
    if (n->kind == N_NAME || n->kind == N_NSREF) return 0;
    if (n->kind == N_TUPLE) {
        for (uint32_t i = 0; i < n->n; i++) {
            enum node_kind k = n->list[i]->kind; /* a nested tuple holds expressions */
            if (k != N_NAME && k != N_NSREF && k != N_TUPLE)
                return compile_fail(n->line, "can't assign to this expression");
        }
        return 0;
    }
    return compile_fail(n->line, "can't assign to this expression");
}

static int parse_for(struct compile *c, struct node *n)
{
    static const char *const ends[] = {"endfor", "else", NULL}, *const end[] = {"endfor", NULL};
    const char *hit;
    TRY(parse_target(c, 0, "in", &n->a));
    if (!tok_skip_name(c, "in")) return tok_unexpected(c, "in");
    TRY(parse_tuple(c, TUPLE_NO_COND, "recursive", &n->b));
    if (tok_skip_name(c, "if")) TRY(parse_expr(c, &n->c));
    n->op = tok_skip_name(c, "recursive");
    c->loops++;
    TRY(parse_block(c, ends, &n->d, &hit));
    c->loops--;
    return strcmp(hit, "else") == 0 ? parse_block(c, end, &n->e, NULL) : 0;
}

static int parse_if(struct compile *c, struct node *n)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const end[] = {"endif",
                                                                                       NULL};
    struct node_list l = {0};
    const char *hit = "elif";
    c->ifs++;
    while (strcmp(hit, "elif") == 0) {
        struct node *part;
        TRY(parse_tuple(c, TUPLE_NO_COND, NULL, &part));
        TRY(node_push(c, &l, part));
        TRY(parse_block(c, ends, &part, &hit));
        TRY(node_push(c, &l, part));
    }
    if (strcmp(hit, "else") == 0) TRY(parse_block(c, end, &n->b, NULL));
    c->ifs--;
    n->list = l.v;
    n->n = l.n;
    return 0;
}

static int parse_set(struct compile *c, struct node *n)
{
    static const char *const end[] = {"endset", NULL};
    TRY(parse_target(c, TUPLE_SPACE, NULL, &n->a));
    if (tok_skip_op(c, '=')) return parse_tuple(c, 0, NULL, &n->b);
    n->kind = N_SETBLOCK;
    struct node *text;
    TRY(node_new(c, N_CAPTURED, n->line, &text));
    TRY(parse_filter(c, text, false, &n->b));
    return parse_block(c, end, &n->d, NULL);
}

static int parse_signature(struct compile *c, struct node *n)
{
    struct node_list names = {0}, defaults = {0};
    TRY(tok_want_op(c, '('));
    while (!tok_is_op(c, ')')) {
        struct node *p;
        struct token *t;
        if (names.n) TRY(tok_want_op(c, ','));
        TRY(tok_want_name(c, &t));
        TRY(node_new(c, N_NAME, t->line, &p));
        p->value = (struct val){.t = V_STR, .str = t->s};
        TRY(sym_intern(c, t->s, &p->sym));
        TRY(node_push(c, &names, p));
        if (tok_skip_op(c, '=')) {
            TRY(parse_expr(c, &p));
            TRY(node_push(c, &defaults, p));
        } else if (defaults.n) {
            return compile_fail(t->line, "non-default argument follows default argument");
        }
    }
    c->at++;
    n->list = names.v;
    n->n = names.n;
    n->list2 = defaults.v;
    n->n2 = defaults.n;
    return 0;
}

/* A macro's body is a function: loops around it do not count, its special names are noted. */
static int parse_macro_body(struct compile *c, struct node *macro, const char *const *ends)
{
    struct macro_use use = {.outer = c->use};
    unsigned loops = c->loops;
    c->use = &use;
    c->loops = 0;
    int e = parse_block(c, ends, &macro->d, NULL);
    c->use = use.outer;
    c->loops = loops;
    macro->op = use.flags;
    for (uint32_t i = 0; i < macro->n; i++) /* declared parameters are ordinary names */
        if (macro->list[i]->sym == c->j->sym_caller) macro->op &= ~MACRO_CALLER;
    return e;
}

static int parse_macro(struct compile *c, struct node *n)
{
    static const char *const end[] = {"endmacro", NULL};
    struct token *name;
    TRY(tok_want_name(c, &name));
    n->value = (struct val){.t = V_STR, .str = name->s};
    TRY(sym_intern(c, name->s, &n->sym));
    TRY(parse_signature(c, n));
    return parse_macro_body(c, n, end);
}

static int parse_call_block(struct compile *c, struct node *n)
{
    static const char *const end[] = {"endcall", NULL};
    TRY(node_new(c, N_MACRO, n->line, &n->b));
    if (tok_is_op(c, '(')) TRY(parse_signature(c, n->b));
    TRY(parse_expr(c, &n->a));
    if (n->a->kind != N_CALL) return compile_fail(n->line, "expected call");
    return parse_macro_body(c, n->b, end);
}

static int parse_with(struct compile *c, struct node *n)
{
    static const char *const end[] = {"endwith", NULL};
    struct node_list targets = {0}, values = {0};
    while (tok_at(c, 0)->type != T_BLOCK_END) {
        struct node *p;
        if (targets.n) TRY(tok_want_op(c, ','));
        TRY(parse_target(c, 0, NULL, &p));
        TRY(node_push(c, &targets, p));
        TRY(tok_want_op(c, '='));
        TRY(parse_expr(c, &p));
        TRY(node_push(c, &values, p));
    }
    n->list = targets.v;
    n->n = targets.n;
    n->list2 = values.v;
    n->n2 = values.n;
    return parse_block(c, end, &n->d, NULL);
}

static int parse_filter_block(struct compile *c, struct node *n)
{
    static const char *const end[] = {"endfilter", NULL};
    struct node *text;
    TRY(node_new(c, N_CAPTURED, n->line, &text));
    TRY(parse_filter(c, text, true, &n->b));
    return parse_block(c, end, &n->d, NULL);
}

static int parse_generation(struct compile *c, struct node *n)
{
    static const char *const end[] = {"endgeneration", NULL};
    TRY(node_new(c, N_MACRO, n->line, &n->b));
    return parse_macro_body(c, n->b, end);
}

static int parse_jump(struct compile *c, struct node *n)
{
    if (!c->loops)
        return compile_fail(n->line, "'%s' outside loop",
                            n->kind == N_BREAK ? "break" : "continue");
    return 0;
}

static int parse_print(struct compile *c, struct node *n)
{
    struct node_list l = {0};
    while (tok_at(c, 0)->type != T_BLOCK_END) {
        struct node *p;
        if (l.n) TRY(tok_want_op(c, ','));
        TRY(node_new(c, N_PRINT, n->line, &p));
        TRY(parse_expr(c, &p->a));
        TRY(node_push(c, &l, p));
    }
    n->list = l.v;
    n->n = l.n;
    return 0;
}

static const struct tag {
    const char *name;
    int (*parse)(struct compile *c, struct node *n); /* NULL: known, refused */
    enum node_kind kind;
} tags[] = {
    {"for", parse_for, N_FOR},
    {"if", parse_if, N_IF},
    {"set", parse_set, N_SET},
    {"macro", parse_macro, N_MACRO},
    {"call", parse_call_block, N_CALLBLOCK},
    {"filter", parse_filter_block, N_FILTERBLOCK},
    {"with", parse_with, N_WITH},
    {"generation", parse_generation, N_GENERATION},
    {"break", parse_jump, N_BREAK},
    {"continue", parse_jump, N_CONTINUE},
    {"print", parse_print, N_SEQ},
    {"include", NULL, N_SEQ},
    {"import", NULL, N_SEQ},
    {"from", NULL, N_SEQ},
    {"extends", NULL, N_SEQ},
    {"block", NULL, N_SEQ},
    {"autoescape", NULL, N_SEQ},
};

static int parse_tag(struct compile *c, struct node **out)
{
    const struct token *t = tok_at(c, 0);
    if (t->type != T_NAME) return compile_fail(t->line, "tag name expected");
    for (size_t i = 0; i < countof(tags); i++) {
        if (!str_is(t->s, tags[i].name)) continue;
        if (!tags[i].parse)
            return ERR(UNSUPPORTED,
                       "line %d: the tag '%s' is not supported: a chat template is one "
                       "self-contained text",
                       t->line, tags[i].name);
        TRY(nest_enter(c, t->line));
        c->tag[c->n_tag++] = tags[i].name;
        c->at++;
        TRY(node_new(c, tags[i].kind, t->line, out));
        TRY(tags[i].parse(c, *out));
        c->n_tag--;
        nest_leave(c);
        return 0;
    }
    return fail_tag(c, t->s, t->line);
}

static bool at_end_tag(const struct token *t, const char *const *ends)
{
    if (t->type != T_NAME) return false;
    for (; ends && *ends; ends++)
        if (str_is(t->s, *ends)) return true;
    return false;
}

/* Data, prints and tags until an end tag (left as current token) or the end of the source. */
static int parse_body(struct compile *c, const char *const *ends, struct node **out)
{
    struct node_list l = {0};
    struct node *n;
    const struct token *t;
    int line = tok_at(c, 0)->line;
    while ((t = tok_at(c, 0))->type != T_EOF) {
        c->at++;
        if (t->type == T_DATA) {
            TRY(node_new(c, N_DATA, t->line, &n));
            n->value = (struct val){.t = V_STR, .str = t->s};
        } else if (t->type == T_VAR_BEGIN) {
            TRY(node_new(c, N_PRINT, t->line, &n));
            TRY(parse_tuple(c, 0, NULL, &n->a));
            TRY(tok_want(c, T_VAR_END));
        } else {
            if (at_end_tag(tok_at(c, 0), ends)) break;
            TRY(parse_tag(c, &n));
            TRY(tok_want(c, T_BLOCK_END));
        }
        TRY(node_push(c, &l, n));
    }
    TRY(node_new(c, N_SEQ, line, &n));
    n->list = l.v;
    n->n = l.n;
    *out = n;
    return 0;
}

int parse_template(struct compile *c, struct node **out)
{
    return parse_body(c, NULL, out);
}
