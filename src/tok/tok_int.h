/* tok_int.h - what the files of src/tok share.  One struct tok is built by a loader (tok_json.c or
 * tok_gguf.c) out of flat lists of normalizers, pre-tokenizers and decoders (nested sequences are
 * flattened), one model (BPE or Unigram), one vocabulary and two matchers of added tokens; after that it is
 * never written again, so threads may share it.  All scratch memory of a call lives in struct encode_scratch. */
#pragma once
#include "base/buf.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/user_cache.h"
#include "tok/tok.h"

/* Limits on untrusted input.  Real files: 262 144 ids, patterns of 2 KB, added tokens of 60 bytes. */
/* ids are below this bound, so a small file cannot ask for large tables */
#define TOK_MAX_ID      (1u << 22)
#define TOK_MAX_MERGES  (1u << 24)
#define TOK_MAX_STEPS   64u    /* normalizers, pre-tokenizers, decoders after flattening */
#define TOK_MAX_NEST    8u     /* sequences in sequences */
#define TOK_MAX_PATTERN 16384u /* bytes of one regular expression */
#define TOK_MAX_ADDED   1024u  /* bytes of one added token */
#define TOK_MAX_TEXT    ((size_t)1 << 30)
#define TOK_MAX_FILE    ((size_t)256 << 20)

/* --- vocabulary: id <-> text (vocab.c) */
enum { VOC_MODEL = 1, VOC_ADDED = 2, VOC_SPECIAL = 4, VOC_BYTE = 8, VOC_SHOWN = 16 };
struct voc_piece {
    size_t off, len; /* in blob */
    uint8_t flags;   /* VOC_*; 0: no such id */
    uint8_t byte;    /* value of a <0xNN> piece with VOC_BYTE */
};
struct vocab {
    char *blob;              /* owned */
    struct voc_piece *piece; /* owned, [size] */
    uint32_t *slot;          /* owned, [mask + 1]: id + 1, 0 empty */
    size_t blob_len, blob_cap;
    uint32_t size, cap, mask, used;
    uint32_t n_model;
    struct hash_key key;
};
void vocab_done(struct vocab *v);
/* Adds a text with an id.  ERR_FORMAT if either is taken, ERR_LIMIT for an id >= TOK_MAX_ID. */
int vocab_put(struct vocab *v, const char *s, size_t n, uint32_t id, unsigned flags);
int32_t vocab_find(const struct vocab *v, const char *s, size_t n);
/* Finds only texts of the model, not those of added tokens alone. */
int32_t vocab_find_model(const struct vocab *v, const char *s, size_t n);
static inline const char *vocab_text(const struct vocab *v, uint32_t id)
{
    return v->blob + v->piece[id].off;
}

/* --- regular expressions and literals (pattern.c) */
struct pattern;
struct hit {
    size_t from, to;
};
struct pattern_scratch { /* scratch of one thread, reused over patterns */
    void *data, *context;
    int64_t deadline; /* CPU nanoseconds of this thread; 0: the clock is stopped */
    int64_t spent;    /* nanoseconds of the budget that were used before the clock stopped */
    uint32_t found;   /* matches since the matcher was made */
};
int pattern_new(const char *s, size_t n, bool regex, struct pattern **out);
void pattern_drop(struct pattern *p);
void pattern_scratch_done(struct pattern_scratch *m);
void pattern_scratch_pause(struct pattern_scratch *m); /* stops the clock until the next search */
/* Iterates over the matches in s[0..n) as the reference does: an empty match never begins where the match before
 * it ends.  *at starts at 0.  Returns 1 for a match, 0 at the end, or an error (limits, time). */
struct hits {
    const struct pattern *p;
    const char *s; /* the text whose offsets are wanted */
    /* the same text with newer characters replaced by old ones of their class and length */
    const char *shadow;
    size_t n, at, last_end;
    bool any;
};
int hits_next(struct hits *h, struct pattern_scratch *m, struct hit *out);
const char *find_bytes(const char *s, size_t n, const char *lit, size_t n_lit);
/* Returns the literal of a pattern made with regex = false, or NULL. */
const char *pattern_literal(const struct pattern *p, size_t *n);

