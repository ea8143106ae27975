/* run.c - sets up the rows of a run from prompts, and frees them; see run.h.  A sequence that the caller hands in
 * is forked first (by reference), so that a failure gives it back unchanged.  Memory for steps is allocated here,
 * before the first step. */
#include "generate/run.h"
#include "generate/guidance.h"
#include "generate/prompts.h"

#include <assert.h>
#include <string.h>

/* Finds the number of new tokens: max_new_tokens; or max_length less the longest prompt; or KVIK_NEW_TOKENS within
 * the context. */
static int new_tokens(const struct run *r, uint32_t *out)
{
    size_t longest = 0;
    for (uint32_t i = 0; i < r->n; i++)
        longest = MAX(longest, run_columns(r->row[i].prompt));
    if (r->g->max_new_tokens) {
        *out = r->g->max_new_tokens;
        return 0;
    }
    size_t max = r->g->max_length;
    if (!max) max = MIN(longest + KVIK_NEW_TOKENS, (size_t)r->x->m->context);
    if (longest >= max)
        return ERR(
            ARG,
            "the prompt has %zu token%s and max_length is %zu: nothing can be generated; raise "
            "max_length or set max_new_tokens",
            longest, longest == 1 ? "" : "s", max);
    *out = (uint32_t)(max - longest);
    return 0;
}

/* Prepares stop strings.  As in Transformers, a stop string may begin in the prompt but must end in the generated
 * text. */
static int stop_begin(struct run *r, struct row *w)
{
    TRY(gen_stop_new(r->g->stop_strings, r->g->n_stop_strings, &w->stop));
    if (!w->stop) return 0;
    struct buf text;
    buf_init(&text, (size_t)1 << 30);
    int e = tok_decode(r->tok, w->ids, w->n_prompt, true, &text);
    size_t at = 0;
    while (e >= 0 && at < text.len && gen_stop_put(w->stop, text.data + at, text.len - at, &at))
        ;
    w->stop_seen = text.len;
    buf_done(&text);
    return e;
}

/* Checks a prompt of embeddings.  The run must feed the prompt once, and no choice may look at the ids of the
 * prompt. */
static int check_embeds(const struct run *r, const kvik_prompt *p, uint32_t i)
{
    if (!p->embeds && !p->n_embeds) return 0;
    if (r->x->encode)
        return ERR(UNSUPPORTED, "row %u: embeddings for a model with an encoder; give ids", i);
    if (!p->embeds || !p->n_embeds || (p->n && !p->ids))
        return ERR(ARG, "row %u: the prompt has no embeddings, or no ids beside them", i);
    if (p->seq || p->append)
        return ERR(
            UNSUPPORTED,
            "row %u: embeddings begin a text and cannot continue a sequence; append them with "
            "a forward, and generate from the id of the next token",
            i);
    if (!r->mode->embeds || r->g->guidance_scale != 1)
        return ERR(
            UNSUPPORTED,
            "row %u: a prompt of embeddings is for greedy decoding and sampling; beams, contrastive "
            "search, draft tokens and guidance need the ids of the prompt",
            i);
    if (!r->g->use_cache)
        return ERR(UNSUPPORTED, "row %u: a prompt of embeddings needs use_cache", i);
    return 0;
}

/* Checks the last tokens of a prompt that an earlier run has chosen (n_new). */
static int check_new(const struct run *r, const kvik_prompt *p, uint32_t i)
{
    bool hidden = false, ends = false;
    if (!p->n_new) return 0;
    if (!p->ids) return ERR(ARG, "row %u: n_new is %zu and there are no ids", i, p->n_new);
    if (!r->mode->by_logits || r->g->guidance_scale != 1 || p->embeds || p->append)
        return ERR(UNSUPPORTED,
                   "row %u: n_new is for greedy decoding and sampling of a whole text of ids, "
                   "without guidance",
                   i);
    if (p->n_new >= p->n)
        return ERR(ARG, "row %u: n_new is %zu and there are %zu ids; the prompt needs one at least",
                   i, p->n_new, p->n);
    for (size_t k = p->n - p->n_new; k < p->n; k++) {
        hidden |= p->attention_mask && !p->attention_mask[k];
        ends |= run_ends(r->g, p->ids[k]);
    }
    if (ends)
        return ERR(
            ARG,
            "row %u: the new tokens have an end-of-sequence token: the text is complete, leave "
            "it out",
            i);
    return hidden ? ERR(ARG, "row %u: the attention mask hides one of the new tokens", i) : 0;
}

