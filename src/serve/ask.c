/* ask.c - from the fields of a request to jobs. */
#include "serve/answer.h"
#include "serve/protocol.h"

#include <string.h>
#include <sys/random.h>

enum {
    MOST_CHOICES = 64,
    MOST_TOP = 20,
    MARK_TOKENS = 24 /* at the end of a prompt, which a mark and white space have at most */
};

void ask_init(struct ask *k)
{
    *k = (struct ask){.options = json_object(), .choices = 1};
    if (getrandom(&k->seed, sizeof k->seed, GRND_NONBLOCK) < 0)
        k->seed = (uint32_t)(now_seconds() * 1e6);
}

void ask_done(struct ask *k)
{
    json_decref(k->options);
    json_decref(k->messages);
    json_decref(k->kwargs);
    mem_free(k->ids);
    *k = (struct ask){0};
}

int ask_set(struct ask *k, const char *option, json_t *value)
{
    if (!value || json_object_set_new(k->options, option, value) < 0)
        return ERR(NOMEM, "out of memory");
    return 0;
}

int body_read(const struct exchange *x, json_t **out)
{
    json_t *o = NULL;
    if (!x->n_body) return ERR(FORMAT, "the request has no body; a JSON object is expected");
    TRY(json_parse(x->body, x->n_body, "the body of the request", &o));
    if (!json_is_object(o)) {
        json_decref(o);
        return ERR(FORMAT, "the body of the request must be a JSON object");
    }
    *out = o;
    return 0;
}

/* --- Fields. */

#define WHERE "the request"

/* A number field that becomes an option, with its range. */
static int number(struct ask *k, const json_t *body, const char *field, const char *option,
                  double min, double max)
{
    double v;
    int e = json_get_f64(body, WHERE, field, &v);
    if (e <= 0) return e;
    if (!(v >= min && v <= max))
        return ERR(ARG, "field \"%s\" must be between %g and %g, not %g", field, min, max, v);
    return ask_set(k, option, json_real(v));
}

static int whole_number(struct ask *k, const json_t *body, const char *field, const char *option,
                        uint32_t min)
{
    uint32_t v;
    int e = json_get_u32(body, WHERE, field, min, UINT32_MAX, &v);
    return e <= 0 ? e : ask_set(k, option, json_integer(v));
}

/* temperature 0 is the most likely token; any other number samples. */
static int temperature(struct ask *k, const json_t *body)
{
    double v;
    int e = json_get_f64(body, WHERE, "temperature", &v);
    if (e <= 0) return e;
    if (!(v >= 0 && v <= 100))
        return ERR(ARG, "field \"temperature\" must be between 0 and 2, not %g", v);
    TRY(ask_set(k, "do_sample", json_boolean(v > 0)));
    return v > 0 ? ask_set(k, "temperature", json_real(v)) : 0;
}

static int stop_strings(struct ask *k, const json_t *body)
{
    json_t *stop = json_object_get(body, "stop"), *one;
    size_t i;
    if (!stop || json_is_null(stop)) return 0;
    if (!json_is_string(stop) && !json_is_array(stop))
        return ERR(ARG, "field \"stop\" must be a string or an array of strings");
    json_t *list = json_array();
    if (json_is_string(stop)) json_array_append(list, stop);
    json_array_foreach(stop, i, one)
    {
        if (!json_is_string(one)) {
            json_decref(list);
            return ERR(ARG, "field \"stop\" must be a string or an array of strings");
        }
        if (json_string_length(one)) json_array_append(list, one);
    }
    return ask_set(k, "stop_strings", list);
}

/* Any integer is a seed for OpenAI; kvik's are not negative.  -1 of llama.cpp is a seed that nobody chose. */
static int seed(struct ask *k, const json_t *body)
{
    json_t *v = json_object_get(body, "seed");
    if (!v || json_is_null(v)) return 0;
    if (!json_is_integer(v)) return ERR(ARG, "field \"seed\" must be an integer");
    json_int_t n = json_integer_value(v);
    k->seeded = n != -1;
    return n == -1 ? 0 : ask_set(k, "seed", json_integer(n & INT64_MAX));
}

