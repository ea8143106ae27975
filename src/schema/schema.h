/* schema.h - JSON texts that a schema allows: a schema is compiled to an automaton over bytes, and a matcher says which
 * tokens of a vocabulary may follow a text. */
#pragma once
#include "base/base.h"
#include "base/json.h"

/* A compiled schema, which no call changes, so threads may share it. */
struct schema;
/* Compiles a schema: an object, true, or the text "json_object", which means any object.  what names the source in errors.
 * ERR_UNSUPPORTED names a keyword that is not supported and its path; ERR_FORMAT a schema that is none; ERR_LIMIT a schema
 * that needs too large an automaton. */
int schema_compile(const json_t *json, const char *what, struct schema **out);
int schema_compile_text(const char *text, const char *what, struct schema **out);
/* The same, but a text that was compiled not long ago is not compiled again: the process keeps what it has used last. */
int schema_of(const char *text, const char *what, struct schema **out);
/* Gives a schema back; the last one frees it. */
void schema_drop(struct schema *s);

/* The bytes of a vocabulary as a trie; immutable. */
struct lexicon;
/* bytes: sets *s and *n to the bytes of a token, until the next call; n 0: the token has no place in a text.  Returns 0 or an
 * error. */
typedef int (*lexicon_bytes)(void *ctx, int32_t id, const char **s, size_t *n);
int lexicon_new(uint32_t n_tokens, lexicon_bytes bytes, void *ctx, struct lexicon **out);
void lexicon_drop(struct lexicon *l);
/* True if a token has bytes. */
bool lexicon_has(const struct lexicon *l, int32_t id);

/* Follows texts.  Its memory is taken when it is opened; no other call allocates. */
struct matcher;
int matcher_new(const struct schema *s, const struct lexicon *l, struct matcher **out);
void matcher_drop(struct matcher *m);
/* A state is a number from 1; 0 is that of a text that no value begins with.  States are valid until matcher_age changes. */
uint32_t matcher_start(struct matcher *m);
uint32_t matcher_age(const struct matcher *m);
/* The state behind a token.  *out is 0 if the schema does not allow the token there.  ERR_LIMIT: the text has more
 * alternatives or is nested deeper than the memory of the matcher allows. */
int matcher_token(struct matcher *m, uint32_t state, int32_t id, uint32_t *out);
int matcher_text(struct matcher *m, uint32_t state, const char *s, size_t n, uint32_t *out);
/* True if the text is a whole value. */
bool matcher_accepts(const struct matcher *m, uint32_t state);
/* The tokens that may follow, as bits [n_tokens / 64 + 1], valid until the next call. */
int matcher_mask(struct matcher *m, uint32_t state, const uint64_t **bits);
/* The state behind ids[0..n), found from an earlier text that these tokens continue. */
int matcher_find(struct matcher *m, const int32_t *ids, size_t n, uint32_t *out);
