/* statement.c - the tags: for, if, set, macro, generation, break, continue.  Other tags of Jinja are refused by
 * name.
 *
 * One habit of Jinja's compiler is kept.  If the top level sets a name before it ever reads the name, the name is
 * undefined until then.  This holds even for macros and loops that run earlier, and even if the caller gave a
 * variable of that name.  Names set only inside `if` are exempt.  compile.seen and jinja.early list these names. */
#include "chat/node.h"

#include <stdio.h>
#include <string.h>

static int parse_body(struct compile *c, const char *const *ends, struct node **out);

/* Returns the error for a tag that does not belong here, or for the end of the source (name NULL). */
static int fail_tag(struct compile *c, const struct str *name, int line)
{
    char text[200] = "", tag[100] = "Unexpected end of template.", open[100] = "";
    for (const char *const *p = c->ends; p && *p; p++)
        snprintf(text + strlen(text), 40, "%s'%s'", p == c->ends ? "" : " or ", *p);
    if (name)
        snprintf(tag, sizeof tag, "Encountered unknown tag '%.*s'.", (int)MIN(name->n, 60u),
                 name->s);
    if (c->n_tag)
        snprintf(open, sizeof open, " The innermost block that needs to be closed is '%s'.",
                 c->tag[c->n_tag - 1]);
    return compile_fail(line, "%s%s%s%s%s", tag,
                        c->ends ? " Jinja was looking for the following tags: " : "", text,
                        c->ends ? "." : "", open);
}

/* Parses the rest of an opening tag, then its body up to one of the tags in `ends`, whose name is skipped. */
static int parse_block(struct compile *c, const char *const *ends, struct node **body,
                       const char **end)
{
    const char *const *outer = c->ends;
    tok_skip(c, ":");
    TRY(tok_want_type(c, T_BLOCK_END, &(struct token *){0}));
    c->ends = ends;
    TRY(parse_body(c, ends, body));
    const struct token *t = tok_at(c, 0);
    if (t->type != T_NAME) return fail_tag(c, NULL, t->line);
    c->ends = outer;
    while (*ends && !str_is(t->s, *ends))
        ends++;
    if (end) *end = *ends;
    c->at++;
    return 0;
}

/* Parses the target of an assignment.  Its names are set, not read, so they are parsed as in an inner body. */
static int parse_target(struct compile *c, unsigned flags, const char *end_name, struct node **out)
{
    struct node *n;
    c->inner++;
    TRY(parse_tuple(c, TUPLE_SIMPLE | flags, end_name, &n));
    c->inner--;
    *out = n;
    bool ok = n->kind == N_NAME || n->kind == N_NSREF || n->kind == N_TUPLE;
    for (uint32_t i = 0; n->kind == N_TUPLE && i < n->n; i++) {
        enum node_kind k = n->list[i]->kind; /* a nested tuple is checked when it is assigned */
        ok &= k == N_NAME || k == N_NSREF || k == N_TUPLE;
    }
    return ok ? 0 : compile_fail(n->line, "can't assign to this expression");
}

static void note_store(struct compile *c, uint32_t sym)
{
    if (c->inner) return;
    if (!c->seen[sym] && !c->ifs) c->j->early[c->j->n_early++] = sym;
    c->seen[sym] = true;
}

static void note_target(struct compile *c, const struct node *t)
{
    if (t->kind == N_NAME) note_store(c, t->sym);
    if (t->kind == N_NSREF && !c->inner) c->seen[t->sym] = true;
    for (uint32_t i = 0; t->kind == N_TUPLE && i < t->n; i++)
        if (t->list[i]->kind == N_NAME) note_store(c, t->list[i]->sym);
}

static int parse_for(struct compile *c, struct node *n)
{
    static const char *const ends[] = {"endfor", "else", NULL}, *const end[] = {"endfor", NULL};
    const char *hit;
    TRY(parse_target(c, 0, "in", &n->a));
    if (!tok_skip(c, "in")) return tok_unexpected(c, "in");
    TRY(parse_tuple(c, TUPLE_NO_COND, "recursive", &n->b));
    c->inner++;
    if (tok_skip(c, "if")) TRY(parse_expr(c, &n->c));
    if (tok_is(c, "recursive")) return compile_refuse(n->line, "a recursive loop");
    c->loops++;
    TRY(parse_block(c, ends, &n->d, &hit));
    c->loops--;
    if (strcmp(hit, "else") == 0) TRY(parse_block(c, end, &n->e, NULL));
    c->inner--;
    return 0;
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
    node_take(n, &l);
    return 0;
}

static int parse_set(struct compile *c, struct node *n)
{
    static const char *const end[] = {"endset", NULL};
    TRY(parse_target(c, TUPLE_SPACE, NULL, &n->a));
    if (tok_skip(c, "=")) {
        TRY(parse_tuple(c, 0, NULL, &n->b));
        note_target(c, n->a);
        return 0;
    }
    n->kind = N_SETBLOCK;
    struct node *text;
    TRY(node_new(c, N_CAPTURED, n->line, &text));
    c->inner++;
    TRY(parse_filter(c, text, &n->b));
    TRY(parse_block(c, end, &n->d, NULL));
    c->inner--;
    note_target(c, n->a);
    return 0;
}

