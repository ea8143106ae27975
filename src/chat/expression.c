/* expression.c - expressions by recursive descent, loosest first:
 *   a if t else b · or · and · not · comparisons · + - · ~ · * / // % · ** · - + · primary,
 * where a primary takes subscripts and calls, then filters and tests.  Two habits of the reference
 * are kept: `-x|f` filters the negated value, and ** groups to the left. */
#include "chat/node.h"

#include <string.h>

static int parse_primary(struct compile *c, bool space, struct node **out);
static int parse_postfix(struct compile *c, struct node *n, struct node **out);

static int binary_node(struct compile *c, enum node_kind k, int op, int line, struct node **left,
                       struct node *right)
{
    struct node *n;
    TRY(node_new(c, k, line, &n));
    n->op = op;
    n->a = *left;
    n->b = right;
    *left = n;
    return 0;
}

static int parse_unary(struct compile *c, bool filters, struct node **out);

static int parse_pow(struct compile *c, struct node **out)
{
    TRY(parse_unary(c, true, out));
    while (tok_is_op(c, OP2('*', '*'))) {
        int line = tok_at(c, 0)->line;
        struct node *right;
        c->at++;
        TRY(parse_unary(c, true, &right));
        TRY(binary_node(c, N_BINARY, OP_POW, line, out, right));
    }
    return 0;
}

static int parse_product(struct compile *c, struct node **out)
{
    TRY(parse_pow(c, out));
    for (;;) {
        int op = tok_is_op(c, '*')             ? OP_MUL
                 : tok_is_op(c, '/')           ? OP_DIV
                 : tok_is_op(c, OP2('/', '/')) ? OP_FLOORDIV
                 : tok_is_op(c, '%')           ? OP_MOD
                                               : -1;
        if (op < 0) return 0;
        int line = tok_at(c, 0)->line;
        struct node *right;
        c->at++;
        TRY(parse_pow(c, &right));
        TRY(binary_node(c, N_BINARY, op, line, out, right));
    }
}

static int parse_concat(struct compile *c, struct node **out)
{
    struct node *first, *n;
    int line = tok_at(c, 0)->line;
    TRY(parse_product(c, &first));
    if (!tok_is_op(c, '~')) {
        *out = first;
        return 0;
    }
    struct node_list l = {0};
    TRY(node_push(c, &l, first));
    while (tok_skip_op(c, '~')) {
        TRY(parse_product(c, &n));
        TRY(node_push(c, &l, n));
    }
    TRY(node_new(c, N_CONCAT, line, &n));
    n->list = l.v;
    n->n = l.n;
    *out = n;
    return 0;
}

static int parse_sum(struct compile *c, struct node **out)
{
    TRY(parse_concat(c, out));
    while (tok_is_op(c, '+') || tok_is_op(c, '-')) {
        int op = tok_is_op(c, '+') ? OP_ADD : OP_SUB, line = tok_at(c, 0)->line;
        struct node *right;
        c->at++;
        TRY(parse_concat(c, &right));
        TRY(binary_node(c, N_BINARY, op, line, out, right));
    }
    return 0;
}

static int compare_op(struct compile *c)
{
    static const struct {
        uint32_t op;
        enum compare_op cmp;
    } row[] = {
        {OP2('=', '='), CMP_EQ}, {OP2('!', '='), CMP_NE}, {'<', CMP_LT},
        {OP2('<', '='), CMP_LE}, {'>', CMP_GT},           {OP2('>', '='), CMP_GE},
    };
    for (size_t i = 0; i < countof(row); i++)
        if (tok_skip_op(c, row[i].op)) return (int)row[i].cmp;
    if (tok_skip_name(c, "in")) return CMP_IN;
    const struct token *next = tok_at(c, 1);
    if (tok_is_name(c, "not") && next->type == T_NAME && str_is(next->s, "in")) {
        c->at += 2;
        return CMP_NOTIN;
    }
    return -1;
}

static int parse_compare(struct compile *c, struct node **out)
{
    struct node_list l = {0};
    struct node *first, *n;
    int line = tok_at(c, 0)->line, op;
    TRY(parse_sum(c, &first));
    while ((op = compare_op(c)) >= 0) {
        TRY(node_new(c, N_OPERAND, tok_at(c, 0)->line, &n));
        n->op = op;
        TRY(parse_sum(c, &n->a));
        TRY(node_push(c, &l, n));
    }
    *out = first;
    if (!l.n) return 0;
    TRY(node_new(c, N_COMPARE, line, &n));
    n->a = first;
    n->list = l.v;
    n->n = l.n;
    *out = n;
    return 0;
}