/* --- character classes (unicode.c) */
bool uni_is_space(uint32_t cp);   /* White_Space */
bool uni_is_word(uint32_t cp);    /* \w: Alphabetic, M, Nd, Pc, Join_Control */
bool uni_is_numeric(uint32_t cp); /* N */
bool uni_is_punct(uint32_t cp);   /* ASCII punctuation or P, by the reference's table */
size_t uni_lower(uint32_t cp, uint32_t out[2]);
/* Appends s to out, with an older stand-in for each character that is newer than Unicode 14.  *changed: whether
 * there was one. */
int uni_shadow(const char *s, size_t n, struct buf *out, bool *changed);
enum uni_form { UNI_NFC, UNI_NFD, UNI_NFKC, UNI_NFKD };
/* True if `before` and cp belong to one grapheme cluster.  *state is 0 at the beginning of a text and is passed
 * from call to call. */
bool uni_joins(uint32_t before, uint32_t cp, int32_t *state);
int uni_normalize(enum uni_form form, const char *s, size_t n, struct buf *out);

/* --- normalizers (normalize.c) */
enum norm_kind {
    NORM_FORM,
    NORM_PREPEND,
    NORM_REPLACE,
    NORM_LOWER,
    NORM_STRIP,
    NORM_BYTES,
    NORM_MAP
};
struct charsmap; /* charsmap.c: SentencePiece's table of replacements */
/* Copies the bytes of a map; ERR_FORMAT if they are too short or not UTF-8. */
int charsmap_new(const uint8_t *p, size_t n, struct charsmap **out);
int charsmap_new_base64(const char *s, size_t n, struct charsmap **out);
void charsmap_drop(struct charsmap *c);
/* Appends s, which is UTF-8, to out, with the map's replacements. */
int charsmap_apply(const struct charsmap *c, const char *s, size_t n, struct buf *out);
struct normalizer {
    enum norm_kind kind;
    enum uni_form form;
    bool left, right;        /* NORM_STRIP */
    struct pattern *pattern; /* owned: NORM_REPLACE */
    struct charsmap *map;    /* owned: NORM_MAP */
    char *text;              /* owned: the replacement, or the text to prepend */
    size_t n_text;
};

/* --- pre-tokenizers (pretokenize.c) */
enum pre_kind { PRE_SPLIT, PRE_BYTES, PRE_DIGITS, PRE_WORDS, PRE_SPACES, PRE_META, PRE_PUNCT };
enum pre_behavior { CUT_REMOVED, CUT_ISOLATED, CUT_PREVIOUS, CUT_NEXT, CUT_CONTIGUOUS };
enum pre_scheme { META_ALWAYS, META_NEVER, META_FIRST };
struct pre {
    enum pre_kind kind;
    enum pre_behavior behavior;
    enum pre_scheme scheme;  /* PRE_META */
    bool invert;             /* PRE_SPLIT */
    bool prefix_space;       /* PRE_BYTES */
    bool split;              /* PRE_META */
    bool individual;         /* PRE_DIGITS */
    struct pattern *pattern; /* owned: PRE_SPLIT, PRE_BYTES with use_regex */
    char meta[4];            /* PRE_META: the replacement character */
    size_t n_meta;
};

/* --- scratch of one encode call (tok_encode.c) */
struct text_part {
    size_t from, to; /* in work.text */
};
struct text_parts {
    struct text_part *v; /* owned */
    size_t n, cap;
};
struct sym;      /* bpe.c */
struct uni_step; /* unigram.c */
struct encode_scratch {
    struct buf text, next; /* the current text, and the one that the next step writes */
    struct buf shadow;
    struct text_parts parts, cut;
    struct pattern_scratch matcher;
    struct sym *sym;       /* owned, [n_sym] */
    void *heap;            /* owned, [n_heap] */
    struct uni_step *path; /* owned, [n_path]; unigram.c */
    size_t n_sym, n_heap, n_path;
    bool at_start;             /* work.text begins at offset 0 of the user's text */
    struct tok_places *placed; /* where each id begins in the user's text; NULL: not wanted */
    struct tok_places from, from_next; /* with placed: the places of the bytes of text and next */
    uint32_t section;                  /* with placed: the place where the current text begins */
    /* With placed: the end of each id's text, and its word.  Both NULL if not wanted. */
    struct tok_places *ends, *words;
    struct tok_places begun; /* with ends: where the ids of the current pre-token begin in text */
    uint32_t word;           /* number of the next word */
    const char *user;        /* the user's text */
    size_t n_user;
    /* Bytes that each normalizer and pre-tokenizer has made in this call, over all parts of the text; and the
     * limit of each. */
    size_t made[2 * TOK_MAX_STEPS], most;
};
/* Bytes that one step may make of a text of n bytes, over all its parts.  NFKC makes up to 11 bytes of one. */
#define WORK_MAX(n) ((size_t)(n)*32 + 65536)
void work_init(struct encode_scratch *w, size_t n); /* for a text of n bytes */
void work_done(struct encode_scratch *w);
int work_made(struct encode_scratch *w,
              uint32_t step); /* counts the bytes of w->text as made by that step */