static int parse_signature(struct compile *c, struct node *n)
{
    struct node_list names = {0}, defaults = {0};
    TRY(tok_want(c, "("));
    while (!tok_is(c, ")")) {
        struct node *p;
        struct token *t;
        if (names.n) TRY(tok_want(c, ","));
        TRY(tok_want_type(c, T_NAME, &t));
        TRY(node_new(c, N_NAME, t->line, &p));
        p->value = (struct val){.t = V_STR, .str = t->s};
        TRY(sym_intern(c, t->s, &p->sym));
        TRY(node_push(c, &names, p));
        if (tok_skip(c, "=")) {
            TRY(parse_expr(c, &p));
            TRY(node_push(c, &defaults, p));
        } else if (defaults.n) {
            return compile_fail(t->line, "non-default argument follows default argument");
        }
    }
    c->at++;
    node_take(n, &names);
    n->list2 = defaults.v;
    n->n2 = (uint32_t)defaults.n;
    return 0;
}

/* Parses a body from which break and continue cannot jump out. */
static int parse_closed(struct compile *c, struct node *n, const char *const *ends)
{
    unsigned loops = c->loops;
    c->loops = 0;
    TRY(parse_block(c, ends, &n->d, NULL));
    c->loops = loops;
    return 0;
}

static int parse_macro(struct compile *c, struct node *n)
{
    static const char *const end[] = {"endmacro", NULL};
    struct token *name;
    TRY(tok_want_type(c, T_NAME, &name));
    n->value = (struct val){.t = V_STR, .str = name->s};
    TRY(sym_intern(c, name->s, &n->sym));
    c->inner++;
    c->macros++;
    TRY(parse_signature(c, n));
    TRY(parse_closed(c, n, end));
    c->macros--;
    c->inner--;
    note_store(c, n->sym);
    return 0;
}

static int parse_generation(struct compile *c, struct node *n)
{
    static const char *const end[] = {"endgeneration", NULL};
    c->inner++;
    TRY(parse_closed(c, n, end));
    c->inner--;
    return 0;
}

static int parse_jump(struct compile *c, struct node *n)
{
    if (!c->loops)
        return compile_fail(n->line, "'%s' outside loop",
                            n->kind == N_BREAK ? "break" : "continue");
    return 0;
}

static const struct tag {
    const char *name;
    int (*parse)(struct compile *c, struct node *n);
    enum node_kind kind;
} tags[] = {
    {"for", parse_for, N_FOR},
    {"if", parse_if, N_IF},
    {"set", parse_set, N_SET},
    {"macro", parse_macro, N_MACRO},
    {"generation", parse_generation, N_GENERATION},
    {"break", parse_jump, N_BREAK},
    {"continue", parse_jump, N_CONTINUE},
};
static const char *const refused_tags[] = {"autoescape", "block", "call",   "do",      "extends",
                                           "filter",     "from",  "import", "include", "print",
                                           "raw",        "trans", "with"};

static int parse_tag(struct compile *c, struct node **out)
{
    const struct token *t = tok_at(c, 0);
    if (t->type != T_NAME) return compile_fail(t->line, "tag name expected");
    for (size_t i = 0; i < countof(tags); i++) {
        if (!str_is(t->s, tags[i].name)) continue;
        TRY(nest_enter(c, t->line));
        c->tag[c->n_tag++] = tags[i].name;
        c->at++;
        TRY(node_new(c, tags[i].kind, t->line, out));
        TRY(tags[i].parse(c, *out));
        c->n_tag--;
        nest_leave(c);
        return 0;
    }
    for (size_t i = 0; i < countof(refused_tags); i++)
        if (str_is(t->s, refused_tags[i]))
            return ERR(UNSUPPORTED, "line %d: the tag '%s' is not supported in chat templates",
                       t->line, refused_tags[i]);
    return fail_tag(c, t->s, t->line);
}

static bool at_end_tag(const struct token *t, const char *const *ends)
{
    if (t->type != T_NAME) return false;
    for (; ends && *ends; ends++)
        if (str_is(t->s, *ends)) return true;
    return false;
}

/* Parses data, prints and tags up to the end of the source, or up to an end tag, which stays the next token. */
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
            TRY(tok_want_type(c, T_VAR_END, &(struct token *){0}));
        } else {
            if (at_end_tag(tok_at(c, 0), ends)) break;
            TRY(parse_tag(c, &n));
            TRY(tok_want_type(c, T_BLOCK_END, &(struct token *){0}));
        }
        TRY(node_push(c, &l, n));
    }
    TRY(node_new(c, N_SEQ, line, &n));
    node_take(n, &l);
    *out = n;
    return 0;
}

int parse_template(struct compile *c, struct node **out)
{
    return parse_body(c, NULL, out);
}