static int parse_not(struct compile *c, struct node **out)
{
    if (!tok_is_name(c, "not")) return parse_compare(c, out);
    struct node *n;
    int line = tok_at(c, 0)->line;
    TRY(nest_enter(c, line));
    c->at++;
    TRY(node_new(c, N_NOT, line, &n));
    TRY(parse_not(c, &n->a));
    nest_leave(c);
    *out = n;
    return 0;
}

static int parse_and(struct compile *c, struct node **out)
{
    TRY(parse_not(c, out));
    while (tok_is_name(c, "and")) {
        struct node *right;
        int line = tok_at(c, 0)->line;
        c->at++;
        TRY(parse_not(c, &right));
        TRY(binary_node(c, N_AND, 0, line, out, right));
    }
    return 0;
}

int parse_or(struct compile *c, struct node **out)
{
    TRY(parse_and(c, out));
    while (tok_is_name(c, "or")) {
        struct node *right;
        int line = tok_at(c, 0)->line;
        c->at++;
        TRY(parse_and(c, &right));
        TRY(binary_node(c, N_OR, 0, line, out, right));
    }
    return 0;
}

int parse_expr(struct compile *c, struct node **out)
{
    int line = tok_at(c, 0)->line;
    TRY(nest_enter(c, line));
    struct node *value;
    TRY(parse_or(c, &value));
    while (tok_skip_name(c, "if")) {
        struct node *n;
        TRY(node_new(c, N_COND, line, &n));
        n->b = value;
        TRY(parse_or(c, &n->a));
        if (tok_skip_name(c, "else")) TRY(parse_expr(c, &n->c));
        value = n;
        line = tok_at(c, 0)->line;
    }
    nest_leave(c);
    *out = value;
    return 0;
}

static bool tuple_ends(struct compile *c, const char *end_name)
{
    const struct token *t = tok_at(c, 0);
    return t->type == T_VAR_END || t->type == T_BLOCK_END || tok_is_op(c, ')') ||
           (end_name && tok_is_name(c, end_name));
}