/* How a step writes a new text: work_fresh, then bytes of the old text (work_keep) and new bytes (work_put), which
 * get the place of byte `at` of the old text, then work_swap (place.c). */
void work_fresh(struct encode_scratch *w);
int work_keep(struct encode_scratch *w, size_t from, size_t to);
int work_put(struct encode_scratch *w, const char *s, size_t n, size_t at);
void work_swap(struct encode_scratch *w);
/* Sets work.text.  from: the places of its bytes; NULL: at, at + 1, ... */
int work_load(struct encode_scratch *w, const char *s, size_t n, const uint32_t *from, size_t at);
/* Finds the places of work.next, which `make` has made of the whole text, one grapheme cluster at a time. */
struct normalizer;
int work_place_clusters(struct encode_scratch *w, const struct normalizer *m,
                        int (*make)(const struct normalizer *m, const char *s, size_t n,
                                    struct buf *out));
int work_id(struct encode_scratch *w, struct ids *out, int32_t id,
            size_t at); /* appends an id that begins at work.text[at] */
int work_place(struct encode_scratch *w, uint32_t at); /* appends the place of an id */
/* With ends: appends the end and the word of an id.  end: the byte behind its text in the user's text. */
int work_end(struct encode_scratch *w, uint32_t end, uint32_t word);
/* With ends: returns the end of the character of the user's text that contains byte `last`.  If a normalizer has
 * joined several characters, that is the first one, as in the reference. */
uint32_t work_end_of(const struct encode_scratch *w, uint32_t last);
/* With ends: appends the end and the word of each id of a pre-token, which reaches to `to` and is one word. */
int work_ends(struct encode_scratch *w, size_t to);
int parts_push(struct text_parts *p, size_t from, size_t to);
int normalize_run(const struct normalizer *v, uint32_t n, struct encode_scratch *w);
int pretokenize_run(const struct pre *v, uint32_t n, struct encode_scratch *w);
uint32_t byte_to_char(uint8_t b); /* GPT-2 writes every byte as one printable character */
int char_to_byte(uint32_t cp);    /* -1: the character stands for no byte */

/* --- the model (bpe.c) */
#define BPE_CHARS 0x180u
struct bpe_merge {
    uint64_t key; /* left << 32 | right; UINT64_MAX: empty */
    uint32_t rank, id;
};
struct bpe {
    struct bpe_merge *merge; /* owned, [mask + 1] */
    uint32_t mask, used;
    int32_t char_id[BPE_CHARS]; /* ids of one-character texts, -1 none */
    int32_t byte_id[256];       /* ids of <0xNN>, -1 none */
    /* owned, [edge_mask + 1], or NULL: pairs of characters that a merge can join (index_edges) */
    uint64_t *edge;
    uint32_t edge_mask;
    struct hash_key key; /* of both tables */
    int32_t unk;
    bool fuse_unk, byte_fallback, ignore_merges;
    char *prefix, *suffix; /* owned or NULL: continuing_subword_prefix, end_of_word_suffix */
    size_t n_prefix, n_suffix;
};
int bpe_init(struct bpe *b, uint32_t n_merges);
void bpe_done(struct bpe *b);
/* A later merge of the same pair replaces the earlier one, as in the reference. */
void bpe_merge_put(struct bpe *b, uint32_t left, uint32_t right, uint32_t rank, uint32_t id);
int bpe_index(struct bpe *b, struct vocab *v); /* call it when the vocabulary is complete */
int bpe_encode(const struct bpe *b, const struct vocab *v, struct encode_scratch *w, const char *s,
               size_t n, struct ids *out);

