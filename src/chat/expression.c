/* expression.c - nodes and names of the tree, and expressions by recursive descent, loosest first:
 *   a if t else b · or · and · not · comparisons · + - · ~ · * / // % · ** · - + · primary,
 * where a primary takes subscripts and calls, then filters and tests.  Two habits of Jinja are kept:
 * `-x|f` filters the negated value, and ** groups to the left. */
#include "chat/node.h"

#include <string.h>

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
    ARENA_GROW(&c->j->mem, l);
    l->v[l->n++] = n;
    return 0;
}

void node_take(struct node *n, const struct node_list *l)
{
    n->list = l->v;
    n->n = (uint32_t)l->n;
}

int nest_enter(struct compile *c, int line)
{
    if (c->depth >= JINJA_MAX_DEPTH)
        return ERR(LIMIT, "line %d: nested deeper than %u levels", line, JINJA_MAX_DEPTH);
    c->depth++;
    return 0;
}

int sym_intern(struct compile *c, const struct str *name, uint32_t *out)
{
    struct jinja *j = c->j;
    for (*out = 0; *out < j->n_sym; ++*out)
        if (str_same(j->sym[*out], name)) return 0;
    if (j->n_sym == JINJA_MAX_NAMES)
        return ERR(LIMIT, "a template with more than %u names of variables", JINJA_MAX_NAMES);
    TRY(compile_str(c, name->s, name->n, &j->sym[j->n_sym]));
    j->n_sym++;
    return 0;
}

static int parse_primary(struct compile *c, bool space, struct node **out);
static int parse_unary(struct compile *c, bool filters, struct node **out);

enum level { L_OR, L_AND, L_NOT, L_COMPARE, L_SUM, L_CONCAT, L_PRODUCT, L_POWER, L_UNARY };

/* Finds the operator of this level that stands here between two operands; NULL: none. */
static const struct binary {
    const char *text;
    enum level level;
    enum node_kind kind;
    int code;
} * binary_at(struct compile *c, enum level level)
{
    static const struct binary all[] = {
        {"or", L_OR, N_OR, 0},
        {"and", L_AND, N_AND, 0},
        {"==", L_COMPARE, N_COMPARE, CMP_EQ},
        {"!=", L_COMPARE, N_COMPARE, CMP_NE},
        {"<", L_COMPARE, N_COMPARE, CMP_LT},
        {"<=", L_COMPARE, N_COMPARE, CMP_LE},
        {">", L_COMPARE, N_COMPARE, CMP_GT},
        {">=", L_COMPARE, N_COMPARE, CMP_GE},
        {"in", L_COMPARE, N_COMPARE, CMP_IN},
        {"not", L_COMPARE, N_COMPARE, CMP_NOTIN},
        {"+", L_SUM, N_BINARY, OP_ADD},
        {"-", L_SUM, N_BINARY, OP_SUB},
        {"~", L_CONCAT, N_BINARY, OP_CONCAT},
        {"*", L_PRODUCT, N_BINARY, OP_MUL},
        {"/", L_PRODUCT, N_BINARY, OP_DIV},
        {"//", L_PRODUCT, N_BINARY, OP_FLOORDIV},
        {"%", L_PRODUCT, N_BINARY, OP_MOD},
        {"**", L_POWER, N_BINARY, OP_POW},
    };
    const struct token *next = tok_at(c, 1);
    for (size_t i = 0; i < countof(all); i++)
        if (all[i].level == level && tok_is(c, all[i].text) &&
            (all[i].code != CMP_NOTIN || level != L_COMPARE ||
             (next->type == T_NAME && str_is(next->s, "in"))))
            return &all[i];
    return NULL;
}

static int parse_not(struct compile *c, struct node **out);

/* Parses operands of the next level with operators of this level between them, which group to the left.  A chain
 * of comparisons a < b < c means (a < b) and (b < c). */
static int parse_level(struct compile *c, enum level level, struct node **out)
{
    const struct binary *hit;
    struct node *compared = NULL, *n;
    if (level == L_UNARY) return parse_unary(c, true, out);
    if (level == L_NOT && tok_is(c, "not")) return parse_not(c, out);
    TRY(parse_level(c, level + 1, out));
    while ((hit = binary_at(c, level))) {
        TRY(node_new(c, hit->kind, tok_at(c, 0)->line, &n));
        c->at += level == L_COMPARE && hit->code == CMP_NOTIN ? 2 : 1;
        n->op = hit->code;
        n->a = compared ? compared : *out;
        TRY(parse_level(c, level + 1, &n->b));
        if (compared) {
            struct node *right = n;
            TRY(node_new(c, N_AND, right->line, &n));
            n->a = *out;
            n->b = right;
        }
        if (level == L_COMPARE) compared = compared ? n->b->b : n->b;
        *out = n;
    }
    return 0;
}

