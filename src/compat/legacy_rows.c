/* legacy_rows.c - return_legacy_cache: the sequences of a result as arrays.  Columns are those of Transformers:
 * all prompts end in the same column, and the generated tokens follow, except for the last one, which is not in
 * the cache.  Rows that ended earlier are masked behind their end.  A sequence can have more tokens than its row
 * of the result, after an append or if the text was cropped.  Then all sequences end in the last column. */
#include "compat/padded.h"
#include "generate/driver.h"

#include <string.h>

static int legacy_rows_check(const kvik_cache *c, const kvik_generation *g)
{
    kvik_legacy *l;
    if (!g->return_legacy_cache) return 0;
    if (!g->use_cache)
        return ERR(ARG,
                   "return_legacy_cache needs use_cache; without it there is no cache to return");
    /* checks that every layer has a legacy form */
    TRY(legacy_of((kvik_cache *)(uintptr_t)c, NULL, 0, NULL, 0, &l));
    kvik_legacy_free(l);
    return 0;
}

/* Returns the number of columns before the generated tokens. */
static size_t columns(const kvik_row *row, const kvik_prompt *p)
{
    return p && p->embeds ? p->n_embeds : row->n_prompt;
}

static void fill_mask(const kvik_row *row, const kvik_prompt *p, size_t longest, uint8_t *mask)
{
    for (size_t i = 0, n = columns(row, p); p && i < n; i++)
        mask[longest - n + i] = !p->attention_mask || p->attention_mask[i];
    /* tokens that the decoder itself begins with */
    if (!p) memset(mask + longest - row->n_prompt, 1, row->n_prompt);
    for (size_t i = row->n_prompt; i + 1 < row->n; i++)
        mask[longest + i - row->n_prompt] = 1;
}

static int legacy_rows(kvik_cache *c, const kvik_prompt *prompt, uint32_t n_prompts, kvik_result *r)
{
    size_t longest = 0, most = 1, per = r->n_rows / n_prompts;
    for (uint32_t i = 0; i < r->n_rows; i++) {
        longest = MAX(longest, columns(r->row[i], c->x->encode ? NULL : &prompt[i / per]));
        most = MAX(most, r->row[i]->n - r->row[i]->n_prompt);
    }
    size_t length = longest + most - 1;
    uint8_t *mask = mem_array(r->n_rows, length);
    kv_seq *seq = mem_array(r->n_rows, sizeof *seq);
    bool whole = true;
    int e = mask && seq ? 0 : ERR_NOMEM;
    for (uint32_t i = 0; e >= 0 && i < r->n_rows; i++) {
        seq[i] = r->row[i]->seq;
        fill_mask(r->row[i], c->x->encode ? NULL : &prompt[i / per], longest, mask + i * length);
        whole &= padded_ones(mask + i * length, (uint32_t)length) == kv_len(c->x->kv, seq[i]);
    }
    if (e >= 0)
        e = legacy_of(c, seq, r->n_rows, whole ? mask : NULL, (uint32_t)length,
                      &r->past_key_values);
    mem_free(mask);
    mem_free(seq);
    return e;
}

struct legacy_call {
    kvik_cache *c;
    const kvik_prompt *prompt;
    uint32_t n;
};

static int legacy_result(void *ctx, kvik_result *r)
{
    const struct legacy_call *l = ctx;
    return legacy_rows(l->c, l->prompt, l->n, r);
}

/* Drops the sequences that only the arrays needed. */
static void legacy_end(const struct legacy_call *l, kvik_result *r)
{
    uint32_t per = r->n_rows / l->n;
    for (uint32_t i = 0; i < r->n_rows; i++) {
        if (i % per)
            kv_drop(l->c->x->kv, r->row[i]->seq);
        else if (!l->prompt[i / per].seq) /* stays cached for the next call, as after generate */
            kv_keep(l->c->x->kv, r->row[i]->seq);
        r->row[i]->seq = 0;
    }
}

int legacy_generate(kvik_cache *c, const kvik_generation *g, const kvik_prompt *prompt, uint32_t n,
                    const kvik_hooks *hooks, kvik_result **out)
{
    struct legacy_call legacy = {c, prompt, n};
    const struct gen_finish finish = {legacy_result, &legacy};
    kvik_generation run = *g; /* a shallow copy, which borrows */
    run.return_dict_in_generate |= g->return_legacy_cache;
    TRY(legacy_rows_check(c, g));
    TRY(cache_generate(c, &run, prompt, n, hooks, g->return_legacy_cache ? &finish : NULL, out));
    if (g->return_legacy_cache && !g->return_dict_in_generate) legacy_end(&legacy, *out);
    return 0;
}
