/* ask_run.c - starts the generations that a request asks for. */
#include "serve/answer.h"

#include <string.h>

/* Answers a prompt that is too long for the context, with both numbers.  Returns 1 if it was too long. */
static int refuse_long(const struct server *s, struct exchange *x, const struct protocol *p,
                       const struct ask *k, const struct ask_text *t)
{
    char sentence[160];
    uint64_t capacity = s->caches.use[k->cache].capacity;
    struct fault f = {.status = 400, .sentence = sentence, .n_prompt = t->n, .n_ctx = capacity};
    if (!t->n) return ERR(ARG, "the prompt is empty");
    if (t->n < capacity) return 0;
    snprintf(
        sentence, sizeof sentence,
        "the request (%zu tokens) exceeds the available context size (%llu tokens); the answer needs at least one of them",
        t->n, (unsigned long long)capacity);
    exchange_json(x, 400, p->error(&f));
    return 1;
}

struct ask_text ask_text_of(const struct ask *k, uint32_t i)
{
    uint32_t prompt = i / (k->choices / (1 + k->n_more));
    return prompt ? k->more[prompt - 1] : (struct ask_text){k->ids, k->n};
}

int ask_options(const struct server *s, const struct ask *k, uint32_t index, kvik_generation *g)
{
    char *text = NULL;
    TRY(kvik_generation_init(g, s->o.model));
    g->max_new_tokens = g->max_length = 0; /* a text ends where it does, or the context */
    g->include_stop_str_in_output = false;
    int e = s->o.defaults ? kvik_generation_set(g, s->o.defaults) : 0;
    if (e >= 0) e = json_text(k->options, &text);
    if (e >= 0) e = kvik_generation_set(g, text);
    mem_free(text);
    if (!k->seeded && !s->seeded) g->seed = k->seed;
    g->seed += index % (k->choices / (1 + k->n_more));
    if (e < 0) kvik_generation_done(g);
    return e;
}

static int settle_options(const struct server *s, const struct ask *k, uint32_t index, size_t n,
                          kvik_generation *g)
{
    const struct cache_use *use = &s->caches.use[k->cache];
    TRY(ask_options(s, k, index, g));
    if (g->num_beams > 1 && k->logprobs) {
        kvik_generation_done(g);
        return ERR(
            UNSUPPORTED,
            "fields \"logprobs\" and \"num_beams\" exclude one another: beams tell no probabilities");
    }
    g->num_return_sequences = 1;
    g->output_logits = g->output_scores = g->return_legacy_cache = false;
    if (g->num_beams > use->o.sequences) {
        int e =
            ERR(LIMIT, "num_beams is %u, and the server has %u sequences; --parallel gives more",
                g->num_beams, use->o.sequences);
        kvik_generation_done(g);
        return e;
    }
    if (!g->max_length || g->max_new_tokens)
        g->max_new_tokens =
            (uint32_t)MIN(g->max_new_tokens ? g->max_new_tokens : UINT32_MAX, use->capacity - n);
    else
        g->max_length = (uint32_t)MIN(g->max_length, use->capacity);
    return 0;
}

/* Divides the prompt of a job into its documents and what is between them. */
static int take_documents(struct job *j, const struct documents *d)
{
    struct splicing *c = &j->splicing;
    if (!d->n) return 0;
    if (!(c->chunk = mem_array(2 * (size_t)d->n, sizeof *c->chunk))) return ERR_NOMEM;
    c->how = (kvik_splice){.size = sizeof c->how,
                           .recompute = d->recompute,
                           .fraction = d->fraction,
                           .cache_salt = j->salt};
    for (uint32_t i = 0; i < d->n; i++) {
        const struct document_span p = d->span[i];
        if (c->tokens < p.from)
            c->chunk[c->n++] =
                (kvik_chunk){sizeof *c->chunk, j->ids + c->tokens, p.from - c->tokens, 1};
        c->chunk[c->n++] = (kvik_chunk){sizeof *c->chunk, j->ids + p.from, p.to - p.from, 0};
        c->tokens = p.to;
    }
    return 0;
}

