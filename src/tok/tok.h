/* tok.h - floor 1: tokenizers: normalizer -> added tokens -> pre-tokenizer -> model -> post-processor, and the decoder,
 * from tokenizer.json or GGUF metadata.  Results equal Hugging Face tokenizers 0.23, which comments in this room
 * call the reference. */
#pragma once
#include "base/base.h"
#include "base/buf.h"

struct gguf;
struct tok; /* immutable after open; may be shared by threads */
struct ids {
    int32_t *id; /* owned; freed by ids_done */
    size_t n, cap;
};
void ids_done(struct ids *v);
int ids_push(struct ids *v, int32_t id);

/* Opens a directory with tokenizer.json (tokenizer_config.json, special_tokens_map.json,
 * chat_template.jinja, chat_template.json optional). */
int tok_open_dir(const char *dir, struct tok **out);
/* tok_open_dir and tok_open_gguf keep the tables that they build in the user's cache directory, and take them from
 * there the next time (compiled.c). */
int tok_open_gguf(const struct gguf *g, struct tok **out);
/* Opens the text of a tokenizer.json alone, for tests and fuzzing.  config: text of a tokenizer_config.json, or
 * NULL. */
int tok_open_json(const char *json, size_t n, const char *config, size_t n_config,
                  struct tok **out);
/* Opens tables that tok_compile has made, for tests and fuzzing.  data: at a multiple of 64; must live as long as
 * the tokenizer. */
int tok_open_compiled(const void *data, size_t n, struct tok **out);
void tok_close(struct tok *t);

enum {
    TOK_SPECIAL = 1, /* run the post-processor: add bos/eos as the tokenizer does by default */
    TOK_PLAIN = 2,   /* text of special tokens is ordinary text (split_special_tokens) */
};
struct tok_span {
    size_t from, to;
}; /* bytes */
/* Appends the ids of a text.  The text must be UTF-8, else ERR_FORMAT names the offset.  A special token whose
 * text touches one of the `plain` spans (ascending, disjoint) is read as plain text. */
int tok_encode(const struct tok *t, const char *text, size_t n, unsigned flags,
               const struct tok_span *plain, size_t n_plain, struct ids *out);
/* As tok_encode, and appends to *at for each id the byte of the text at which the id's text begins.  The places
 * ascend.  White space that an added token strips belongs to the token. */
struct tok_places {
    uint32_t *v; /* owned; freed by tok_places_done */
    size_t n, cap;
};
void tok_places_done(struct tok_places *p);
int tok_encode_placed(const struct tok *t, const char *text, size_t n, unsigned flags,
                      const struct tok_span *plain, size_t n_plain, struct ids *out,
                      struct tok_places *at);
/* As tok_encode, without plain spans.  For each id it also appends the byte behind the id's text to `end`, and the
 * number of the id's word to `word`.  Words are what the pre-tokenizer cuts; an added token is a word.  Ids of the
 * post-processor have TOK_NO_WORD.  Every end is the end of a character. */
#define TOK_NO_WORD UINT32_MAX
int tok_encode_words(const struct tok *t, const char *text, size_t n, unsigned flags,
                     struct ids *out, struct tok_places *at, struct tok_places *end,
                     struct tok_places *word);
/* The parts that tok_encode with TOK_SPECIAL makes of a text: its ids, and the tokens before and behind them; and
 * the same for two texts that a model reads as one.  Each text is encoded alone, without TOK_SPECIAL. */
#define TOK_FIRST  (-1)
#define TOK_SECOND (-2)
struct tok_part {
    int32_t id;    /* a token; TOK_FIRST or TOK_SECOND stand for the ids of a text */
    uint32_t type; /* the value of token_type_ids for this part */
};
/* Returns *n parts, which the tokenizer owns.  *n is 0 if a pair is wanted and the files describe none. */
const struct tok_part *tok_layout(const struct tok *t, bool pair, uint32_t *n);
/* Appends text.  As in the reference, an id that the tokenizer lacks has no text (models have spare rows), and bytes that
 * are not UTF-8 become U+FFFD.  A negative id is ERR_ARG. */
int tok_decode(const struct tok *t, const int32_t *id, size_t n, bool skip_special,
               struct buf *out);

/* Streaming decode.  Each call appends the text that is certain, in whole characters.  All pieces and the flush
 * together equal tok_decode of all ids. */
struct tok_stream;
int tok_stream_new(const struct tok *t, bool skip_special, struct tok_stream **out);
void tok_stream_drop(struct tok_stream *s);
/* Names special tokens whose text appears even if the stream skips special tokens.  The stream borrows id[n]. */
void tok_stream_show(struct tok_stream *s, const int32_t *id, size_t n);
/* Reserves memory for what a stream usually holds back, so that most tokens allocate nothing. */
int tok_stream_reserve(struct tok_stream *s);
/* Copies the state of `from` to `to`, a stream over the same tokenizer. */
int tok_stream_copy(struct tok_stream *to, const struct tok_stream *from);
int tok_stream_put(struct tok_stream *s, int32_t id, struct buf *piece); /* appends */
/* Flushes the stream, which can then be used again. */
int tok_stream_end(struct tok_stream *s, struct buf *piece);

/* Sets `out` to the bytes that a token adds to a text; they may be parts of characters.  A special token, and an
 * id that the tokenizer lacks, adds none.  ERR_UNSUPPORTED if the decoder has steps that look at several tokens. */
int tok_bytes(const struct tok *t, int32_t id, struct buf *out);
/* Returns a result that a higher floor computes once from the vocabulary; NULL before.  The tokenizer frees it.  If
 * several threads set it, the first wins: the call returns the result that is kept, and frees the other one. */
void *tok_side(const struct tok *t);
void *tok_set_side(const struct tok *t, void *side, void (*drop)(void *side));

uint32_t tok_size(const struct tok *t);                             /* ids are [0, size) */
int32_t tok_find(const struct tok *t, const char *piece, size_t n); /* id of a token text, or -1 */
const char *tok_piece(const struct tok *t, int32_t id, size_t *n); /* raw vocabulary text or NULL */
bool tok_is_special(const struct tok *t, int32_t id);
bool tok_is_added(const struct tok *t, int32_t id);
/* True if the id is in the model's own vocabulary. */
bool tok_is_model(const struct tok *t, int32_t id);
/* Bytes that a search for added tokens in a text of n bytes may compare.  Real added tokens have only short
 * beginnings in common with the texts around them. */
#define TOK_SCAN_MOST(n) ((uint64_t)(n)*16 + (1u << 20))
/* Return the number of added tokens, and the i-th of them in the order of their ids. */
uint32_t tok_n_added(const struct tok *t);
const char *tok_added(const struct tok *t, uint32_t i, size_t *n, int32_t *id, bool *special);
/* Return the id and the text of a named special token: "bos_token", "eos_token", "pad_token", "unk_token", ... -1 / NULL if none. */
int32_t tok_special_id(const struct tok *t, const char *name);
const char *tok_special_text(const struct tok *t, const char *name);
const char *tok_chat_template(const struct tok *t); /* source text or NULL */
/* Replaces the template.  No other call changes a tokenizer after it was opened, so no other thread may use it
 * during this one. */
int tok_set_chat_template(struct tok *t, const char *text);
const char *tok_kind(const struct tok *t); /* "BPE (byte-level)", "BPE (byte fallback)", ... */
