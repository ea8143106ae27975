/* sampler.c - chooses the next token from logits, with the processors and draws of kvik_generate, for programs
 * with a loop of their own.  A sampler has scratch memory but no state: its choice depends only on the arguments
 * of the call. */
#include "base/guard.h"
#include "base/refs.h"
#include "compat/compat_sizes.h"
#include "generate/generate.h"
#include "kvik_loop.h"

#include <string.h>

struct kvik_sampler {
    struct guard guard; /* guards only against other threads */
    struct refs refs;
    kvik_generation g; /* owned copy */
    kvik_hooks hooks;
    struct gen_chain *chain; /* owned */
    float *scores;           /* [vocab] owned */
    uint32_t vocab;
};

/* Refuses options that need more than the logits of one text. */
static int check_mode(const kvik_generation *g)
{
    if (g->num_beams > 1)
        return ERR(
            UNSUPPORTED,
            "num_beams=%u: kvik_sample chooses the next token of one text; use kvik_generate "
            "for a beam search",
            g->num_beams);
    if (gen_mode(g) == GEN_CONTRASTIVE)
        return ERR(
            UNSUPPORTED,
            "penalty_alpha=%g (contrastive search) computes every candidate; use kvik_generate",
            g->penalty_alpha);
    if (g->guidance_scale != 1)
        return ERR(UNSUPPORTED,
                   "guidance_scale=%g needs the logits after a negative prompt as well; use "
                   "kvik_generate, or mix the logits and set guidance_scale to 1",
                   g->guidance_scale);
    return 0;
}

static int open_sampler(struct kvik_sampler *s, const kvik_generation *g)
{
    kvik_generation full;
    TRY(generation_in(g, &full));
    TRY(gen_validate(&full));
    TRY(check_mode(&full));
    TRY(gen_copy(&full, &s->g));
    TRY(gen_chain_new(&s->g, s->vocab, NULL, &s->chain));
    gen_chain_hooks(s->chain, &s->hooks);
    s->scores = mem_aligned(s->vocab * sizeof *s->scores);
    return s->scores ? 0 : ERR_NOMEM;
}

KVIK_API int kvik_sampler_open(const kvik_generation *g, uint32_t vocab, const kvik_hooks *hooks,
                               kvik_sampler **out)
{
    if (!g || !out)
        return ERR(ARG,
                   "options and a pointer for the sampler are needed, and one of them is NULL");
    if (!vocab || vocab > INT32_MAX)
        return ERR(ARG, "a vocabulary of %u tokens: kvik_model_vocab gives that of a model", vocab);
    kvik_sampler *s = mem_alloc(sizeof *s);
    if (!s) return ERR_NOMEM;
    refs_init(&s->refs);
    s->vocab = vocab;
    int e = hooks_in(hooks, &s->hooks, &hooks);
    if (e >= 0) e = open_sampler(s, g);
    if (e < 0) {
        kvik_sampler_close(s);
        return e;
    }
    *out = s;
    return 0;
}

static void drop_sampler(kvik_sampler *s)
{
    if (!refs_drop(&s->refs)) return;
    gen_chain_drop(s->chain);
    gen_done(&s->g);
    mem_free(s->scores);
    mem_free(s);
}

KVIK_API void kvik_sampler_close(kvik_sampler *s)
{
    if (s && refs_close(&s->refs)) drop_sampler(s);
}

static int check_choice(const struct kvik_sampler *s, const kvik_choice *in)
{
    if (!in->logits || (!in->ids && in->n))
        return ERR(ARG, "kvik_choice: logits and the ids of the text are needed");
    if (in->n_prompt > in->n)
        return ERR(ARG, "kvik_choice: n_prompt is %zu, but the whole text has %zu tokens",
                   in->n_prompt, in->n);
    if (in->n - in->n_prompt > UINT32_MAX)
        return ERR(LIMIT, "kvik_choice: %zu new tokens, the limit is %u", in->n - in->n_prompt,
                   UINT32_MAX);
    for (size_t i = 0; i < in->n; i++)
        if ((uint32_t)in->ids[i] >= s->vocab)
            return ERR(ARG, "kvik_choice: token id %d at %zu is outside the vocabulary of %u",
                       in->ids[i], i, s->vocab);
    return 0;
}

/* Computes the greatest length of the text, as kvik_generate does if only the options limit it. */
static int longest_text(const kvik_generation *g, const kvik_choice *in, size_t *out)
{
    size_t prompt, more = g->max_new_tokens;
    if (!ck_add(in->n_prompt, in->masked, &prompt))
        return ERR(ARG,
                   "kvik_choice: %zu masked columns and a prompt of %zu tokens exceed %zu together",
                   in->masked, in->n_prompt, SIZE_MAX);
    if (!more && g->max_length) {
        if (prompt >= g->max_length)
            return ERR(ARG,
                       "the prompt has %zu token%s and max_length is %u: nothing can be generated; "
                       "raise max_length or set max_new_tokens",
                       prompt, prompt == 1 ? "" : "s", g->max_length);
        more = g->max_length - prompt;
    }
    *out = in->max_length ? in->max_length : in->n_prompt + (more ? more : KVIK_NEW_TOKENS);
    return 0;
}

static int choose_token(kvik_sampler *s, const kvik_choice *choice, int32_t *id)
{
    kvik_choice in = {0};
    struct gen_row row;
    size_t max_length;
    TRY(SIZED_IN(&in, choice, kvik_choice));
    TRY(check_choice(s, &in));
    TRY(longest_text(&s->g, &in, &max_length));
    memcpy(s->scores, in.logits, s->vocab * sizeof *s->scores);
    row = (struct gen_row){.ids = in.ids,
                           .n = in.n,
                           .n_prompt = in.n_prompt,
                           .row = in.row,
                           .pad = in.masked,
                           .max_length = max_length};
    gen_chain_keep(s->chain, (uint32_t)MIN(MAX(in.min_tokens_to_keep, 1u), s->vocab));
    TRY(gen_chain_apply(s->chain, &row, s->scores));
    if (in.scores) memcpy(in.scores, s->scores, s->vocab * sizeof *s->scores);
    uint32_t at = (uint32_t)(in.n - in.n_prompt);
    *id = s->g.do_sample ? gen_sample(s->chain, s->scores, s->g.seed, in.row, at)
                         : gen_argmax(s->scores, s->vocab);
    for (uint32_t i = 0; i < s->g.n_eos; i++)
        if (s->g.eos_token_id[i] == *id) return 1;
    return 0;
}

KVIK_API int kvik_sample(kvik_sampler *s, const kvik_choice *choice, int32_t *id)
{
    if (!s || !choice || !id)
        return ERR(
            ARG,
            "a sampler, a kvik_choice and a pointer for the token are needed, and one of them is NULL");
    TRY(refs_check(&s->refs, "sampler"));
    TRY(guard_enter(&s->guard, "sampler"));
    int e = s->guard.depth == 1
                ? 0
                : ERR(BUSY, "a logits processor cannot choose with the sampler that calls it");
    refs_take(&s->refs); /* a callback may close the sampler */
    if (e >= 0) e = choose_token(s, choice, id);
    guard_leave(&s->guard);
    drop_sampler(s);
    return e;
}