/* {"50256": -100} becomes [[[50256], -100.0]]. */
static int logit_bias(struct ask *k, const json_t *body)
{
    json_t *map = json_object_get(body, "logit_bias"), *v;
    const char *key;
    char *end;
    if (!map || json_is_null(map)) return 0;
    if (!json_is_object(map))
        return ERR(ARG, "field \"logit_bias\" must be an object of token ids and numbers");
    json_t *list = json_array();
    json_object_foreach(map, key, v)
    {
        long id = strtol(key, &end, 10);
        if (!*key || *end || id < 0 || id > INT32_MAX || !json_is_number(v)) {
            json_decref(list);
            return ERR(
                ARG,
                "field \"logit_bias\" must be an object of token ids and numbers; \"%.40s\" is none",
                key);
        }
        json_array_append_new(list, json_pack("[[i], f]", (int)id, json_number_value(v)));
    }
    if (json_array_size(list)) return ask_set(k, "sequence_bias", list);
    json_decref(list);
    return 0;
}

static int penalties(struct ask *k, const json_t *body)
{
    TRY(json_get_f64(body, WHERE, "presence_penalty", &k->presence_penalty));
    TRY(json_get_f64(body, WHERE, "frequency_penalty", &k->frequency_penalty));
    if (!(k->presence_penalty >= -100 && k->presence_penalty <= 100))
        return ERR(ARG, "field \"presence_penalty\" must be between -2 and 2");
    if (!(k->frequency_penalty >= -100 && k->frequency_penalty <= 100))
        return ERR(ARG, "field \"frequency_penalty\" must be between -2 and 2");
    return 0;
}

int ask_sampling(struct ask *k, const json_t *body)
{
    TRY(temperature(k, body));
    TRY(number(k, body, "top_p", "top_p", 0, 1));
    TRY(number(k, body, "min_p", "min_p", 0, 1));
    TRY(number(k, body, "typical_p", "typical_p", 1e-6, 1));
    TRY(number(k, body, "repetition_penalty", "repetition_penalty", 1e-6, 1e6));
    TRY(number(k, body, "repeat_penalty", "repetition_penalty", 1e-6, 1e6));
    TRY(whole_number(k, body, "top_k", "top_k", 0));
    TRY(whole_number(k, body, "num_beams", "num_beams", 1));
    TRY(whole_number(k, body, "max_tokens", "max_new_tokens", 1));
    TRY(whole_number(k, body, "max_completion_tokens", "max_new_tokens", 1));
    TRY(whole_number(k, body, "min_tokens", "min_new_tokens", 0));
    TRY(seed(k, body));
    TRY(stop_strings(k, body));
    TRY(logit_bias(k, body));
    TRY(penalties(k, body));
    TRY(json_get_bool(body, WHERE, "stream", &k->stream));
    TRY(json_get_bool(body, WHERE, "return_token_ids", &k->return_ids));
    TRY(json_get_u32(body, WHERE, "n", 1, MOST_CHOICES, &k->choices));
    int64_t priority = json_integer_value(json_object_get(body, "priority"));
    k->priority = (int32_t)MAX(INT32_MIN, MIN(INT32_MAX, priority));
    return 0;
}

/* --- Prompts. */

static int take_ids(struct ask *k, const int32_t *ids, size_t n)
{
    k->ids = mem_array(n ? n : 1, sizeof *k->ids);
    if (!k->ids) return ERR_NOMEM;
    if (n) memcpy(k->ids, ids, n * sizeof *ids);
    k->n = n;
    return 0;
}

int ask_encode(const struct server *s, const json_t *messages, const json_t *kwargs, int32_t **out,
               size_t *n)
{
    char *text = NULL, *more = NULL;
    int e = json_text(messages, &text);
    if (e >= 0 && kwargs) e = json_text(kwargs, &more);
    const kvik_chat chat = {.size = sizeof chat, .json = text, .kwargs = more};
    if (e >= 0) e = kvik_chat_encode(s->tokenizer, &chat, out, n, NULL);
    mem_free(text);
    mem_free(more);
    return e;
}

/* True if the prompt ends with the mark that opens a reasoning: the template has opened it for the model. */
static bool opens_reasoning(const struct ask *k, const struct server *s)
{
    const struct dialect *d = s->dialect.dialect;
    char *text = NULL;
    size_t last = MIN(k->n, (size_t)MARK_TOKENS), n = 0;
    bool opens = false;
    if (!d || kvik_tokenizer_decode(s->tokenizer, k->ids + k->n - last, last, false, &text, &n) < 0)
        return false;
    while (n && strchr(" \n", text[n - 1]))
        n--;
    for (const struct dialect_mark *m = d->mark; m < d->mark + countof(d->mark) && m->text; m++) {
        size_t len = strlen(m->text);
        if (m->to == SAID_REASONING && n >= len && !memcmp(text + n - len, m->text, len))
            opens = true;
    }
    kvik_free(text);
    return opens;
}

