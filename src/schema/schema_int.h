/* schema_int.h - the inside of a compiled schema.  A node stands for the values that are allowed at one place, as
 * alternatives, each of one type (a basic).  Threads follow a text: a thread stands at one place in a value,
 * inside frames, which are the open arrays and objects. */
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
#define SCHEMA_MANY UINT32_MAX /* a greatest number that no text reaches */
struct basic {
    enum basic_kind kind;
    bool live; /* at least one value is valid */
    /* owned: the automaton of a number's bytes, a string's characters or an object's names; it accepts with 1 +
     * class */
    struct dfa *dfa;
    bool any; /* BASIC_STRING: every text is allowed, so only min and max limit it */
    /* Least and greatest number: of characters of a string, if `any`; of items of an array; of names of an object. */
    uint32_t min, max;
    uint32_t count; /* threads count no further than this, because no limit is greater */
    /* BASIC_ARRAY: the nodes of the first n_prefix items; `items` is the node of all others. */
    uint32_t *prefix; /* owned */
    uint32_t n_prefix, items;
    /* BASIC_OBJECT: names [0, n_names) are declared, each a class of its own; the other classes follow. */
    uint32_t *value; /* owned, [n_class]: the nodes of their values */
    uint32_t n_names, n_class, n_required, words;
    uint64_t *required, *usable; /* owned, [words] */
    /* owned, [dfa->n_state][words]: declared names that can still be completed in this state */
    uint64_t *reach;
    /* owned, [dfa->n_state]: a name that is not declared can be completed in this state */
    uint8_t *open;
};
struct value_node {
    uint32_t first, n; /* in schema.basic */
    bool live;
};
struct schema {
    atomic_uint more; /* number of holders less one */
    /* For schemas that are found by their text (remembered.c): the text, owned; else NULL.  n_text: bytes of the text;
     * bytes: memory of the whole schema. */
    char *text;
    size_t n_text, bytes;
    struct schema *next;     /* in the list of those that are held */
    struct basic *basic;     /* owned */
    struct value_node *node; /* owned */
    uint32_t n_basic, cap_basic, n_node, cap_node;
    uint32_t root;
};
/* compile.c: frees a schema that nobody holds; NULL is allowed. */
void schema_free(struct schema *s);
/* remembered.c: replaces the limit of the bytes of all schemas that are held, for tests; returns the one before. */
size_t schema_limit(size_t bytes);
/* settle.c: finds the nodes that have values and removes the others.  This is the last step of a compilation.
 * ERR_UNSUPPORTED: basic *bad has more minProperties than are counted. */
int schema_settle(struct schema *s, uint32_t *bad);

/* --- machine.c */
enum mode {
    MODE_VALUE,   /* before a value of node `what` */
    MODE_LITERAL, /* inside null, true or false; q: bytes so far */
    MODE_NUMBER,
    MODE_STRING,
    MODE_NAME,  /* inside the name of a property of the frame */
    MODE_COLON, /* behind a name; what: node of its value */
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
    uint16_t high; /* STAGE_LOW_*: the first half of a surrogate pair */
    uint8_t mode, stage, left, size, space;
    uint8_t tight; /* MODE_VALUE: behind a colon, where no end of line is allowed */
    uint32_t pad;  /* threads are compared and hashed as bytes */
};
struct frame {
    /* names that the object has so far, as bits; with more than 64 names the index of the first word in
     * machine.set */
    uint64_t seen;
    uint32_t parent, basic, count, depth;
};
/* bit of indexes of scratch frames and sets, which are valid for one walk */
#define SCRATCH    0x80000000u
#define DEPTH_MOST 512u
struct machine {
    const struct schema *s;
    struct frame *frame, *scratch; /* owned; frame[0] is outside of the whole value */
    uint64_t *set, *scratch_set;   /* owned: words of sets */
    uint32_t n_frame, cap_frame, n_scratch, cap_scratch;
    uint32_t n_set, cap_set, n_scratch_set, cap_scratch_set;
    struct thread *pool; /* owned */
    uint32_t n_pool, cap_pool;
    bool full;              /* some memory was full, so a thread is missing */
    uint32_t named;         /* the stored frame that `names` belongs to; 0: none */
    struct name_set *names; /* owned */
};
int machine_init(struct machine *m, const struct schema *s);
void machine_done(struct machine *m);
/* Appends the threads that follow from a thread and a byte to the pool. */
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
    uint32_t first; /* index in lexicon.end of the tokens that end here */
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
    /* A plain token consists of at most PLAIN_MOST characters that stand for themselves in a string. */
    struct trie_of_tokens all, rest; /* rest: without plain tokens */
    uint32_t words;
    /* owned, [PLAIN_MOST][words]: plain tokens of at most k + 1 characters, as bits */
    uint64_t *plain;
    char *text;   /* owned: the bytes of all tokens */
    uint32_t *at; /* owned, [n_tokens + 1] */
};