static int job_new(const struct server *s, struct exchange *x, const struct ask *k, uint32_t index,
                   struct job **out)
{
    struct ask_text t = ask_text_of(k, index);
    struct job *j = mem_alloc(sizeof *j);
    if (!j) return ERR_NOMEM;
    *j = (struct job){.calls = &answer_calls,
                      .index = index,
                      .cache = k->cache,
                      .priority = k->priority,
                      .logprobs = k->logprobs,
                      .top_logprobs = MIN(k->top_logprobs, MOST_TOP),
                      .presence_penalty = k->presence_penalty,
                      .frequency_penalty = k->frequency_penalty};
    memcpy(j->salt, k->salt, sizeof j->salt);
    j->ids = mem_array(t.n, sizeof *j->ids);
    int e = j->ids ? settle_options(s, k, index, t.n, &j->g) : ERR_NOMEM;
    if (e < 0) {
        mem_free(j->ids);
        mem_free(j);
        return e;
    }
    memcpy(j->ids, t.ids, t.n * sizeof *j->ids);
    j->n = t.n;
    j->x = exchange_hold(x);
    e = take_documents(j, &k->documents);
    if (e >= 0 && j->g.json_schema)
        e = kvik_schema_open(j->g.json_schema, s->tokenizer, &j->schema);
    if (e < 0) {
        job_free(j);
        return e;
    }
    if (k->messages) {
        j->shown = s->dialect.shown;
        j->n_shown = ask_tools(k) ? s->dialect.n_all : s->dialect.n_plain;
    }
    *out = j;
    return 0;
}

int ask_run(struct server *s, struct exchange *x, const struct protocol *p, struct ask *k)
{
    struct job *job[MOST_CHOICES] = {0};
    struct answer *a = NULL;
    uint32_t n = 0, choices = k->choices;
    int e = 0;
    for (uint32_t i = 0; i < choices && !e; i += choices / (1 + k->n_more)) {
        struct ask_text t = ask_text_of(k, i);
        e = refuse_long(s, x, p, k, &t);
    }
    if (e) return MIN(e, 0);
    if (!scheduler_room(s->scheduler, x->client, choices))
        return ERR(BUSY, "%u generations wait already; try again later", s->o.max_waiting);
    while (e >= 0 && n < choices)
        if ((e = job_new(s, x, k, n, &job[n])) >= 0) n++;
    if (e >= 0 && !(a = answer_open(s, x, p, k))) e = ERR_NOMEM;
    for (uint32_t i = 0; i < n; i++) {
        job[i]->owner = a;
        if (e >= 0)
            scheduler_add(s->scheduler, job[i]);
        else
            job_free(job[i]);
    }
    return e;
}

int ask_salt(const struct server *s, const struct exchange *x, const json_t *body,
             char out[KEYS_SALT])
{
    const json_t *own = json_object_get(body, "cache_salt");
    if (own && !json_is_null(own) && !json_is_string(own))
        return ERR(ARG, "field \"cache_salt\" must be a string, not %s", JSON_QUOTE(own));
    keys_salt(s->keys ? x->key : NULL, json_string_value(own), json_string_length(own), out);
    return 0;
}

int ask_read(struct server *s, struct exchange *x, ask_reader read, struct ask *k)
{
    json_t *body;
    ask_init(k);
    if (s->hearing)
        return ERR(UNSUPPORTED,
                   "%s hears recordings and writes no other text; there is POST "
                   "/v1/audio/transcriptions",
                   s->o.name);
    TRY(body_read(x, &body));
    int e = ask_refuse_nul(body, NULL);
    if (e >= 0) e = caches_find(&s->caches, body, &k->cache);
    if (e >= 0) e = ask_salt(s, x, body, k->salt);
    if (e >= 0) e = read(s, x, k, body);
    json_decref(body);
    return e;
}

int ask_serve(struct server *s, struct exchange *x, const struct protocol *p, ask_reader read)
{
    struct ask k;
    int e = ask_read(s, x, read, &k);
    if (e == 0) e = ask_run(s, x, p, &k);
    ask_done(&k);
    return MIN(e, 0);
}
