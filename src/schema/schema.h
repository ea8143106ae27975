/* schema.h - floor 1: JSON texts that a schema allows.  A schema is compiled to an automaton over bytes.  A matcher then
 * tells which tokens of a vocabulary may follow a text. */
#pragma once
#include "base/base.h"
#include "base/json.h"

/* A compiled schema, which no call changes, so threads may share it. */
struct schema;
/* Compiles a schema: an object, true, or the text "json_object", which means any object.  `what` names the source
 * in errors.  ERR_UNSUPPORTED: an unsupported keyword, named with its path.  ERR_FORMAT: the JSON is no schema.
 * ERR_LIMIT: the automaton would be too large. */
int schema_compile(const json_t *json, const char *what, struct schema **out);
int schema_compile_text(const char *text, const char *what, struct schema **out);
/* As schema_compile, for the text of a schema.  A text whose schema somebody holds, or that was used lately, is not
 * compiled again.  ERR_BUSY: those that are held have no memory for another one. */
int schema_of(const char *text, const char *what, struct schema **out);
/* Drops one holder of a schema; the last one frees it. */
void schema_drop(struct schema *s);

/* The bytes of a vocabulary as a trie; immutable. */
struct lexicon;
/* Sets *s and *n to the bytes of a token, which are valid until the next call.  n 0: the token adds nothing to a
 * text.  Returns 0 or an error. */
typedef int (*lexicon_bytes)(void *ctx, int32_t id, const char **s, size_t *n);
int lexicon_new(uint32_t n_tokens, lexicon_bytes bytes, void *ctx, struct lexicon **out);
void lexicon_drop(struct lexicon *l);
/* True if a token has bytes. */
bool lexicon_has(const struct lexicon *l, int32_t id);

/* Follows texts through a schema.  A matcher takes its memory when it is opened; no other call allocates. */
struct matcher;
int matcher_new(const struct schema *s, const struct lexicon *l, struct matcher **out);
void matcher_drop(struct matcher *m);
/* Returns the state of an empty text.  States are numbers from 1; 0 is the state of texts that cannot become a
 * valid value.  States are valid until matcher_age changes. */
uint32_t matcher_start(struct matcher *m);
uint32_t matcher_age(const struct matcher *m);
/* Finds the state after one more token.  *out is 0 if the schema does not allow the token.  ERR_LIMIT: the text
 * has more alternatives, or deeper nesting, than the matcher's memory holds. */
int matcher_token(struct matcher *m, uint32_t state, int32_t id, uint32_t *out);
int matcher_text(struct matcher *m, uint32_t state, const char *s, size_t n, uint32_t *out);
/* True if the text is a complete value. */
bool matcher_accepts(const struct matcher *m, uint32_t state);
/* Sets *bits to the tokens that may follow, as bits [n_tokens / 64 + 1].  They are valid until the next call. */
int matcher_mask(struct matcher *m, uint32_t state, const uint64_t **bits);
/* Finds the state after ids[0..n), beginning with an earlier text that these tokens continue. */
int matcher_find(struct matcher *m, const int32_t *ids, size_t n, uint32_t *out);
