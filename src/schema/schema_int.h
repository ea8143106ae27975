/* schema_int.h - the inside of a compiled schema.  A node is what a value may be: alternatives, each of one type.  A text is
 * followed by threads; a thread stands somewhere in a value, inside frames, the arrays and objects that are open. */
#pragma once
#include "schema/dfa.h"
#include "schema/schema.h"

#include <stdatomic.h>

enum basic_kind {
    BASIC_NULL,
    BASIC_FALSE,
    BASIC_TRUE,
    BASIC_NUMBER,
    BASIC_STRING,
    BASIC_ARRAY,
    BASIC_OBJECT
};
#define SCHEMA_MANY UINT32_MAX /* a maximum that no text reaches */
struct basic {
    enum basic_kind kind;
    bool live; /* some value is valid */
    /* owned: of a number's bytes, a string's characters, or an object's names, accepting 1 + class */
    struct dfa *dfa;
    bool any; /* BASIC_STRING: dfa has one state and accepts everything; min and max count */
    /* Characters of a string, if `any`; items of an array; names of an object. */
    uint32_t min, max;
    uint32_t count; /* beyond this, counting changes nothing */
    /* BASIC_ARRAY: the nodes of the first items, and NODE of the others. */
    uint32_t *prefix; /* owned */
    uint32_t n_prefix, items;
    /* BASIC_OBJECT: names [0, n_names) are declared and classes of their own; other classes follow. */
    uint32_t *value; /* owned, [n_class]: the nodes of their values */
    uint32_t n_names, n_class, n_required, words;
    uint64_t *required, *usable; /* owned, [words] */
    /* owned, [dfa->n_state][words]: declared names that can still come of a beginning */
    uint64_t *reach;
    uint8_t *open; /* owned, [dfa->n_state]: another name can come of it */
};
struct node {
    uint32_t first, n; /* in schema.basic */
    bool live;
};
struct schema {
    atomic_uint more;    /* holders but one */
    struct basic *basic; /* owned */
    struct node *node;   /* owned */
    uint32_t n_basic, cap_basic, n_node, cap_node;
    uint32_t root;
};
/* settle.c: finds what is alive and leaves out what is not; the last step of a compilation. */
int schema_settle(struct schema *s);

/* --- machine.c */
enum mode {
    MODE_VALUE,   /* a value of node `what` comes */
    MODE_LITERAL, /* within null, true or false; q: bytes so far */
    MODE_NUMBER,
    MODE_STRING,
    MODE_NAME,  /* within the name of a property of the frame */
    MODE_COLON, /* behind a name; what: the node of its value */
    MODE_FIRST, /* behind [ or { */
    MODE_NEXT,  /* behind a comma of an object */
    MODE_AFTER  /* behind a value */
};
enum stage {
    STAGE_CHAR,
    STAGE_UTF8,
    STAGE_ESCAPE,
    STAGE_HEX,
    STAGE_LOW_SLASH,
    STAGE_LOW_U,
    STAGE_LOW_HEX
};
struct thread {
    uint32_t frame;
    uint32_t what; /* a node or a basic */
    uint32_t q, count;
    uint32_t part; /* the part of a code point that was read */
    uint16_t high; /* STAGE_LOW_*: the first surrogate */
    uint8_t mode, stage, left, size, space;
    uint8_t tight; /* MODE_VALUE: behind a colon, where no line ends */
    uint32_t pad;  /* threads are compared and hashed as bytes */
};
struct frame {
    /* names that came, as bits; with more than 64 the index of the first word in machine.set */
    uint64_t seen;
    uint32_t parent, basic, count, depth;
};
#define SCRATCH    0x80000000u /* the bit of indexes that last as long as one walk */
#define DEPTH_MOST 512u
struct machine {
    const struct schema *s;
    struct frame *frame, *scratch; /* owned; frame[0] is the outside */
    uint64_t *set, *scratch_set;   /* owned: words of sets */
    uint32_t n_frame, cap_frame, n_scratch, cap_scratch;
    uint32_t n_set, cap_set, n_scratch_set, cap_scratch_set;
    struct thread *pool; /* owned */
    uint32_t n_pool, cap_pool;
    bool full;           /* something did not fit */
    uint32_t named;      /* the frame that `names` is of, one for good; 0: none */
    struct names *names; /* owned */
};
int machine_init(struct machine *m, const struct schema *s);
void machine_done(struct machine *m);
/* Appends to the pool what follows a thread on a byte. */
void machine_step(struct machine *m, const struct thread *t, uint8_t byte);
/* True if a text may end where the thread stands. */
bool machine_accepts(const struct machine *m, const struct thread *t);
static inline const struct frame *machine_frame(const struct machine *m, uint32_t i)
{
    return i & SCRATCH ? &m->scratch[i & ~SCRATCH] : &m->frame[i];
}
static inline const uint64_t *machine_set(const struct machine *m, const struct frame *f,
                                          uint32_t words)
{
    if (words <= 1) return &f->seen;
    return f->seen & SCRATCH ? &m->scratch_set[f->seen & ~(uint64_t)SCRATCH] : &m->set[f->seen];
}
/* lexicon.c */
struct lexeme {     /* a node of the trie, in the order of a depth-first walk */
    uint32_t skip;  /* the node behind its subtree */
    uint32_t first; /* of the tokens that end here, in lexicon.end */
    uint16_t depth; /* from 1 */
    uint8_t byte, ends;
};
struct trie_of_tokens {
    struct lexeme *node; /* owned, [n + 1] */
    int32_t *end;        /* owned: the tokens in the order of their bytes */
    uint32_t n;
};
#define PLAIN_MOST 64u
struct lexicon {
    uint32_t n_tokens, longest; /* longest: bytes */
    /* A token is plain if it is characters that stand for themselves in a string, PLAIN_MOST at most. */
    struct trie_of_tokens all, rest; /* rest: without plain tokens */
    uint32_t words;
    /* owned, [PLAIN_MOST][words]: plain tokens of at most k + 1 characters, as bits */
    uint64_t *plain;
    char *text;   /* owned: the bytes of all tokens */
    uint32_t *at; /* owned, [n_tokens + 1] */
};