/* Points the row to the embeddings that the mask leaves. */
static int take_embeds(struct run *r, struct row *w, uint32_t index)
{
    const kvik_prompt *p = w->prompt;
    size_t hidden = r->x->m->hidden, n = 0, size;
    if (p->n_embeds > INT32_MAX)
        return ERR(LIMIT, "row %u: %zu embeddings, the limit is %d", index, p->n_embeds, INT32_MAX);
    for (size_t i = 0; p->attention_mask && i < p->n_embeds; i++)
        n += p->attention_mask[i] != 0;
    w->lead = (uint32_t)(p->attention_mask ? n : p->n_embeds);
    w->embeds = p->embeds;
    if (!w->lead) return ERR(ARG, "row %u: the attention mask hides every token", index);
    if (w->lead == p->n_embeds) return 0;
    if (!ck_mul(w->lead, hidden, &size))
        return ERR(NOMEM, "row %u: %u embeddings of %zu values exceed the address space", index,
                   w->lead, hidden);
    w->embeds = w->own_embeds = mem_array(size, sizeof *w->own_embeds);
    if (!w->own_embeds) return ERR_NOMEM;
    for (size_t i = 0, k = 0; i < p->n_embeds; i++)
        if (p->attention_mask[i])
            memcpy(w->own_embeds + k++ * hidden, p->embeds + i * hidden,
                   hidden * sizeof *w->own_embeds);
    return 0;
}

/* Copies the ids that the mask leaves, and checks all of them.  Feeding would check only those that are not cached:
 * a cached row without a token agrees with any id.  Beside embeddings, ids are only for processors. */
static int take_ids(const struct run *r, struct row *w, const uint8_t *mask, uint32_t index)
{
    const kvik_prompt *p = w->prompt;
    for (size_t i = 0, k = 0; i < p->n; i++) {
        if (mask && !mask[i]) continue;
        if (!p->embeds && (uint32_t)p->ids[i] >= r->x->m->vocab)
            return ERR(ARG, "row %u: token id %d is outside the vocabulary of %u", index, p->ids[i],
                       r->x->m->vocab);
        w->ids[k++] = p->ids[i];
    }
    return 0;
}

static int row_begin(struct run *r, struct row *w, uint32_t index, uint32_t limit)
{
    const kvik_prompt *p = w->prompt;
    uint32_t more = r->mode->unfed;
    /* if every embedding has an id, the mask of embeddings is that of the ids, too */
    const uint8_t *mask = !p->embeds || p->n == p->n_embeds ? p->attention_mask : NULL;
    if (p->embeds) TRY(take_embeds(r, w, index));
    if (!p->embeds && (p->n == 0 || !p->ids))
        return ERR(ARG, "row %u: the prompt has no tokens", index);
    size_t n_ids = mask ? 0 : p->n;
    for (size_t i = 0; mask && i < p->n; i++)
        n_ids += mask[i] != 0;
    size_t n = p->embeds ? w->lead : n_ids - p->n_new; /* KV rows of the prompt */
    if (n == 0) return ERR(ARG, "row %u: the attention mask hides every token", index);
    while (p->attention_mask && !p->attention_mask[w->pad])
        w->pad++;
    uint32_t max_len = r->x->max_len;
    if (n > max_len - (1 - more))
        return ERR(
            LIMIT,
            "row %u: the prompt has %zu tokens, more than the %u the cache holds (the model's context is %u)",
            index, n, max_len - (1 - more), r->x->m->context);
    if (r->x->reserve && n + limit - more > max_len)
        return ERR(
            FULL,
            "row %u: %zu prompt tokens and %u new ones need a static cache of %zu tokens, and max_cache_len is %u; "
            "raise max_cache_len, or lower max_new_tokens",
            index, n, limit, n + limit - more, max_len);
    w->limit = (uint32_t)MIN((size_t)limit, max_len - n + more);
    w->cut =
        w->limit < limit || (!r->g->max_new_tokens && !r->g->max_length && limit < KVIK_NEW_TOKENS);
    if (n_ids > INT32_MAX)
        return ERR(LIMIT, "row %u: %zu ids, the limit is %d", index, n_ids, INT32_MAX);
    if (p->n_new && p->n_new >= w->limit)
        return ERR(ARG,
                   "row %u: %zu of the tokens are new and the limit is %u: nothing is left to "
                   "generate",
                   index, p->n_new, w->limit);
    w->n = (uint32_t)n_ids;
    w->n_prompt = (uint32_t)(n_ids - p->n_new);
    w->ids = mem_array(n_ids + w->limit, sizeof *w->ids);
    if (!w->ids) return ERR_NOMEM;
    TRY(take_ids(r, w, mask, index));
    if (!r->g->use_cache) {
        if (w->given)
            return ERR(ARG, "row %u: a sequence cannot be continued with use_cache false", index);
        w->ends = mem_array(n + w->limit, sizeof *w->ends);
        if (!w->ends) return ERR_NOMEM;
        for (uint32_t i = 0; i < w->n_prompt + w->limit; i++)
            w->ends[i] = MAX(i, w->n_prompt - 1);
    }
    size_t room = 256 + 8 * (size_t)w->limit;
    buf_init(&w->text, (size_t)1 << 30);
    if (r->tok) {
        TRY(run_stream(r, &w->stream));
        w->text.data = mem_alloc(room); /* all memory now: decoding allocates nothing */
        if (!w->text.data) return ERR_NOMEM;
        w->text.cap = room;
    } else if (r->g->n_stop_strings) {
        return ERR(ARG, "stop_strings need a tokenizer, and the model has none");
    }
    TRY(stop_begin(r, w));
    return run_replay(r, w);
}