/* --- the Unigram model (unigram.c) */
#define UNI_MAX_PIECE 1024u      /* bytes of one piece; real ones have at most 100 */
#define UNI_MAX_NODES (1u << 24) /* real vocabularies have 2^20 */
struct uni_node {
    uint32_t first; /* index of the first child; children ascend by label */
    int32_t id;     /* id of the piece that ends here, or -1 */
    uint16_t n;     /* children */
    uint8_t label;
};
struct unigram {
    bool on; /* the tokenizer has this model */
    bool byte_fallback;
    double *score; /* owned, [cap]: by id */
    uint32_t cap, n_node;
    struct uni_node *node; /* owned, [n_node]: the pieces as a trie; node 0 is the root */
    double least;          /* the lowest score of a piece */
    int32_t unk;           /* -1: none */
    int32_t byte_id[256];  /* ids of <0xNN>, -1 none */
};
void unigram_done(struct unigram *u);
/* Sets the score of an id; a `normal` piece counts for the score of the unknown token. */
int unigram_put(struct unigram *u, uint32_t id, double score, bool normal);
/* Builds the trie of the pieces.  Call it when the vocabulary is complete. */
int unigram_index(struct unigram *u, const struct vocab *v);
int unigram_encode(const struct unigram *u, const struct vocab *v, struct encode_scratch *w,
                   const char *s, size_t n, struct ids *out);

/* --- added tokens (added.c) */
struct added {
    int32_t id;
    uint32_t order; /* place in the file: of two entries for one id the later one counts */
    bool single_word, lstrip, rstrip, normalized, special;
    /* owned; with VOC_SHOWN: the normalizer's form of the text, which decoding gives */
    char *shown;
    size_t n_shown;
};
struct trie {
    uint64_t *key;  /* owned: node << 8 | byte, UINT64_MAX empty */
    uint32_t *node; /* owned: child */
    uint32_t *what; /* owned, [n_node]: index into tok.added + 1, 0 none */
    uint32_t mask, used, n_node, cap_node;
    struct hash_key secret;
    bool first[256];
};
void trie_done(struct trie *t);
int trie_put(struct trie *t, const char *s, size_t n, uint32_t what);
/* A match: [from, to) includes the white space that the token strips.  As in the reference, the search continues
 * right behind the token itself, so the next match may begin inside white space that was stripped on the right. */
struct added_hit {
    size_t from, to;
    int32_t id;
};
struct added_scan {
    const struct tok *t;
    const struct trie *trie;
    const char *s;
    size_t n, at, done; /* next byte to look at; end of the last match */
    uint64_t *left;     /* bytes that all scans of one call may still compare */
    /* spans in offsets of s; a special token that touches one is no match */
    const struct tok_span *plain;
    size_t n_plain, i_plain;
    bool no_special;
};
/* Returns 1 for a match, 0 at the end, or ERR_LIMIT. */
int added_next(struct added_scan *c, struct added_hit *out);

/* --- decoders (detokenize.c) */
enum dec_kind {
    DEC_BYTES,
    DEC_FALLBACK,
    DEC_META,
    DEC_FUSE,
    DEC_STRIP,
    DEC_REPLACE,
    DEC_JOIN,
    DEC_SUFFIX
};
struct dec {
    enum dec_kind kind;
    struct pattern *pattern; /* owned: DEC_REPLACE */
    char *text;              /* owned: DEC_REPLACE content; DEC_SUFFIX the suffix */
    size_t n_text;
    char mark[4]; /* DEC_META, DEC_STRIP: one character */
    size_t n_mark;
    uint32_t start, stop; /* DEC_STRIP */
    bool prefix;          /* DEC_META: the first token's marks vanish */
};

/* --- the whole */
struct tok_list {
    const char *s; /* borrowed: JSON text */
    size_t n;      /* 0: absent */
};
/* --- layouts (tok_layout.c) */
struct layout {
    struct tok_part *part; /* owned: layout_done */
    uint32_t n;
};
void layout_done(struct layout *l);
/* Puts the tokens head and tail around each text; -1: none.  `second`: the type of the second text of a pair. */
int layout_frame(struct tok *t, int32_t head, int32_t tail, uint32_t second);
/* Reads a post-processor of tokenizer.json that adds tokens.  type: its name. */
int layout_load(struct tok *t, const char *type, const json_t *o);