static int parse_not(struct compile *c, struct node **out)
{
    int line = tok_at(c, 0)->line;
    TRY(nest_enter(c, line));
    c->at++;
    TRY(node_new(c, N_NOT, line, out));
    TRY(parse_level(c, L_NOT, &(*out)->a));
    nest_leave(c);
    return 0;
}

int parse_expr(struct compile *c, struct node **out)
{
    struct node *n;
    TRY(nest_enter(c, tok_at(c, 0)->line));
    TRY(parse_level(c, L_OR, out));
    while (tok_skip(c, "if")) {
        TRY(node_new(c, N_COND, tok_at(c, 0)->line, &n));
        n->b = *out;
        TRY(parse_level(c, L_OR, &n->a));
        if (tok_skip(c, "else")) TRY(parse_expr(c, &n->c));
        *out = n;
    }
    nest_leave(c);
    return 0;
}

static bool tuple_ends(struct compile *c, const char *end_name)
{
    const struct token *t = tok_at(c, 0);
    return t->type == T_VAR_END || t->type == T_BLOCK_END || tok_is(c, ")") ||
           (end_name && tok_is(c, end_name));
}

int parse_tuple(struct compile *c, unsigned flags, const char *end_name, struct node **out)
{
    struct node_list l = {0};
    bool tuple = false;
    struct node *n;
    int line = tok_at(c, 0)->line;
    for (;;) {
        if (l.n) TRY(tok_want(c, ","));
        if (tuple_ends(c, end_name)) break;
        if (flags & TUPLE_SIMPLE)
            TRY(parse_primary(c, flags & TUPLE_SPACE, &n));
        else if (flags & TUPLE_NO_COND)
            TRY(parse_level(c, L_OR, &n));
        else
            TRY(parse_expr(c, &n));
        TRY(node_push(c, &l, n));
        if (!tok_is(c, ",")) break;
        tuple = true;
    }
    if (!tuple && l.n) {
        *out = l.v[0];
        return 0;
    }
    if (!tuple && !(flags & TUPLE_PARENS)) {
        char buf[64];
        return compile_fail(line, "Expected an expression, got '%s'",
                            tok_describe(tok_at(c, 0), buf));
    }
    TRY(node_new(c, N_TUPLE, line, &n));
    node_take(n, &l);
    *out = n;
    return 0;
}

/* Parses the items of [a, b] or {k: v} up to `close`, behind the opening bracket. */
static int parse_items(struct compile *c, const char *close, bool pairs, struct node *n)
{
    struct node_list l = {0};
    struct node *item;
    while (!tok_is(c, close)) {
        if (l.n) TRY(tok_want(c, ","));
        if (tok_is(c, close)) break;
        TRY(parse_expr(c, &item));
        TRY(node_push(c, &l, item));
        if (!pairs) continue;
        TRY(tok_want(c, ":"));
        TRY(parse_expr(c, &item));
        TRY(node_push(c, &l, item));
    }
    node_take(n, &l);
    return tok_want(c, close);
}

static int parse_name(struct compile *c, bool space, struct node *n)
{
    const struct token *t = tok_at(c, 0);
    c->at++;
    n->kind = N_CONST;
    if (str_is(t->s, "true") || str_is(t->s, "True"))
        n->value = val_bool(true);
    else if (str_is(t->s, "false") || str_is(t->s, "False"))
        n->value = val_bool(false);
    else if (str_is(t->s, "none") || str_is(t->s, "None"))
        n->value = val_none();
    else
        n->kind = N_NAME;
    if (n->kind == N_CONST) return 0;
    TRY(sym_intern(c, t->s, &n->sym));
    n->value = (struct val){.t = V_STR, .str = t->s};
    if (!c->inner) c->seen[n->sym] = true;
    static const char *const special[] = {"caller", "varargs", "kwargs"};
    for (size_t i = 0; i < countof(special) && c->macros; i++)
        if (str_is(t->s, special[i])) return compile_refuse(t->line, special[i]);
    if (space && tok_skip(c, ".")) {
        struct token *attr;
        TRY(tok_want_type(c, T_NAME, &attr));
        n->kind = N_NSREF;
        n->value.str = attr->s;
    }
    return 0;
}

