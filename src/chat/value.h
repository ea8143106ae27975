/* value.h - the values that a template computes with, and the state of one rendering.  Values are
 * immutable, except namespaces, and lie in the arena of the rendering.  A value has only the methods
 * of the table in builtin.c, so a template reaches data and nothing else. */
#pragma once
#include "base/base.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/json.h"
#include "chat/arena.h"
#include "chat/chat.h"

#define RENDER_MAX_DEPTH  1000u       /* nested evaluations, all calls together (C stack) */
#define RENDER_MAX_MEMORY (64u << 20) /* bytes of all values of one rendering */
#define RANGE_MAX         100000      /* as in Jinja's sandbox */
#define BYTES_PER_STEP    64u         /* work on a long string counts as steps */

enum val_type {
    V_MISSING, /* an argument that was not given; templates never see it */
    V_UNDEF,
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_STR,
    V_SEQ, /* list, tuple, generator, range, dict view: struct val_seq */
    V_DICT,
    V_SPACE, /* namespace(...) */
    V_LOOP,
    V_MACRO,
    V_FUNC,   /* a global function */
    V_METHOD, /* a method bound to its object */
};

struct ranges { /* ascending, disjoint */
    struct jinja_span *v;
    size_t n, cap;
};
/* The bytes that strings are cut from.  A buffer grows, so repeated `~` and `+` take linear time.
 * Foreign bytes came from the caller (messages, tools, kwargs), not from the template. */
struct str_buf {
    char *p; /* NULL: the strings lie elsewhere, and all their bytes are foreign if `all` */
    size_t len, cap;
    bool all;
    struct ranges foreign;
};
struct str {
    const char *s;       /* not NUL-terminated; always valid UTF-8 */
    size_t n, chars;     /* chars: code points, SIZE_MAX until counted */
    struct str_buf *buf; /* NULL: written by the template */
};
struct val {
    uint8_t t;
    bool safe; /* V_STR: a text of the filter `safe`, or cut from one */
    union {
        bool b;
        int64_t i;
        double f;
        struct str *str;
        struct undef *undef;
        struct val_seq *seq;
        struct dict *dict; /* of V_DICT and V_SPACE */
        struct loop *loop;
        struct macro *macro;
        const struct fn_row *fn;
        struct method *method;
    };
};
enum seq_kind {
    SEQ_LIST,
    SEQ_TUPLE,
    /* a generator, such as map returns: it has no length, and each item can be read once */
    SEQ_GEN,
    SEQ_RANGE,
    SEQ_KEYS,
    SEQ_VALUES,
    SEQ_ITEMS
};
struct val_seq {
    enum seq_kind kind;
    size_t n, cap;
    size_t pos; /* SEQ_GEN: items already consumed */
    struct val *v;
};
struct dict_item {
    struct val k, v;
    uint32_t hash;
};
struct dict {
    size_t n, cap, slots;
    struct dict_item *v; /* [n], in order of insertion */
    uint32_t *index;     /* [slots] entry + 1, or 0 */
};
struct undef {
    bool unsafe; /* the template asked for a member that could change or reveal the object */
    char why[];  /* the sentence of the error when the value is used */
};
struct method {
    struct val self;
    const struct fn_row *row;
};

struct kwarg {
    const struct str *name;
    struct val v;
};
struct call_args {
    struct val *v;
    struct kwarg *kw;
    size_t n, n_kw;
};
#define CALL_MAX_ARGS 8
struct builtin_call {
    struct render_state *r;
    struct val self;             /* the value that a filter, test or method is called on */
    struct val a[CALL_MAX_ARGS]; /* bound by the row's parameter list; V_MISSING: not given */
    const struct call_args *raw;
    const struct fn_row *row;
};
enum fn_kind {
    FN_FILTER = 1,
    FN_TEST = 2,
    FN_GLOBAL = 4,
    FN_STR = 8,   /* a method of strings */
    FN_DICT = 16, /* a method of dictionaries */
    FN_LIST = 32, /* a method of lists and tuples */
    FN_TEXT = 64, /* self is converted to a string before the call */
};
/* One row of the table of builtins. */
struct fn_row {
    unsigned kinds; /* enum fn_kind, or-ed */
    const char *name;
    int (*fn)(struct builtin_call *c, struct val *out);
    const char *params; /* names separated by blanks; NULL: the function reads call.raw */
    unsigned need;      /* the first `need` parameters are required */
    int how;            /* selects what the function does, where several rows share a function */
};