struct named {
    char *name, *text; /* owned */
    int32_t id;        /* -1: not in the vocabulary */
};
struct tok {
    struct vocab vocab;
    struct bpe bpe;
    struct unigram uni;      /* instead of bpe, if uni.on */
    struct normalizer *norm; /* owned, as all below */
    struct pre *pre;
    struct dec *dec;
    struct added *added; /* ascending ids after tok_finish */
    struct trie raw, normal;
    /* layouts of one text and of a pair; a pair without parts cannot be laid out */
    struct layout one, two;
    struct named *named;
    char *chat_template;
    uint32_t next_added; /* while loading: behind the highest added id */
    uint32_t n_norm, n_pre, n_dec, n_added, n_named;
    char kind[64];
    /* The tables of vocab, bpe, uni, raw and normal are borrowed from `entry`, or from the caller of
     * compiled_take. */
    bool compiled;
    struct cache_entry entry;
    void *side; /* tok_set_side; owned */
    void (*drop_side)(void *side);
    struct tok_list rest; /* borrowed like the tables: tokenizer.json without its lists */
};
/* --- the long lists of tokenizer.json (tok_lists.c) */
#define TOK_JSON "tokenizer.json"
struct tok_lists {
    struct tok_list vocab, merges, added;
};
/* Finds the lists.  *rest: the file with null in place of each list. */
int tok_lists_find(const char *json, size_t n, struct tok_lists *out, struct buf *rest);
int tok_lists_vocab(struct tok *t, const struct tok_lists *l);
int tok_lists_merges(struct tok *t, const struct tok_lists *l);
int tok_lists_pieces(struct tok *t, const struct tok_lists *l); /* [[piece, score], ...] */
/* Calls `each` for every added token. */
int tok_lists_added(struct tok *t, const struct tok_lists *l,
                    int (*each)(struct tok *t, const json_t *o));
/* Sets up the model and the steps from the object of tokenizer.json without its lists (tok_json.c).  lists NULL:
 * the tokenizer has compiled tables. */
int tok_load_json(struct tok *t, const json_t *root, const struct tok_lists *lists);

/* --- compiled vocabularies (compiled.c) */
struct tok_source { /* the file that the lists are read from */
    struct cache_sources of;
    struct cache_key key;
    int64_t begun;
};
typedef int (*tok_put)(void *ctx, const void *data, size_t n);
/* Writes the tables of a finished tokenizer, and the rest of its file, through `put`, piece by piece. */
int tok_compile(const struct tok *t, const char *rest, size_t n_rest, tok_put put, void *ctx);
/* Checks a compiled vocabulary and lets a new tokenizer borrow its tables.  data: at a multiple of 64. */
int compiled_take(struct tok *t, const void *data, size_t n);
void compiled_drop(struct tok *t); /* call it before the tables are freed */
/* stamp: that of the file, taken before the file was read. */
void compiled_source(const char *path, const struct stamp *stamp, struct tok_source *out);
/* Takes the tables of an earlier run from the user's cache directory.  Returns 1, or 0 if there are none. */
int compiled_find(struct tok *t, const struct tok_source *s);
/* Keeps the tables for later runs if the user has a cache directory.  The caller knows that the file has not
 * changed since it was read. */
void compiled_keep(const struct tok *t, const struct tok_source *s, const char *rest,
                   size_t n_rest);

/* The GPT-2 pattern, which ByteLevel implies. */
#define TOK_GPT2                                                                                   \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
struct tok *tok_new(void);
/* Returns the text of an id when decoded: its vocabulary text or, for a normalized added token, the normalizer's
 * form.  *special: as the reference decides, whether that form is a special token. */
const char *tok_shown(const struct tok *t, int32_t id, size_t *n, bool *special);
int added_by_id(const void *a, const void *b); /* the order of tok.added */

/* --- making the object: steps, tokens, merges, then tok_finish (tok_build.c) */
int tok_add_norm(struct tok *t, struct normalizer **out);
int tok_add_pre(struct tok *t, struct pre **out);
int tok_add_dec(struct tok *t, struct dec **out);
int tok_add_token(struct tok *t, const char *s, size_t n, struct added a); /* a.id is filled in */
int tok_add_replace(struct tok *t, const char *from, const char *to);      /* a literal decoder */
int tok_add_named(struct tok *t, const char *name, const char *text, size_t n);
int tok_clean_up(struct tok *t); /* decoder steps of clean_up_tokenization_spaces */
int tok_add_merge(struct tok *t, const char *l, size_t n_l, const char *r, size_t n_r,
                  uint32_t rank);
void tok_resolve_named(struct tok *t); /* ids of the named tokens */
/* Builds the matchers and indexes, unless they are compiled, and checks the invariants; the last step of both loaders. */
int tok_finish(struct tok *t);