int ask_render(struct ask *k, const struct server *s)
{
    int32_t *ids;
    size_t n;
    TRY(ask_encode(s, k->messages, k->kwargs, &ids, &n));
    int e = take_ids(k, ids, n);
    if (e >= 0) k->reasoning = opens_reasoning(k, s);
    kvik_free(ids);
    return e;
}

int ask_prompt(struct ask *k, const struct server *s, const json_t *prompt)
{
    int32_t *ids = NULL;
    size_t n = json_array_size(prompt);
    int e = 0;
    if (json_is_string(prompt))
        e = kvik_tokenizer_encode(s->tokenizer, json_string_value(prompt),
                                  json_string_length(prompt), true, &ids, &n);
    else if (!json_is_array(prompt))
        return ERR(ARG, "field \"prompt\" must be a string or an array of token ids");
    if (e >= 0) e = take_ids(k, ids, ids ? n : 0);
    kvik_free(ids);
    if (e < 0 || json_is_string(prompt)) return e;
    mem_free(k->ids);
    k->ids = mem_array(n ? n : 1, sizeof *k->ids);
    for (size_t i = 0; k->ids && i < n; i++) {
        const json_t *v = json_array_get(prompt, i);
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id >= (json_int_t)kvik_model_vocab(s->o.model))
            return ERR(ARG, "field \"prompt\": token %zu is no id of this model", i);
        k->ids[k->n++] = (int32_t)id;
    }
    return k->ids ? 0 : ERR_NOMEM;
}

/* --- Starting. */

/* Answers a prompt that is too long, with both numbers.  Returns 1 if it has. */
static int refuse_long(const struct server *s, struct exchange *x, const struct protocol *p,
                       const struct ask *k)
{
    char sentence[160];
    struct fault f = {.status = 400, .sentence = sentence, .n_prompt = k->n, .n_ctx = s->capacity};
    if (!k->n) return ERR(ARG, "the prompt is empty");
    if (k->n < s->capacity) return 0;
    snprintf(
        sentence, sizeof sentence,
        "the request has %zu tokens and the context has %llu, of which the answer needs at least one",
        k->n, (unsigned long long)s->capacity);
    exchange_json(x, 400, p->error(&f));
    return 1;
}

static int settle(const struct server *s, const struct ask *k, uint32_t index, kvik_generation *g)
{
    char *text = NULL;
    TRY(kvik_generation_init(g, s->o.model));
    g->max_new_tokens = (uint32_t)MIN(s->capacity, UINT32_MAX);
    g->include_stop_str_in_output = false;
    int e = s->o.defaults ? kvik_generation_set(g, s->o.defaults) : 0;
    if (e >= 0) e = json_text(k->options, &text);
    if (e >= 0) e = kvik_generation_set(g, text);
    mem_free(text);
    if (!k->seeded) g->seed = k->seed;
    g->seed += index;
    g->num_return_sequences = 1;
    g->max_new_tokens = (uint32_t)MIN(g->max_new_tokens, s->capacity - k->n);
    if (e < 0) kvik_generation_done(g);
    return e;
}

static int job_new(const struct server *s, struct exchange *x, const struct ask *k, uint32_t index,
                   struct job **out)
{
    struct job *j = mem_alloc(sizeof *j);
    if (!j) return ERR_NOMEM;
    *j = (struct job){.calls = &answer_calls,
                      .index = index,
                      .priority = k->priority,
                      .logprobs = k->logprobs,
                      .top_logprobs = MIN(k->top_logprobs, MOST_TOP),
                      .presence_penalty = k->presence_penalty,
                      .frequency_penalty = k->frequency_penalty};
    j->ids = mem_array(k->n, sizeof *j->ids);
    int e = j->ids ? settle(s, k, index, &j->g) : ERR_NOMEM;
    if (e < 0) {
        mem_free(j->ids);
        mem_free(j);
        return e;
    }
    memcpy(j->ids, k->ids, k->n * sizeof *j->ids);
    j->n = k->n;
    j->x = exchange_hold(x);
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
    int e = refuse_long(s, x, p, k);
    if (e) return MIN(e, 0);
    if (!scheduler_room(s->scheduler, choices))
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