/* A text under construction, with its foreign ranges. */
struct text_build {
    struct buf b;
    struct ranges foreign;
};

struct node;
struct binding {
    uint32_t sym;
    struct val v;
};
struct scope { /* one scope; lives in the arena because macros keep theirs */
    struct scope *parent;
    struct binding *v;
    size_t n, cap;
};
struct macro {
    const struct node *def;
    struct scope *env;
    const struct str *name;
};
struct render_state {
    const struct jinja *j;
    struct hash_key key; /* key of the hashes of this rendering's dictionaries */
    struct arena mem;
    const json_t *vars, *trusted; /* trusted: variables whose text counts as the template's own */
    struct str_buf foreign;       /* buffer of strings that are foreign as a whole */
    bool tainting;                /* true: strings that are made now are foreign */
    struct val *ctx; /* [symbols] variables of the caller, converted at first use; V_MISSING */
    struct scope *frame;
    struct text_build *out, *root_out;
    struct val captured; /* text of a block, while its filter chain is evaluated */
    uint64_t steps;
    size_t bytes; /* work in bytes that does not make a whole step yet */
    unsigned depth, calls;
    int err_line;
    struct jinja_now now;
    struct ranges spans; /* {% generation %} blocks */
};

/* ---- running (jinja.c) */
int render_work(struct render_state *r, size_t steps); /* ERR_LIMIT past JINJA_MAX_STEPS */
/* Counts work on `bytes` bytes: a step for every BYTES_PER_STEP of them. */
int render_work_bytes(struct render_state *r, size_t bytes);
/* Counts one more level on the C stack.  If it returns 0, the caller calls render_leave afterwards. */
int render_enter(struct render_state *r);
static inline void render_leave(struct render_state *r)
{
    r->depth--;
}
#define RUN_NEW(r, p, count) ARENA_NEW(&(r)->mem, p, count)