static int parse_primary(struct compile *c, bool space, struct node **out)
{
    const struct token *t = tok_at(c, 0);
    struct node *n;
    char buf[64];
    TRY(node_new(c, N_CONST, t->line, &n));
    *out = n;
    if (t->type == T_NAME) return parse_name(c, space, n);
    if (t->type == T_STRING || t->type == T_INT || t->type == T_FLOAT) {
        n->value = t->type == T_INT     ? val_int(t->i)
                   : t->type == T_FLOAT ? val_float(t->f)
                                        : (struct val){.t = V_STR, .str = t->s};
        c->at++;
        if (t->type == T_STRING && tok_at(c, 0)->type == T_STRING)
            return compile_refuse(t->line, "a string directly after another string");
        return 0;
    }
    TRY(nest_enter(c, t->line));
    if (tok_skip(c, "(")) {
        TRY(parse_tuple(c, TUPLE_PARENS, NULL, out));
        TRY(tok_want(c, ")"));
    } else if (tok_skip(c, "[")) {
        n->kind = N_LIST;
        TRY(parse_items(c, "]", false, n));
    } else if (tok_skip(c, "{")) {
        n->kind = N_DICT;
        TRY(parse_items(c, "}", true, n));
    } else {
        return compile_fail(t->line, "unexpected '%s'", tok_describe(t, buf));
    }
    nest_leave(c);
    return 0;
}

/* Parses the inside of [key] or [from:to:step], whose parts may be absent. */
static int parse_key(struct compile *c, struct node **out)
{
    struct node *n;
    TRY(node_new(c, N_SLICE, tok_at(c, 0)->line, &n));
    struct node **part[] = {&n->a, &n->b, &n->c};
    size_t k = 0;
    if (tok_is(c, "]")) return parse_expr(c, out);
    for (;; k++) {
        if (!tok_is(c, ":") && !tok_is(c, "]")) TRY(parse_expr(c, part[k]));
        if (k == 2 || !tok_skip(c, ":")) break;
    }
    *out = k ? n : n->a;
    return 0;
}

static int parse_subscript(struct compile *c, struct node *obj, struct node **out)
{
    struct node *n;
    int line = tok_at(c, 0)->line;
    if (tok_skip(c, ".")) {
        const struct token *t = tok_at(c, 0);
        if (t->type != T_NAME && t->type != T_INT)
            return compile_fail(t->line, "expected name or number");
        TRY(node_new(c, t->type == T_NAME ? N_ATTR : N_ITEM, line, &n));
        n->a = obj;
        if (t->type == T_NAME) {
            n->value = (struct val){.t = V_STR, .str = t->s};
        } else {
            TRY(node_new(c, N_CONST, line, &n->b));
            n->b->value = val_int(t->i);
        }
        c->at++;
        *out = n;
        return 0;
    }
    TRY(nest_enter(c, line));
    TRY(tok_want(c, "["));
    TRY(node_new(c, N_ITEM, line, out));
    (*out)->a = obj;
    TRY(parse_key(c, &(*out)->b));
    if (tok_is(c, ",")) return compile_refuse(line, "a subscript of several parts");
    nest_leave(c);
    return tok_want(c, "]");
}

/* Parses (a, b, k=v) into `call`. */
static int parse_args(struct compile *c, struct node *call)
{
    struct node_list pos = {0}, kw = {0};
    struct node *n;
    TRY(nest_enter(c, tok_at(c, 0)->line));
    TRY(tok_want(c, "("));
    while (!tok_is(c, ")")) {
        const struct token *t = tok_at(c, 0);
        struct token *next = tok_at(c, 1);
        bool named = t->type == T_NAME && next->type == T_OP && strcmp(next->op, "=") == 0;
        if (tok_is(c, "*") || tok_is(c, "**"))
            return compile_refuse(t->line, "*args or **kwargs in a call");
        if (!named && kw.n)
            return compile_fail(t->line, "invalid syntax for function call expression");
        TRY(node_new(c, N_KEYWORD, t->line, &n));
        n->value = (struct val){.t = V_STR, .str = t->s};
        c->at += named ? 2 : 0;
        TRY(parse_expr(c, &n->a));
        TRY(named ? node_push(c, &kw, n) : node_push(c, &pos, n->a));
        if (!tok_is(c, ")")) TRY(tok_want(c, ","));
    }
    c->at++;
    nest_leave(c);
    node_take(call, &pos);
    call->list2 = kw.v;
    call->n2 = (uint32_t)kw.n;
    return 0;
}

