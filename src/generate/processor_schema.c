/* processor_schema.c - json_schema: allows only tokens that can continue a text to a valid value, and the end of
 * sequence only behind a complete value.  This processor runs after all processors that could allow a token again,
 * and before the filters of sampling. */
#include "base/buf.h"
#include "generate/chain.h"
#include "schema/schema.h"
#include "tok/tok.h"

#include <math.h>

struct gen_schema {
    struct schema *schema;
    struct matcher *matcher;
};

static bool wanted_schema(const kvik_generation *g)
{
    return g->json_schema != NULL;
}

static void release_schema(struct gen_schema *s)
{
    matcher_drop(s->matcher);
    schema_drop(s->schema);
    mem_free(s);
}

struct token_reader {
    const struct tok *tok;
    struct buf bytes;
};

static int token_bytes(void *ctx, int32_t id, const char **s, size_t *n)
{
    struct token_reader *r = ctx;
    *n = 0;
    /* the text of an added token such as "<tool_call>" stands for the token, not for its bytes */
    if (tok_is_added(r->tok, id)) return 0;
    TRY(tok_bytes(r->tok, id, &r->bytes));
    *s = r->bytes.data ? r->bytes.data : "";
    *n = r->bytes.len;
    return 0;
}

static void drop_lexicon(void *l)
{
    lexicon_drop(l);
}

int gen_lexicon(const struct tok *tok, const struct lexicon **out)
{
    struct lexicon *l = tok_side(tok);
    struct token_reader r = {.tok = tok};
    int e = 0;
    if (!l) {
        buf_init(&r.bytes, (size_t)1 << 24);
        e = lexicon_new(tok_size(tok), token_bytes, &r, &l);
        buf_done(&r.bytes);
        if (e >= 0) l = tok_set_side(tok, l, drop_lexicon);
    }
    *out = l;
    return e < 0 ? err_prefix(e, "json_schema") : 0;
}

int gen_schema_hold(const char *text, const struct tok *tok, struct schema **out)
{
    const struct lexicon *l;
    if (tok) TRY(gen_lexicon(tok, &l));
    return schema_of(text, "json_schema", out);
}

void gen_schema_drop(struct schema *s)
{
    schema_drop(s);
}

static int open_schema(struct gen_chain *c)
{
    const struct lexicon *l;
    if (!c->tok)
        return ERR(ARG, "json_schema needs the tokenizer of a model, and there is none here");
    if (!c->g.n_eos)
        return ERR(ARG, "json_schema needs an end-of-sequence token, and eos_token_id is empty");
    TRY(gen_lexicon(c->tok, &l));
    struct gen_schema *s = mem_alloc(sizeof *s);
    if (!s) return ERR_NOMEM;
    c->schema = s;
    c->drop_schema = release_schema;
    TRY(schema_of(c->g.json_schema, "json_schema", &s->schema));
    return matcher_new(s->schema, l, &s->matcher);
}

static int mask(const struct gen_chain *c, const struct gen_row *row, float *scores)
{
    struct matcher *m = c->schema->matcher;
    const uint64_t *bits;
    uint32_t state, words = tok_size(c->tok) / 64 + 1;
    float end[KVIK_MAX_EOS];
    bool left = false;
    TRY(matcher_find(m, row->ids + row->n_prompt, row->n - row->n_prompt, &state));
    TRY(matcher_mask(m, state, &bits));
    bool whole = matcher_accepts(m, state);
    for (uint32_t i = 0; i < c->g.n_eos; i++)
        if ((uint32_t)c->g.eos_token_id[i] < c->vocab) end[i] = scores[c->g.eos_token_id[i]];
    for (uint32_t i = 0; i < c->vocab; i++)
        if (i / 64 >= words || !(bits[i / 64] >> (i % 64) & 1)) scores[i] = -INFINITY;
    for (uint32_t i = 0; i < c->g.n_eos; i++)
        if ((uint32_t)c->g.eos_token_id[i] < c->vocab)
            scores[c->g.eos_token_id[i]] = whole ? end[i] : -INFINITY;
    for (uint32_t i = 0; i < c->vocab && !left; i++)
        left = scores[i] > -INFINITY;
    /* with beams, a beam that no token may continue ends by its score */
    if (left || c->g.num_beams > 1) return 0;
    if (!state)
        return ERR(ARG,
                   "json_schema: the new tokens of the text are no beginning of a valid value");
    return ERR(
        ARG,
        "json_schema: no token is left at new token %zu; other options forbid those that the schema "
        "allows, or the vocabulary lacks them",
        row->n - row->n_prompt);
}

static void apply_schema(struct gen_chain *c, const struct gen_row *row, float *scores)
{
    int e = mask(c, row, scores);
    if (e < 0) c->error = e;
}

GEN_PROCESSOR(jsonschema, 1850, false, wanted_schema, apply_schema, .open = open_schema);
