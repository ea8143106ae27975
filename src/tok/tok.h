/* tok.h - tokenizers: normalizer -> added tokens -> pre-tokenizer -> model -> post-processor, and
 * the decoder, from tokenizer.json or GGUF metadata.  Results equal Hugging Face tokenizers 0.23. */
#pragma once
#include "base/base.h"
#include "base/buf.h"

struct gguf;
struct tok; /* immutable after open; may be shared by threads */
struct ids {
    int32_t *id; /* owned: ids_done */
    size_t n, cap;
};
void ids_done(struct ids *v);
int ids_push(struct ids *v, int32_t id);

/* A directory with tokenizer.json (tokenizer_config.json, special_tokens_map.json,
 * chat_template.jinja, chat_template.json optional). */
int tok_open_dir(const char *dir, struct tok **out);
/* Both keep what they build in the user's cache directory, and take it from there the next time (compiled.c). */
int tok_open_gguf(const struct gguf *g, struct tok **out);
/* tokenizer.json text alone (tests, fuzzing); config may be NULL (tokenizer_config.json text). */
int tok_open_json(const char *json, size_t n, const char *config, size_t n_config,
                  struct tok **out);
/* What tok_compile has made of a tokenizer.json (tests, fuzzing).  data: at a multiple of 64, as long as the tokenizer. */
int tok_open_compiled(const void *data, size_t n, struct tok **out);
void tok_close(struct tok *t);

enum {
    TOK_SPECIAL = 1, /* run the post-processor: add bos/eos as the tokenizer does by default */
    TOK_PLAIN = 2,   /* text of special tokens is ordinary text (split_special_tokens) */
};
struct tok_span {
    size_t from, to;
}; /* bytes */
/* Appends ids.  Text must be UTF-8 (ERR_FORMAT with the offset otherwise).  Within `plain` spans
 * (ascending, disjoint) no special token is recognised, not even one that only overlaps a span. */
int tok_encode(const struct tok *t, const char *text, size_t n, unsigned flags,
               const struct tok_span *plain, size_t n_plain, struct ids *out);
/* Does the same, and appends to *at for each id the byte of the text at which its text begins.  The places ascend, and an
 * added token takes the white space around it that it strips. */
struct tok_places {
    uint32_t *v; /* owned: tok_places_done */
    size_t n, cap;
};
void tok_places_done(struct tok_places *p);
int tok_encode_placed(const struct tok *t, const char *text, size_t n, unsigned flags,
                      const struct tok_span *plain, size_t n_plain, struct ids *out,
                      struct tok_places *at);
/* Does the same without plain spans, and appends to end and word for each id the byte behind its text and the number of
 * its word, as the pre-tokenizer cuts; an added token is a word.  Ids of the post-processor have TOK_NO_WORD.  Ends are
 * ends of characters. */
#define TOK_NO_WORD UINT32_MAX
int tok_encode_words(const struct tok *t, const char *text, size_t n, unsigned flags,
                     struct ids *out, struct tok_places *at, struct tok_places *end,
                     struct tok_places *word);
/* What tok_encode with TOK_SPECIAL makes of a text, and what belongs around and between two texts that a model reads as one.
 * Each text is encoded alone, without TOK_SPECIAL. */
#define TOK_FIRST  (-1)
#define TOK_SECOND (-2)
struct tok_part {
    int32_t id;    /* a token, or TOK_FIRST or TOK_SECOND: the ids of a text */
    uint32_t type; /* what token_type_ids says of the part */
};
/* Returns *n parts, which the tokenizer owns.  *n is 0 if its files have no place for a second text. */
const struct tok_part *tok_layout(const struct tok *t, bool pair, uint32_t *n);
/* Appends text.  As in the reference, an id that the tokenizer lacks has no text (models have spare rows), and bytes that
 * are not UTF-8 become U+FFFD.  A negative id is ERR_ARG. */
int tok_decode(const struct tok *t, const int32_t *id, size_t n, bool skip_special,
               struct buf *out);

/* Streaming decode: text of ids fed so far, complete characters only; the concatenation of all
 * pieces plus the flush equals tok_decode of all ids. */
struct tok_stream;
int tok_stream_new(const struct tok *t, bool skip_special, struct tok_stream **out);
void tok_stream_drop(struct tok_stream *s);
/* Names special tokens that have a text although the stream skips special ones.  id[n] is borrowed. */
void tok_stream_show(struct tok_stream *s, const int32_t *id, size_t n);
/* Reserves memory for what a stream usually holds back, so that most tokens allocate nothing. */
int tok_stream_reserve(struct tok_stream *s);
/* `to`, a stream over the same tokenizer, goes on where `from` is. */
int tok_stream_copy(struct tok_stream *to, const struct tok_stream *from);
int tok_stream_put(struct tok_stream *s, int32_t id, struct buf *piece); /* appends */
int tok_stream_end(struct tok_stream *s, struct buf *piece);             /* flush; then reusable */

/* Sets `out` to the bytes that a token adds to a text, which need not be whole characters.  None: a special token, or an id
 * that the tokenizer lacks.  ERR_UNSUPPORTED: the decoder has steps that look at several tokens. */
int tok_bytes(const struct tok *t, int32_t id, struct buf *out);
/* What a higher floor computes from the vocabulary once, NULL before.  It is dropped with the tokenizer.  Of several threads
 * that set it the first wins: the result is what is kept, and the others' is dropped. */
void *tok_side(const struct tok *t);
void *tok_set_side(const struct tok *t, void *side, void (*drop)(void *side));

uint32_t tok_size(const struct tok *t);                             /* ids are [0, size) */
int32_t tok_find(const struct tok *t, const char *piece, size_t n); /* id of a token text, or -1 */
const char *tok_piece(const struct tok *t, int32_t id, size_t *n); /* raw vocabulary text or NULL */
bool tok_is_special(const struct tok *t, int32_t id);
bool tok_is_added(const struct tok *t, int32_t id);
bool tok_is_model(const struct tok *t, int32_t id); /* of the model's own vocabulary */
/* Bytes that a search for added tokens in a text of n bytes may compare.  Real added tokens have few bytes in common with
 * the texts around them. */
#define TOK_SCAN_MOST(n) ((uint64_t)(n)*16 + (1u << 20))
/* Added tokens in the order of their ids: index [0, tok_n_added). */
uint32_t tok_n_added(const struct tok *t);
const char *tok_added(const struct tok *t, uint32_t i, size_t *n, int32_t *id, bool *special);
/* Named special tokens: "bos_token", "eos_token", "pad_token", "unk_token", ... -1 / NULL if none. */
int32_t tok_special_id(const struct tok *t, const char *name);
const char *tok_special_text(const struct tok *t, const char *name);
const char *tok_chat_template(const struct tok *t); /* source text or NULL */
/* Replaces the template.  The only change to a tokenizer after open: no other thread may use it meanwhile. */
int tok_set_chat_template(struct tok *t, const char *text);
const char *tok_kind(const struct tok *t); /* "BPE (byte-level)", "BPE (byte fallback)", ... */