int parse_tuple(struct compile *c, unsigned flags, const char *end_name, struct node **out)
{
    struct node_list l = {0};
    bool tuple = false;
    struct node *n;
    int line = tok_at(c, 0)->line;
    for (;;) {
        if (l.n) TRY(tok_want_op(c, ','));
        if (tuple_ends(c, end_name)) break;
        if (flags & TUPLE_SIMPLE)
            TRY(parse_primary(c, flags & TUPLE_SPACE, &n));
        else if (flags & TUPLE_NO_COND)
            TRY(parse_or(c, &n));
        else
            TRY(parse_expr(c, &n));
        TRY(node_push(c, &l, n));
        if (!tok_is_op(c, ',')) break;
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
    n->list = l.v;
    n->n = l.n;
    *out = n;
    return 0;
}

/* [a, b] and {k: v}: items up to `close`, the opening bracket consumed. */
static int parse_items(struct compile *c, uint32_t close, bool pairs, struct node *n)
{
    struct node_list l = {0};
    struct node *item;
    while (!tok_is_op(c, close)) {
        if (l.n) TRY(tok_want_op(c, ','));
        if (tok_is_op(c, close)) break;
        TRY(parse_expr(c, &item));
        TRY(node_push(c, &l, item));
        if (!pairs) continue;
        TRY(tok_want_op(c, ':'));
        TRY(parse_expr(c, &item));
        TRY(node_push(c, &l, item));
    }
    n->list = l.v;
    n->n = l.n;
    return tok_want_op(c, close);
}

static int parse_string(struct compile *c, struct node *n)
{
    struct token *t = tok_at(c, 0);
    c->at++;
    n->value = (struct val){.t = V_STR, .str = t->s};
    if (tok_at(c, 0)->type != T_STRING) return 0;
    struct buf b; /* adjacent literals are one */
    buf_init(&b, RUN_MAX_MEMORY);
    int e = buf_append(&b, t->s->s, t->s->n);
    for (; e >= 0 && (t = tok_at(c, 0))->type == T_STRING; c->at++)
        e = buf_append(&b, t->s->s, t->s->n);
    if (e >= 0) e = compile_str(c, b.data ? b.data : "", b.len, &n->value.str);
    buf_done(&b);
    return e;
}

static void note_macro_use(struct compile *c, const struct str *name)
{
    int flag = str_is(name, "caller")    ? MACRO_CALLER
               : str_is(name, "varargs") ? MACRO_VARARGS
               : str_is(name, "kwargs")  ? MACRO_KWARGS
                                         : 0;
    for (struct macro_use *u = flag ? c->use : NULL; u; u = u->outer)
        u->flags |= flag;
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
    note_macro_use(c, t->s);
    if (space && tok_skip_op(c, '.')) {
        struct token *attr;
        TRY(tok_want_name(c, &attr));
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
    if (t->type == T_STRING) return parse_string(c, n);
    if (t->type == T_INT || t->type == T_FLOAT) {
        n->value = t->type == T_INT ? val_int(t->i) : val_float(t->f);
        c->at++;
        return 0;
    }
    TRY(nest_enter(c, t->line));
    if (tok_skip_op(c, '(')) {
        TRY(parse_tuple(c, TUPLE_PARENS, NULL, out));
        TRY(tok_want_op(c, ')'));
    } else if (tok_skip_op(c, '[')) {
        n->kind = N_LIST;
        TRY(parse_items(c, ']', false, n));
    } else if (tok_skip_op(c, '{')) {
        n->kind = N_DICT;
        TRY(parse_items(c, '}', true, n));
    } else {
        return compile_fail(t->line, "unexpected '%s'", tok_describe(t, buf));
    }
    nest_leave(c);
    return 0;
}

static int parse_slice_part(struct compile *c, struct node **out)
{
    *out = NULL;
    if (tok_is_op(c, ':') || tok_is_op(c, ']') || tok_is_op(c, ',')) return 0;
    return parse_expr(c, out);
}

static int parse_subscribed(struct compile *c, struct node **out)
{
    struct node *n, *from = NULL;
    int line = tok_at(c, 0)->line;
    if (!tok_is_op(c, ':')) TRY(parse_expr(c, &from));
    if (!tok_skip_op(c, ':')) {
        *out = from;
        return 0;
    }
    TRY(node_new(c, N_SLICE, line, &n));
    n->a = from;
    TRY(parse_slice_part(c, &n->b));
    if (tok_skip_op(c, ':')) TRY(parse_slice_part(c, &n->c));
    *out = n;
    return 0;
}

static int parse_subscript(struct compile *c, struct node *obj, struct node **out)
{
    struct node *n;
    int line = tok_at(c, 0)->line;
    if (tok_skip_op(c, '.')) {
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
    c->at++; /* [ */
    struct node_list l = {0};
    TRY(nest_enter(c, line));
    while (!tok_is_op(c, ']')) {
        if (l.n) TRY(tok_want_op(c, ','));
        TRY(parse_subscribed(c, &n));
        TRY(node_push(c, &l, n));
    }
    nest_leave(c);
    TRY(tok_want_op(c, ']'));
    TRY(node_new(c, N_ITEM, line, &n));
    n->a = obj;
    if (l.n == 1) {
        n->b = l.v[0];
    } else {
        TRY(node_new(c, N_TUPLE, line, &n->b));
        n->b->list = l.v;
        n->b->n = l.n;
    }
    *out = n;
    return 0;
}

static int parse_arg(struct compile *c, struct node *call, struct node_list *pos,
                     struct node_list *kw)
{
    const struct token *t = tok_at(c, 0), *next = tok_at(c, 1);
    bool named = t->type == T_NAME && next->type == T_OP && next->op == '=';
    bool ok = tok_is_op(c, '*')             ? !call->d && !call->e
              : tok_is_op(c, OP2('*', '*')) ? !call->e
              : named                       ? !call->e
                                            : !call->d && !call->e && !kw->n;
    if (!ok) return compile_fail(t->line, "invalid syntax for function call expression");
    if (tok_skip_op(c, '*')) return parse_expr(c, &call->d);
    if (tok_skip_op(c, OP2('*', '*'))) return parse_expr(c, &call->e);
    struct node *n;
    if (!named) {
        TRY(parse_expr(c, &n));
        return node_push(c, pos, n);
    }
    TRY(node_new(c, N_KEYWORD, t->line, &n));
    n->value = (struct val){.t = V_STR, .str = t->s};
    c->at += 2;
    TRY(parse_expr(c, &n->a));
    return node_push(c, kw, n);
}

/* (a, b, k=v, *args, **kwargs) into `call`. */
static int parse_args(struct compile *c, struct node *call)
{
    struct node_list pos = {0}, kw = {0};
    bool comma = false;
    TRY(nest_enter(c, tok_at(c, 0)->line));
    TRY(tok_want_op(c, '('));
    while (!tok_is_op(c, ')')) {
        if (comma) {
            TRY(tok_want_op(c, ','));
            if (tok_is_op(c, ')')) break;
        }
        TRY(parse_arg(c, call, &pos, &kw));
        comma = true;
    }
    TRY(tok_want_op(c, ')'));
    nest_leave(c);
    call->list = pos.v;
    call->n = pos.n;
    call->list2 = kw.v;
    call->n2 = kw.n;
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
        if (tok_is_op(c, '.') || tok_is_op(c, '['))
            TRY(parse_subscript(c, n, &n));
        else if (tok_is_op(c, '('))
            TRY(parse_call(c, n, &n));
        else
            break;
    }
    *out = n;
    return 0;
}

/* A dotted name: only ever an unknown filter or test, kept for the error. */
static int parse_dotted(struct compile *c, struct str **out)
{
    struct token *t;
    TRY(tok_want_name(c, &t));
    *out = t->s;
    while (tok_skip_op(c, '.')) {
        TRY(tok_want_name(c, &t));
        *out = t->s;
    }
    return 0;
}

int parse_filter(struct compile *c, struct node *input, bool inline_start, struct node **out)
{
    struct node *n = input;
    while (inline_start || tok_is_op(c, '|')) {
        struct node *f;
        int line = tok_at(c, 0)->line;
        if (!inline_start) c->at++;
        inline_start = false;
        TRY(node_new(c, N_FILTER, line, &f));
        f->a = n;
        f->value.t = V_STR;
        TRY(parse_dotted(c, &f->value.str));
        f->fn = filter_find(f->value.str->s, f->value.str->n);
        if (!f->fn && !c->ifs) /* inside a condition it only fails when reached */
            return compile_fail(line, "unknown filter '%.*s'", (int)MIN(f->value.str->n, 60u),
                                f->value.str->s);
        if (tok_is_op(c, '(')) TRY(parse_args(c, f));
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
    bool negated = tok_skip_name(c, "not");
    TRY(node_new(c, N_TEST, line, &n));
    n->a = input;
    n->value.t = V_STR;
    TRY(parse_dotted(c, &n->value.str));
    n->fn = test_find(n->value.str->s, n->value.str->n);
    if (!n->fn && !c->ifs)
        return compile_fail(line, "unknown test '%.*s'", (int)MIN(n->value.str->n, 60u),
                            n->value.str->s);
    const struct token *t = tok_at(c, 0);
    bool word =
        t->type == T_NAME && !str_is(t->s, "else") && !str_is(t->s, "or") && !str_is(t->s, "and");
    if (tok_is_op(c, '(')) {
        TRY(parse_args(c, n));
    } else if (word || t->type == T_STRING || t->type == T_INT || t->type == T_FLOAT ||
               tok_is_op(c, '[') || tok_is_op(c, '{')) {
        if (tok_is_name(c, "is"))
            return compile_fail(t->line, "You cannot chain multiple tests with is");
        TRY(parse_primary(c, false, &arg));
        TRY(parse_postfix(c, arg, &arg));
        struct node_list l = {0};
        TRY(node_push(c, &l, arg));
        n->list = l.v;
        n->n = 1;
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
    if (tok_is_op(c, '-') || tok_is_op(c, '+')) {
        TRY(nest_enter(c, t->line));
        TRY(node_new(c, tok_is_op(c, '-') ? N_NEG : N_POS, t->line, &n));
        c->at++;
        TRY(parse_unary(c, false, &n->a));
        nest_leave(c);
    } else {
        TRY(parse_primary(c, false, &n));
    }
    TRY(parse_postfix(c, n, &n));
    while (filters) {
        if (tok_is_op(c, '|'))
            TRY(parse_filter(c, n, false, &n));
        else if (tok_is_name(c, "is"))
            TRY(parse_test(c, n, &n));
        else if (tok_is_op(c, '('))
            TRY(parse_call(c, n, &n));
        else
            break;
    }
    *out = n;
    return 0;
}