static int parse_call(struct compile *c, struct node *f, struct node **out)
{
    struct node *n;
    TRY(node_new(c, N_CALL, tok_at(c, 0)->line, &n));
    n->a = f;
    *out = n;
    return parse_args(c, n);
}

static int parse_postfix(struct compile *c, struct node *n, struct node **out)
{
    for (;;) {
        if (tok_is(c, ".") || tok_is(c, "["))
            TRY(parse_subscript(c, n, &n));
        else if (tok_is(c, "("))
            TRY(parse_call(c, n, &n));
        else
            break;
    }
    *out = n;
    return 0;
}

/* Parses the name of a filter or test.  An unknown name inside a condition is an error only when it is reached;
 * n->fn is then NULL.  No builtin has a name with dots. */
static int parse_builtin(struct compile *c, enum fn_kind kind, struct node *n)
{
    struct token *t;
    TRY(tok_want_type(c, T_NAME, &t));
    while (tok_skip(c, "."))
        TRY(tok_want_type(c, T_NAME, &t));
    n->value = (struct val){.t = V_STR, .str = t->s};
    n->fn = builtin_find(kind, t->s);
    if (n->fn || c->ifs) return 0;
    return err_prefix(builtin_fail(kind, t->s), "line %d", n->line);
}

int parse_filter(struct compile *c, struct node *input, struct node **out)
{
    struct node *n = input;
    while (tok_is(c, "|")) {
        struct node *f;
        int line = tok_at(c, 0)->line;
        c->at++;
        TRY(node_new(c, N_FILTER, line, &f));
        f->a = n;
        TRY(parse_builtin(c, FN_FILTER, f));
        if (tok_is(c, "(")) TRY(parse_args(c, f));
        n = f;
    }
    *out = n;
    return 0;
}

static int parse_test(struct compile *c, struct node *input, struct node **out)
{
    struct node *n, *arg;
    int line = tok_at(c, 0)->line;
    c->at++; /* is */
    bool negated = tok_skip(c, "not");
    TRY(node_new(c, N_TEST, line, &n));
    n->a = input;
    TRY(parse_builtin(c, FN_TEST, n));
    const struct token *t = tok_at(c, 0);
    bool word =
        t->type == T_NAME && !str_is(t->s, "else") && !str_is(t->s, "or") && !str_is(t->s, "and");
    if (tok_is(c, "(")) {
        TRY(parse_args(c, n));
    } else if (word || t->type == T_STRING || t->type == T_INT || t->type == T_FLOAT ||
               tok_is(c, "[") || tok_is(c, "{")) {
        if (tok_is(c, "is"))
            return compile_fail(t->line, "You cannot chain multiple tests with is");
        TRY(parse_primary(c, false, &arg));
        TRY(parse_postfix(c, arg, &arg));
        struct node_list l = {0};
        TRY(node_push(c, &l, arg));
        node_take(n, &l);
    }
    *out = n;
    if (!negated) return 0;
    TRY(node_new(c, N_NOT, line, out));
    (*out)->a = n;
    return 0;
}

static int parse_unary(struct compile *c, bool filters, struct node **out)
{
    struct node *n;
    const struct token *t = tok_at(c, 0);
    if (tok_is(c, "+")) return compile_refuse(t->line, "the sign + before a value");
    if (tok_is(c, "-")) {
        TRY(nest_enter(c, t->line));
        TRY(node_new(c, N_NEG, t->line, &n));
        c->at++;
        TRY(parse_unary(c, false, &n->a));
        nest_leave(c);
    } else {
        TRY(parse_primary(c, false, &n));
    }
    TRY(parse_postfix(c, n, &n));
    while (filters) {
        if (tok_is(c, "|"))
            TRY(parse_filter(c, n, &n));
        else if (tok_is(c, "is"))
            TRY(parse_test(c, n, &n));
        else if (tok_is(c, "("))
            TRY(parse_call(c, n, &n));
        else
            break;
    }
    *out = n;
    return 0;
}