/* Lets a new row reuse the cached prefix of its prompt. */
static int match(struct run *r, struct row *w)
{
    TRY(exec_new(r->x, &r->salt, &w->seq));
    if (w->source) TRY(exec_encode(r->x, w->seq, &w->source->in));
    if (w->lead) {
        w->miss = "the prompt is embeddings, and the prefix index knows only ids";
        return 0;
    }
    /* the tokens of n_new are turns of their own, so where rows depend on turns only the tokens before them can match */
    uint32_t n = kv_by_turns(r->x->kv) ? w->n_prompt : w->n;
    TRY(exec_match(r->x, w->seq, w->ids, n, w->pad, &w->have));
    w->reused = w->have;
    if (!w->have) w->miss = kv_miss_text(kv_match_reason(r->x->kv));
    return 0;
}

/* Lets a row that continues the caller's sequence reuse the tokens that the sequence shares with the prompt. */
static int sync(struct run *r, struct row *w)
{
    if (!w->given) return match(r, w);
    if (w->prompt->append && !gen_plain(r->g, r->assist != NULL))
        return ERR(UNSUPPORTED, "ids that are appended to a sequence need greedy decoding or "
                                "sampling; give the whole text instead");
    if (w->source && w->source->given) {
        bool before = kv_cross(r->x->kv, w->given) > 0;
        TRY(exec_encode(r->x, w->given, &w->source->in));
        w->heard = !before;
    }
    struct sync_ids ids = {.id = w->ids,
                           .n = w->n,
                           .more = w->limit - (uint32_t)w->prompt->n_new,
                           .pad = w->pad,
                           .append = w->prompt->append};
    TRY(sync_begin(r->x, r->tok, w->given, &ids, &w->sync));
    w->seq = w->given;
    w->have = w->sync.have;
    w->reused = (uint32_t)w->sync.report->reused;
    if (w->prompt->n_new && w->sync.report->offset)
        return ERR(UNSUPPORTED,
                   "n_new needs the whole text of the sequence, and the ids are its end");
    uint64_t rows = w->n + (r->mode->anew ? 0 : w->sync.report->offset);
    if (rows > r->x->max_len)
        return ERR(
            LIMIT,
            "the sequence would have %llu tokens, max_cache_len is %u; trim it, or open the cache with more",
            (unsigned long long)rows, r->x->max_len);
    uint64_t left = r->x->max_len - rows + w->prompt->n_new + r->mode->unfed;
    w->cut |= left < w->limit;
    w->limit = (uint32_t)MIN((uint64_t)w->limit, left);
    return 0;
}

/* Refuses options that need what an encoder does not give. */
static int check_sources(const struct run *r)
{
    const kvik_generation *g = r->g;
    bool looks = g->encoder_repetition_penalty != 1 || g->encoder_no_repeat_ngram_size;
    if (g->guidance_scale != 1)
        return ERR(UNSUPPORTED,
                   "guidance_scale is for models without an encoder: what the encoder of the "
                   "negative text would be given is not defined");
    for (uint32_t i = 0; looks && i < r->n_prompts; i++)
        if (!r->source[i].columns)
            return ERR(ARG, "row %u: %s looks at the token ids of the encoder, and there are none",
                       i,
                       g->encoder_no_repeat_ngram_size ? "encoder_no_repeat_ngram_size"
                                                       : "encoder_repetition_penalty");
    return 0;
}

/* Sets the owner of the rows that the run computes. */
static int take_salt(struct run *r, const kvik_prompt *prompt)
{
    for (uint32_t i = 0; i < r->n_prompts; i++) {
        const char *salt = prompt[i].cache_salt ? prompt[i].cache_salt : "",
                   *first = prompt[0].cache_salt ? prompt[0].cache_salt : "";
        if (strcmp(salt, first) != 0)
            return ERR(ARG, "rows 0 and %u have different cache_salts; generate them in two calls",
                       i);
    }
    if (r->n_prompts) gen_owner(prompt[0].cache_salt, r->salt.owner);
    return 0;
}

