/* node.h - tokens and the syntax tree.  All nodes are of one struct; the comment beside a kind says what the
 * fields hold.  A tree lies in the arena of its template. */
#pragma once
#include "chat/value.h"

enum token_type {
    T_EOF,
    T_DATA,
    T_VAR_BEGIN,
    T_VAR_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING,
    T_INT,
    T_FLOAT,
    T_OP
};
struct token {
    enum token_type type;
    int line;
    char op[3];    /* T_OP, NUL-terminated */
    struct str *s; /* data, name, string */
    int64_t i;
    double f;
};

enum node_kind {
    /* statements */
    N_SEQ,      /* list */
    N_DATA,     /* value */
    N_PRINT,    /* a */
    N_IF,       /* list: test, body, test, body, ...; b: else */
    N_FOR,      /* a: target, b: iterable, c: test, d: body, e: else */
    N_SET,      /* a: target, b: expression */
    N_SETBLOCK, /* a: target, b: filter chain, d: body */
    N_MACRO,    /* sym; value: name; list: parameters, list2: defaults of the last, d: body */
    N_BREAK,
    N_CONTINUE,
    N_GENERATION, /* d: body */
    /* expressions */
    N_CONST, /* value */
    N_NAME,  /* sym, value: its text */
    N_NSREF, /* sym, value: attribute (assignment only) */
    N_TUPLE, /* list */
    N_LIST,  /* list */
    N_DICT,  /* list: key, value, key, value, ... */
    N_COND,  /* a: test, b: then, c: else or NULL */
    N_OR,
    N_AND,      /* a, b */
    N_NOT,      /* a */
    N_COMPARE,  /* a, b; op: enum compare_op */
    N_BINARY,   /* a, b; op: enum op */
    N_NEG,      /* a */
    N_ATTR,     /* a, value */
    N_ITEM,     /* a, b */
    N_SLICE,    /* a, b, c: parts or NULL */
    N_CALL,     /* a: callee; list: arguments, list2: N_KEYWORD nodes */
    N_FILTER,   /* a: input; fn; value: name; list, list2: as N_CALL */
    N_TEST,     /* as N_FILTER */
    N_KEYWORD,  /* value: name, a */
    N_CAPTURED, /* the text of a block, input of its filter chain */
};

struct node {
    enum node_kind kind;
    int line;
    uint32_t sym;
    int op;
    /* NULL: the name is unknown, which is an error only when the node is reached */
    const struct fn_row *fn;
    struct val value;
    struct node *a, *b, *c, *d, *e;
    struct node **list, **list2;
    uint32_t n, n2;
};

/* A compiled template; immutable, so threads may share it. */
struct jinja {
    struct arena mem;
    struct node *root;
    struct str *sym[JINJA_MAX_NAMES]; /* [n_sym] names of variables */
    uint32_t n_sym;
    /* [n_early] names that are undefined until the top level sets them (statement.c) */
    uint32_t early[JINJA_MAX_NAMES], n_early;
    uint32_t sym_loop;
};
struct compile {
    struct jinja *j;
    struct token *tok; /* [n_tok], the last one T_EOF */
    size_t n_tok, cap_tok, at;
    bool seen[JINJA_MAX_NAMES]; /* the top level has read or set the name */
    unsigned depth;             /* of nesting (nest_enter) */
    unsigned loops, ifs, macros;
    unsigned inner; /* number of bodies of loops, macros and captured blocks around this place */
    const char *tag[JINJA_MAX_DEPTH + 2]; /* names of open blocks */
    const char *const *ends; /* end tags of the block that is being parsed, NULL-terminated */
    unsigned n_tag;
};
int compile_fail(int line, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int compile_refuse(int line, const char *what); /* "line 3: WHAT is not supported in ..." */
int compile_str(struct compile *c, const char *s, size_t n, struct str **out); /* copies */
#define COMPILE_NEW(c, p, count) ARENA_NEW(&(c)->j->mem, p, count)

/* ---- lexer.c: makes the tokens, and reads them one by one */
int lex_all(struct compile *c, const char *src, size_t n);
struct token *tok_at(struct compile *c, unsigned ahead);
/* True if the next token is this operator or name.  The others also move behind the token. */
bool tok_is(struct compile *c, const char *text);
bool tok_skip(struct compile *c, const char *text);
int tok_want(struct compile *c, const char *text);
int tok_want_type(struct compile *c, enum token_type type, struct token **out);
int tok_unexpected(struct compile *c, const char *wanted);
const char *tok_describe(const struct token *t, char buf[64]);

/* ---- expression.c: nodes, names and expressions */
int node_new(struct compile *c, enum node_kind k, int line, struct node **out);
struct node_list { /* lies in the arena */
    struct node **v;
    size_t n, cap;
};
int node_push(struct compile *c, struct node_list *l, struct node *n);
void node_take(struct node *n, const struct node_list *l); /* the list becomes n->list */
int sym_intern(struct compile *c, const struct str *name, uint32_t *out);
/* Counts one level of nesting.  Parsing is recursive, so every descent calls it. */
int nest_enter(struct compile *c, int line);
static inline void nest_leave(struct compile *c)
{
    c->depth--;
}
int parse_expr(struct compile *c, struct node **out);
/* What parse_tuple accepts.  SIMPLE: only names, as in a target.  SPACE: attributes of namespaces, too.  NO_COND: no
 * `a if b else c`.  PARENS: the tuple stands in parentheses, so that it may be empty. */
enum tuple_flag { TUPLE_SIMPLE = 1, TUPLE_NO_COND = 2, TUPLE_PARENS = 4, TUPLE_SPACE = 8 };
int parse_tuple(struct compile *c, unsigned flags, const char *end_name, struct node **out);
int parse_filter(struct compile *c, struct node *input, struct node **out);

/* ---- statement.c */
int parse_template(struct compile *c, struct node **out);
