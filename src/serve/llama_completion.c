/* llama_completion.c - POST /completion, as llama-server has it: a text with its timings. */
#include "serve/infill.h"

#include <math.h>
#include <string.h>

static json_t *error(const struct fault *f)
{
    return protocol_openai.error(f);
}

static const char *stop_type(const struct choice *c)
{
    switch (c->finish) {
    case KVIK_FINISH_EOS:
        return "eos";
    case KVIK_FINISH_STOP:
        return "word";
    default:
        return "limit";
    }
}

/* Returns the options that determine a text, under llama-server's names. */
static json_t *settings(const struct answer *a, uint32_t index)
{
    kvik_generation g;
    if (ask_options(a->server, &a->ask, index, &g) < 0) return NULL;
    json_t *bias = json_array(), *limit = json_object_get(a->ask.options, "max_new_tokens");
    if (a->ask.ignores_eos)
        for (uint32_t i = 0; i < a->server->n_eos; i++)
            json_array_append_new(bias,
                                  json_pack("{s:i, s:n}", "token", (int)a->server->eos[i], "bias"));
    json_t *o = json_pack("{s:I, s:f, s:i, s:f, s:f, s:f, s:f, s:I, s:o}", "seed",
                          (json_int_t)g.seed, "temperature", g.do_sample ? g.temperature : 0,
                          "top_k", (int)g.top_k, "top_p", g.top_p, "min_p", g.min_p, "top_n_sigma",
                          g.top_n_sigma, "repeat_penalty", g.repetition_penalty, "n_predict",
                          limit ? json_integer_value(limit) : (json_int_t)-1, "logit_bias", bias);
    kvik_generation_done(&g);
    return o;
}

/* Returns a text, or a part of one with its new tokens. */
static json_t *part(struct choice *c, const char *text, size_t n, bool stop)
{
    json_t *o = json_pack("{s:i, s:o, s:b}", "index", (int)c->index, "content",
                          answer_text(text, n), "stop", stop);
    json_object_set_new(o, "tokens", answer_new_ids(c));
    return o;
}

static void add_probabilities(struct choice *c, json_t *o)
{
    json_t *list = answer_probabilities(c);
    if (list) json_object_set_new(o, "completion_probabilities", list);
}

/* Returns a prompt as text, with its special tokens. */
static json_t *prompt_text(const struct answer *a, const struct ask_text *prompt)
{
    char *text = NULL;
    size_t n = 0;
    (void)kvik_tokenizer_decode(a->server->tokenizer, prompt->ids, prompt->n, false, &text, &n);
    json_t *o = answer_text(text, n);
    kvik_free(text);
    return o;
}

static json_t *ended(const struct answer *a, struct choice *c, const char *text, size_t n)
{
    bool whole = c->finish != KVIK_FINISH_CONTEXT && c->finish != KVIK_FINISH_MAX_CACHE_LEN;
    bool lines = c->text.len && memchr(c->text.data, '\n', c->text.len);
    const struct ask_text prompt = ask_text_of(&a->ask, c->index);
    json_t *o = part(c, text, n, true);
    add_probabilities(c, o);
    json_object_set_new(o, "model", json_string(a->server->o.name));
    json_object_set_new(o, "id_slot", json_integer(a->slot));
    json_object_set_new(o, "prompt", prompt_text(a, &prompt));
    json_object_set_new(o, "generation_settings", settings(a, c->index));
    json_object_set_new(o, "tokens_predicted", json_integer((json_int_t)c->new_tokens));
    json_object_set_new(o, "tokens_evaluated", json_integer((json_int_t)prompt.n));
    json_object_set_new(o, "tokens_cached",
                        json_integer((json_int_t)prompt.n + (json_int_t)c->new_tokens));
    json_object_set_new(o, "truncated", json_boolean(!whole));
    json_object_set_new(o, "has_new_line", json_boolean(lines));
    json_object_set_new(o, "stop_type", json_string(stop_type(c)));
    json_object_set_new(o, "stopping_word", json_string(c->stop ? c->stop : ""));
    json_object_set_new(o, "timings", answer_timings(a));
    json_object_set_new(o, "kvik", answer_kvik(a));
    return o;
}

json_t *answer_verbose(const struct answer *a)
{
    struct choice *c = &a->choice[0];
    c->told = c->told_ids = 0; /* the whole answer has all tokens again */
    return ended(a, c, c->text.data, c->text.len);
}