int run_begin(struct run *r, const kvik_prompt *prompt)
{
    uint32_t limit, n_prompts = r->n_prompts;
    size_t vocab = r->x->m->vocab, logits;
    if (!ck_mul(vocab * sizeof(float), r->lanes, &logits))
        return ERR(NOMEM,
                   "%u rows of %zu logits exceed the address space; generate fewer rows in a call",
                   r->lanes, vocab);
    buf_init(&r->piece, (size_t)1 << 30);
    r->row = mem_array(r->n, sizeof *r->row);
    if (!r->row) return ERR_NOMEM;
    TRY(take_salt(r, prompt));
    TRY(sources_begin(r->x, r->g, prompt, n_prompts, &r->source));
    for (uint32_t i = 0; i < r->n; i++) {
        const struct gen_source *s = r->source ? &r->source[i / r->per] : NULL;
        r->row[i].source = s;
        r->row[i].prompt = s ? &s->text : &prompt[i / r->per];
        r->row[i].given = i % r->per ? 0 : prompt[i / r->per].seq;
    }
    for (uint32_t i = 0; i < n_prompts; i++) {
        TRY(check_embeds(r, &prompt[i], i));
        TRY(check_new(r, r->row[i * r->per].prompt, i));
    }
    for (uint32_t i = 0; i < n_prompts; i++)
        for (uint32_t j = 0; j < i; j++)
            if (prompt[i].seq && prompt[i].seq == prompt[j].seq)
                return ERR(ARG, "rows %u and %u are the same sequence; continue it once a call", j,
                           i);
    assert(r->n == n_prompts * r->per);
    r->logits = mem_aligned(logits);
    r->scores = mem_aligned(vocab * sizeof *r->scores);
    r->feed = mem_array(r->lanes, sizeof *r->feed);
    r->job.fed = mem_array(r->lanes, sizeof *r->job.fed);
    if (!r->logits || !r->scores || !r->feed || !r->job.fed) return ERR_NOMEM;
    TRY(gen_chain_new(r->g, (uint32_t)vocab, r->tok, &r->chain));
    gen_chain_hooks(r->chain, r->hooks);
    TRY(together_open(r->hooks, r->width, (uint32_t)vocab, &r->together));
    r->kept.wanted = r->g->output_logits;
    r->kept_scores.wanted = r->g->output_scores;
    if (r->source) TRY(check_sources(r));
    TRY(run_logprobs_begin(r));
    TRY(new_tokens(r, &limit));
    for (uint32_t i = 0; i < r->n; i++)
        TRY(row_begin(r, &r->row[i], i / r->per, limit));
    for (uint32_t i = 0; r->g->use_cache && i < r->n; i += r->per)
        TRY(sync(r, &r->row[i]));
    share_begin(r);
    return guide_begin(r);
}

void run_process_before(struct run *r, const struct gen_row *row, const float *uncond,
                        float *scores)
{
    if (uncond) guide_apply(r, uncond, scores);
    gen_chain_before(r->chain, row, scores);
}

int run_process(struct run *r, const struct gen_row *row, const float *uncond, float *scores)
{
    if (uncond) guide_apply(r, uncond, scores);
    return gen_chain_apply(r->chain, row, scores);
}

void run_end(struct run *r, bool failed)
{
    for (uint32_t i = 0; r->row && i < r->n; i++) {
        struct row *w = &r->row[i];
        bool mine = !w->given && w->seq && (failed || !w->handed);
        if (mine && !failed && r->g->use_cache && i % r->per == 0 && !w->lead)
            kv_keep(r->x->kv, w->seq);
        else if (mine)
            kv_drop(r->x->kv, w->seq);
        sync_end(r->x, &w->sync, failed);
        if (failed && w->heard) (void)kv_thaw(r->x->kv, w->given);
        /* the result gives the sequence to the caller */
        bool theirs = !failed && r->g->return_dict_in_generate;
        if (w->orphaned && !theirs) kv_drop(r->x->kv, w->given);
        if (w->stream) tok_stream_drop(w->stream);
        gen_stop_drop(w->stop);
        buf_done(&w->text);
        mem_free(w->ids);
        mem_free(w->own_embeds);
        mem_free(w->ends);
    }
    sources_end(r->source, r->n_prompts);
    r->source = NULL;
    guide_end(r);
    if (r->chain) gen_chain_drop(r->chain);
    together_close(r->together);
    r->together = NULL;
    buf_done(&r->piece);
    void *own[] = {r->row,     r->logits,    r->scores,           r->feed,
                   r->job.fed, r->kept.data, r->kept_scores.data, r->top};
    for (size_t i = 0; i < countof(own); i++)
        mem_free(own[i]);
    r->row = NULL;
    r->top = NULL;
    r->chain = NULL;
    r->logits = r->scores = r->kept.data = r->kept_scores.data = NULL;
    r->feed = NULL;
    r->job.fed = NULL;
}