/* ---- value.c */
static inline struct val val_none(void)
{
    return (struct val){.t = V_NONE};
}
static inline struct val val_bool(bool b)
{
    return (struct val){.t = V_BOOL, .b = b};
}
static inline struct val val_int(int64_t i)
{
    return (struct val){.t = V_INT, .i = i};
}
static inline struct val val_float(double f)
{
    return (struct val){.t = V_FLOAT, .f = f};
}
static inline struct val val_seq(struct val_seq *s)
{
    return (struct val){.t = V_SEQ, .seq = s};
}
static inline bool val_is_int(struct val v) /* bool is an int */
{
    return v.t == V_INT || v.t == V_BOOL;
}
static inline int64_t val_as_int(struct val v)
{
    return v.t == V_BOOL ? v.b : v.i;
}
static inline bool val_is_num(struct val v)
{
    return val_is_int(v) || v.t == V_FLOAT;
}
static inline double val_as_float(struct val v)
{
    return v.t == V_FLOAT ? v.f : (double)val_as_int(v);
}
static inline bool val_is_list(struct val v)
{
    return v.t == V_SEQ && v.seq->kind == SEQ_LIST;
}
static inline bool val_is_tuple(struct val v)
{
    return v.t == V_SEQ && v.seq->kind == SEQ_TUPLE;
}
static inline bool val_is_gen(struct val v)
{
    return v.t == V_SEQ && v.seq->kind == SEQ_GEN;
}
static inline bool val_is_indexed(struct val v) /* a list, tuple or range */
{
    return v.t == V_SEQ && (v.seq->kind <= SEQ_TUPLE || v.seq->kind == SEQ_RANGE);
}
const char *val_type_name(struct val v); /* Python's name: "str", "list", "NoneType" */
bool val_true(struct val v);
int val_from_json(struct render_state *r, const json_t *j, unsigned depth, struct val *out);
int val_undef(struct render_state *r, struct val *out, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int val_fail_undef(struct val v); /* returns the error of using an undefined value */
int seq_new(struct render_state *r, enum seq_kind kind, size_t cap, struct val_seq **out);
int seq_copy(struct render_state *r, enum seq_kind kind, const struct val *v, size_t n,
             struct val *out);
int seq_push(struct render_state *r, struct val_seq *s, struct val v);
void seq_reverse(struct val_seq *s);
struct iter {
    struct val v;
    size_t at; /* index of the next item, or byte of a string */
};
int iter_init(struct val v, struct iter *it);                            /* error: not iterable */
int iter_next(struct render_state *r, struct iter *it, struct val *out); /* 1, or 0 at the end */
int val_list(struct render_state *r, struct val v,
             struct val_seq **out); /* a new list of the items */
int val_len(struct render_state *r, struct val v, size_t *out);

/* ---- text.c: strings */
int str_view(struct render_state *r, const char *s, size_t n, struct val *out); /* borrows */
int str_puts(struct render_state *r, const char *s, struct val *out); /* borrows a literal */
/* Copies b into a string and frees b, also after an error e of the caller, which is then returned. */
int str_take(struct render_state *r, int e, struct buf *b, struct val *out);
/* Joins a and b.  Joining piece by piece takes linear time. */
int str_join2(struct render_state *r, struct val a, struct val b, struct val *out);
bool str_foreign(const struct str *s); /* true if any byte is foreign */
bool val_foreign(struct val v);        /* true if v may hold foreign text */
/* Marks `to` as computed from `from`: it becomes foreign if `from` is. */
void str_taint(struct render_state *r, struct val to, struct val from);
void text_init(struct text_build *t, size_t max);
int text_put(struct render_state *r, struct text_build *t, const struct str *s, size_t from,
             size_t n);
/* Marks the text from byte `from` to its end as foreign. */
int text_mark(struct render_state *r, struct text_build *t, size_t from);
int text_take(struct render_state *r, int e, struct text_build *t,
              struct val *out); /* as str_take */
size_t str_chars(struct str *s);
size_t str_offset(struct str *s, size_t ch); /* byte offset of code point ch; s->n at the end */
int str_sub(struct render_state *r, struct val s, size_t from, size_t to,
            struct val *out); /* bytes */
bool str_is(const struct str *s, const char *lit);
bool str_same(const struct str *a, const struct str *b);
/* Returns the byte offset of the first occurrence, or SIZE_MAX. */
size_t str_find(const char *h, size_t n, const char *needle, size_t m);
size_t str_rfind(const char *h, size_t n, const char *needle, size_t m);
/* Escapes HTML, as Jinja does with a text that is joined to a safe one.  The result is safe. */
int str_escape(struct render_state *r, struct val v, struct val *out);
size_t str_trim_end(const char *s, size_t from, size_t to); /* where trailing white space begins */

/* ---- dict.c */
int dict_new(struct render_state *r, size_t cap, struct dict **out);
int dict_put(struct render_state *r, struct dict *d, struct val k, struct val v);
/* Finds the value of key k; *out is NULL if there is none. */
int dict_find(struct render_state *r, const struct dict *d, struct val k, struct val **out);
int dict_view(struct render_state *r, const struct dict *d, enum seq_kind kind, struct val *out);

/* ---- compare.c */
int val_equal(struct render_state *r, struct val a, struct val b, bool *out);
enum compare_op { CMP_EQ, CMP_NE, CMP_LT, CMP_LE, CMP_GT, CMP_GE, CMP_IN, CMP_NOTIN };
int val_compare(struct render_state *r, enum compare_op op, struct val a, struct val b, bool *out);
int val_hash(struct render_state *r, struct val v, uint32_t *out); /* error: unhashable */
int val_sort(struct render_state *r, struct val *v, struct val *key, size_t n,
             bool reverse); /* stable */

/* ---- print.c */
int val_print(struct render_state *r, struct val v, struct text_build *out); /* str(v) */
int val_repr(struct render_state *r, struct val v, struct buf *out);
int val_str(struct render_state *r, struct val v,
            struct val *out); /* str(v); a string is returned as it is */
int f_tojson(struct builtin_call *c, struct val *out);

/* ---- number.c: in the C locale */
void float_repr(double f, char out[40]);
void float_fixed(double f, int digits, char *out, size_t n);
size_t digits_in(const char *s, const char *end);       /* digits at the start of [s, end) */
bool float_parse(const char *s, size_t n, double *out); /* false unless all n bytes are a number */

/* ---- attribute.c */
int val_attr(struct render_state *r, struct val obj, struct val name,
             struct val *out); /* obj.name */
int val_item(struct render_state *r, struct val obj, struct val key,
             struct val *out); /* obj[key] */
/* Follows a path such as 'a.b.0'.  `other` (V_MISSING or none: nothing) replaces every undefined part. */
int val_path(struct render_state *r, struct val obj, struct val path, struct val other,
             struct val *out);
/* Sets a member of a dictionary under construction or of a namespace. */
int member_set(struct render_state *r, struct val box, struct val key, struct val v);
int val_slice(struct render_state *r, struct val v, const struct val part[3], struct val *out);

/* ---- operator.c */
enum op { OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD, OP_POW, OP_CONCAT };
int val_binary(struct render_state *r, enum op op, struct val a, struct val b, struct val *out);
int val_negate(struct val a, struct val *out);

/* ---- builtin.c, call.c */
const struct fn_row *builtin_find(enum fn_kind kind, const struct str *name);
/* True if Jinja or Python has a builtin of that name that kvik refuses. */
bool builtin_refused(enum fn_kind kind, const struct str *name);
/* Returns the error for a name that builtin_find does not find. */
int builtin_fail(enum fn_kind kind, const struct str *name);
const struct fn_row *method_find(struct val self, const struct str *name, bool *unsafe);
int fn_invoke(struct render_state *r, const struct fn_row *row, struct val self,
              const struct call_args *args, struct val *out);
int val_call(struct render_state *r, struct val f, const struct call_args *args, struct val *out);
int args_int(struct builtin_call *c, unsigned i, int64_t fallback, int64_t *out);
int args_str(struct builtin_call *c, unsigned i, struct val *out); /* must be a string */
bool args_truth(struct builtin_call *c, unsigned i, bool fallback);
bool args_has(struct builtin_call *c, unsigned i); /* given, and not none */

/* ---- letters.c */
bool chr_space(uint32_t c);
bool chr_printable(uint32_t c);
bool chr_line_end(uint32_t c);
enum str_case {
    CASE_UPPER,
    CASE_LOWER,
    CASE_TITLE,
    CASE_CAPITAL,
    CASE_SWAP,
    CASE_WORDS,
    CASE_NONE
};
int str_convert(struct render_state *r, struct val s, enum str_case how, struct val *out);
enum chr_class { IS_ALPHA, IS_DIGIT, IS_SPACE, IS_WORD };
bool chr_is(uint32_t c, enum chr_class k);

/* ---- format.c */
int format_percent(struct render_state *r, struct val f, struct val arg, struct val *out);

/* ---- eval.c, execute.c, for_loop.c, call.c */
int node_eval(struct render_state *r, const struct node *n, struct val *out);
int node_exec(struct render_state *r, const struct node *n);
enum flow { FLOW_NEXT = 0, FLOW_BREAK = 1, FLOW_CONTINUE = 2 };
int frame_push(struct render_state *r, struct scope *parent, struct scope **saved);
int frame_set(struct render_state *r, uint32_t sym, struct val v);
int node_assign(struct render_state *r, const struct node *target, struct val v);
int node_capture(struct render_state *r, const struct node *body,
                 struct val *out); /* flow, or error */
int loop_exec(struct render_state *r, const struct node *n);
int loop_attr(struct render_state *r, struct loop *l, const struct str *name, struct val *out,
              bool *found);