/* Keeps only the fields that the request asks for: "content", "generation_settings/n_predict". */
static json_t *pick_fields(const struct answer *a, json_t *o)
{
    const json_t *wanted = a->ask.fields, *name;
    size_t i;
    if (!json_array_size(wanted)) return o;
    json_t *few = json_object();
    json_array_foreach(wanted, i, name)
    {
        const char *path = json_string_value(name), *slash = path ? strchr(path, '/') : NULL;
        char first[64];
        if (!path) continue;
        snprintf(first, sizeof first, "%.*s", slash ? (int)(slash - path) : 63, path);
        json_t *v = json_object_get(o, first);
        if (slash) v = json_object_get(v, slash + 1);
        if (v) json_object_set(few, path, v);
    }
    json_decref(o);
    return few;
}

static void piece(struct answer *a, struct choice *c, enum piece kind, const char *text)
{
    (void)kind;
    json_t *o = part(c, text, strlen(text), false);
    add_probabilities(c, o);
    answer_add_timings(a, c, o);
    answer_event(a, NULL, o);
}

static void progress(struct answer *a, json_t *progress, json_t *times)
{
    json_t *o = part(&a->choice[0], "", 0, false);
    json_object_set_new(o, "prompt_progress", progress);
    if (times) json_object_set_new(o, "timings", times);
    answer_event(a, NULL, o);
}

static void ending(struct answer *a, struct choice *c)
{
    answer_event(a, NULL, pick_fields(a, ended(a, c, "", 0)));
}

static void broken(struct answer *a, const struct fault *f)
{
    answer_event(a, NULL, error(f));
}

static json_t *whole(struct answer *a)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < a->ask.choices; i++) {
        struct choice *c = &a->choice[i];
        json_t *o = pick_fields(a, ended(a, c, c->text.data, c->text.len));
        if (a->ask.choices == 1) {
            json_decref(list);
            return o;
        }
        json_array_append_new(list, o);
    }
    return list;
}

static const struct protocol completion = {.name = "llama.completion",
                                           .prefix = "completion-",
                                           .stream = "text/event-stream",
                                           .comments = true,
                                           .error = error,
                                           .piece = piece,
                                           .ending = ending,
                                           .progress = progress,
                                           .broken = broken,
                                           .whole = whole};

static int read_options(struct server *s, struct ask *k, json_t *body)
{
    static const struct field_type types = {"response_fields", FIELD_LIST};
    json_t *fields = json_object_get(body, "response_fields");
    TRY(ask_types(body, &types, 1));
    TRY(ask_sampling(k, s, body));
    TRY(json_get_u32(body, "the request", "n_probs", 0, MOST_TOP, &k->top_logprobs));
    TRY(json_get_bool(body, "the request", "return_tokens", &k->return_ids));
    k->return_ids |= k->stream; /* each part of a stream has its tokens */
    k->logprobs = k->top_logprobs > 0;
    if (json_is_array(fields)) k->fields = json_incref(fields);
    return 0;
}

static int read_body(struct server *s, struct exchange *x, struct ask *k, json_t *body)
{
    (void)x;
    TRY(read_options(s, k, body));
    return ask_prompts(k, s, json_object_get(body, "prompt"));
}

static int read_gap(struct server *s, struct exchange *x, struct ask *k, json_t *body)
{
    const json_t *prefix = json_object_get(body, "input_prefix"),
                 *suffix = json_object_get(body, "input_suffix"),
                 *more = json_object_get(body, "prompt"),
                 *extra = json_object_get(body, "input_extra");
    (void)x;
    TRY(read_options(s, k, body));
    if (!json_is_string(prefix) || !json_is_string(suffix))
        return ERR(ARG,
                   "fields \"input_prefix\" and \"input_suffix\" must be strings, not %s and %s",
                   JSON_QUOTE(prefix), JSON_QUOTE(suffix));
    if (more && !json_is_null(more) && !json_is_string(more))
        return ERR(
            ARG,
            "field \"prompt\" must be a string, the beginning of the text that is filled in, not %s",
            JSON_QUOTE(more));
    if (extra && !json_is_null(extra) && !json_is_array(extra))
        return ERR(ARG, "field \"input_extra\" must be an array of files, not %s",
                   JSON_QUOTE(extra));
    return infill_prompt(k, s, extra, prefix, more, suffix);
}

static int complete(struct server *s, struct exchange *x)
{
    return ask_serve(s, x, &completion, read_body);
}

static int infill(struct server *s, struct exchange *x)
{
    return ask_serve(s, x, &completion, read_gap);
}

static const struct route completion_routes[] = {
    {"/completion", EXCHANGE_POST, .protocol = &completion, .answer = complete},
    {"/infill", EXCHANGE_POST, .protocol = &completion, .answer = infill},
    {"/completions", EXCHANGE_POST, .protocol = &completion, .answer = complete},
};
ROUTES(completion_routes);
