/* ask.c - turns the fields of a request into the options and limits of an ask. */
#include "serve/answer.h"
#include "serve/ignored.h"
#include "serve/protocol.h"

#include <string.h>
#include <sys/random.h>

enum { MOST_CONTAINERS = 1 << 20, MOST_VALUES = 8 << 20 }; /* limits of one body */

void ask_init(struct ask *k)
{
    *k = (struct ask){.options = json_object(), .choices = 1, .slot = -1};
    if (getrandom(&k->seed, sizeof k->seed, GRND_NONBLOCK) < 0)
        k->seed = (uint32_t)(now_seconds() * 1e6);
}

void ask_done(struct ask *k)
{
    json_decref(k->options);
    json_decref(k->messages);
    json_decref(k->kwargs);
    json_decref(k->fields);
    documents_done(&k->documents);
    mem_free(k->ids);
    for (uint32_t i = 0; i < k->n_more; i++)
        mem_free(k->more[i].ids);
    mem_free(k->more);
    *k = (struct ask){0};
}

int ask_set(struct ask *k, const char *option, json_t *value)
{
    if (!value || json_object_set_new(k->options, option, value) < 0)
        return ERR(NOMEM, "out of memory");
    return 0;
}

/* Refuses a body with too many values.  Each value of JSON takes some hundred bytes of memory, so a short text could
 * need very much. */
static int check_size(const char *text, size_t n)
{
    size_t containers = 0, values = 0;
    bool quoted = false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        i += quoted && c == '\\';
        quoted ^= c == '"';
        if (quoted) continue;
        containers += c == '{' || c == '[';
        values += c == ',';
    }
    if (containers <= MOST_CONTAINERS && values <= MOST_VALUES) return 0;
    return ERR(
        LIMIT,
        "the body of the request has %zu arrays and objects and %zu commas; the limits are %d and %d",
        containers, values, MOST_CONTAINERS, MOST_VALUES);
}

int body_read(const struct exchange *x, json_t **out)
{
    json_t *o = NULL;
    if (!x->n_body) return ERR(FORMAT, "the request has no body; a JSON object is expected");
    TRY(check_size(x->body, x->n_body));
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

/* Reads a number field that sets a generation option, and checks its range. */
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

/* Reads top_n_sigma.  llama-server's off is -1, which its clients send. */
static int top_n_sigma(struct ask *k, const json_t *body)
{
    double v;
    int e = json_get_f64(body, WHERE, "top_n_sigma", &v);
    if (e <= 0) return e;
    if (!(v >= -1 && v <= 1e6))
        return ERR(ARG, "field \"top_n_sigma\" must be between -1 and 1e6, not %g", v);
    return ask_set(k, "top_n_sigma", json_real(MAX(v, 0)));
}

/* Reads temperature: 0 is the most likely token, any other number samples. */
static int temperature(struct ask *k, const json_t *body)
{
    double v;
    int e = json_get_f64(body, WHERE, "temperature", &v);
    if (e <= 0) return e;
    if (!(v >= 0 && v <= 100))
        return ERR(ARG, "field \"temperature\" must be between 0 and 100, not %g", v);
    TRY(ask_set(k, "do_sample", json_boolean(v > 0)));
    return v > 0 ? ask_set(k, "temperature", json_real(v)) : 0;
}

static int stop_strings(struct ask *k, const json_t *body)
{
    json_t *stop = json_object_get(body, "stop"), *one;
    size_t i;
    if (!stop || json_is_null(stop)) return 0;
    if (!json_is_string(stop) && !json_is_array(stop))
        return ERR(ARG, "field \"stop\" must be a string or an array of strings, not %s",
                   JSON_QUOTE(stop));
    json_t *list = json_array();
    if (json_is_string(stop)) json_array_append(list, stop);
    json_array_foreach(stop, i, one)
    {
        if (!json_is_string(one)) {
            json_decref(list);
            return ERR(ARG,
                       "field \"stop\" must be a string or an array of strings; its item %zu is %s",
                       i, JSON_QUOTE(one));
        }
        if (json_string_length(one)) json_array_append(list, one);
    }
    return ask_set(k, "stop_strings", list);
}

/* Reads a seed.  OpenAI allows any integer and kvik none below 0, so a negative one is mapped.  -1 of llama.cpp
 * means a random seed. */
static int seed(struct ask *k, const json_t *body)
{
    json_t *v = json_object_get(body, "seed");
    if (!v || json_is_null(v)) return 0;
    if (!json_is_integer(v))
        return ERR(ARG, "field \"seed\" must be an integer, not %s", JSON_QUOTE(v));
    json_int_t n = json_integer_value(v);
    k->seeded = n != -1;
    return n == -1 ? 0 : ask_set(k, "seed", json_integer(n & INT64_MAX));
}

/* Adds a bias for a token, or for each token of a text.  A bias of false bans the token. */
static int add_bias(const struct server *s, json_t *list, const char *text, const json_t *id,
                    const json_t *bias)
{
    double v = json_is_false(bias) ? -1e9 : json_number_value(bias);
    int32_t *ids = NULL;
    long long one = json_integer_value(id);
    size_t n = 1;
    char *end = NULL;
    bool number = text && *text && (one = strtoll(text, &end, 10), !*end);
    if (!json_is_number(bias) && !json_is_false(bias)) return ERR_ARG;
    if (text && !number)
        TRY(kvik_tokenizer_encode(s->tokenizer, text, strlen(text), false, &ids, &n));
    if (one < 0 || one >= (long long)kvik_model_vocab(s->o.model))
        return ERR(
            LIMIT,
            "field \"logit_bias\": token %lld is no id of this model, whose ids are 0 to %lld", one,
            (long long)kvik_model_vocab(s->o.model) - 1);
    if (n > MOST_BIASES || json_array_size(list) + n > MOST_BIASES) {
        kvik_free(ids);
        return ERR(LIMIT, "field \"logit_bias\" has more than %d tokens", MOST_BIASES);
    }
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("[[i], f]", ids ? (int)ids[i] : (int)one, v));
    kvik_free(ids);
    return 0;
}

/* Reads {"50256": -100} or [[50256, -100], [" text", false]] as [[[50256], -100.0], ..]. */
static int read_bias(const struct server *s, const json_t *given, json_t *list)
{
    json_t *v;
    const char *key;
    size_t i;
    if (json_is_object(given)) {
        json_object_foreach((json_t *)(uintptr_t)given, key, v)
        {
            TRY(add_bias(s, list, key, NULL, v));
        }
        return 0;
    }
    if (!json_is_array(given)) return ERR_ARG;
    json_array_foreach(given, i, v)
    {
        const json_t *token = json_array_get(v, 0);
        if (!json_is_integer(token) && !json_is_string(token)) return ERR_ARG;
        TRY(add_bias(s, list, json_string_value(token), token, json_array_get(v, 1)));
    }
    return 0;
}

static int logit_bias(struct ask *k, const struct server *s, const json_t *body)
{
    const json_t *given = json_object_get(body, "logit_bias");
    if (!given || json_is_null(given)) return 0;
    json_t *list = json_array();
    int e = list ? read_bias(s, given, list) : ERR_NOMEM;
    if (e >= 0 && json_array_size(list)) return ask_set(k, "sequence_bias", list);
    json_decref(list);
    if (e != ERR_ARG) return e;
    return ERR(ARG,
               "field \"logit_bias\" must be an object of tokens and numbers, or an array of such "
               "pairs, not %s",
               JSON_QUOTE(given));
}

/* Reads ignore_eos: the text does not end before its limit. */
static int ignore_eos(struct ask *k, const json_t *body)
{
    bool ignore = false;
    TRY(json_get_bool(body, WHERE, "ignore_eos", &ignore));
    k->ignores_eos = ignore;
    return ignore ? ask_set(k, "eos_token_id", json_array()) : 0;
}

/* Reads llama-server's n_predict; -1: no limit. */
static int n_predict(struct ask *k, const json_t *body)
{
    const json_t *v = json_object_get(body, "n_predict");
    if (!v || json_is_null(v) || json_integer_value(v) == -1) return 0;
    return whole_number(k, body, "n_predict", "max_new_tokens", 1);
}

static int penalties(struct ask *k, const json_t *body)
{
    TRY(json_get_f64(body, WHERE, "presence_penalty", &k->presence_penalty));
    TRY(json_get_f64(body, WHERE, "frequency_penalty", &k->frequency_penalty));
    if (!(k->presence_penalty >= -100 && k->presence_penalty <= 100))
        return ERR(ARG, "field \"presence_penalty\" must be between -100 and 100, not %g",
                   k->presence_penalty);
    if (!(k->frequency_penalty >= -100 && k->frequency_penalty <= 100))
        return ERR(ARG, "field \"frequency_penalty\" must be between -100 and 100, not %g",
                   k->frequency_penalty);
    return 0;
}

/* Reads llama-server's id_slot; -1: any slot. */
static int id_slot(struct ask *k, const struct server *s, const json_t *body)
{
    const json_t *v = json_object_get(body, "id_slot");
    json_int_t i = v && !json_is_null(v) ? json_integer_value(v) : -1;
    if ((v && !json_is_null(v) && !json_is_integer(v)) || i < -1 || i >= (json_int_t)s->o.parallel)
        return ERR(ARG, "field \"id_slot\" must be a slot, 0 to %u, or -1: any; not %s",
                   s->o.parallel - 1, JSON_QUOTE(v));
    k->slot = (int)i;
    return 0;
}

/* Reads llama-server's t_max_predict_ms. */
static int time_limit(struct ask *k, const json_t *body)
{
    double v;
    int e = json_get_f64(body, WHERE, "t_max_predict_ms", &v);
    if (e <= 0 || v <= 0) return MIN(e, 0);
    return ask_set(k, "max_time", json_real(v / 1e3));
}

/* Refuses fields without which the answer would be another one. */
static int refuse(const json_t *body)
{
    static const struct field_type types[] = {{"grammar", FIELD_TEXT},
                                              {"post_sampling_probs", FIELD_BOOL}};
    const json_t *grammar = json_object_get(body, "grammar");
    TRY(ask_types(body, types, countof(types)));
    if (json_is_string(grammar) && json_string_length(grammar))
        return ERR(UNSUPPORTED,
                   "field \"grammar\": grammars are not supported; \"json_schema\" demands JSON");
    if (json_is_true(json_object_get(body, "post_sampling_probs")))
        return ERR(
            UNSUPPORTED,
            "field \"post_sampling_probs\": probabilities are those of the model, before sampling");
    return 0;
}

int ask_sampling(struct ask *k, const struct server *s, const json_t *body)
{
    ignored_note(&s->o, body);
    TRY(refuse(body));
    TRY(time_limit(k, body));
    TRY(temperature(k, body));
    TRY(number(k, body, "top_p", "top_p", 0, 1));
    TRY(number(k, body, "min_p", "min_p", 0, 1));
    TRY(top_n_sigma(k, body));
    TRY(number(k, body, "xtc_probability", "xtc_probability", 0, 1));
    TRY(number(k, body, "xtc_threshold", "xtc_threshold", 0, 1));
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
    TRY(logit_bias(k, s, body));
    TRY(ignore_eos(k, body));
    TRY(n_predict(k, body));
    TRY(penalties(k, body));
    json_t *schema = json_object_get(body, "json_schema"); /* llama-server's name */
    const char *any = json_string_value(schema);
    if (schema && !json_is_null(schema) && !json_is_object(schema) &&
        !(any && !strcmp(any, "json_object")))
        return ERR(ARG, "field \"json_schema\" must be an object or \"json_object\", not %s",
                   JSON_QUOTE(schema));
    if (schema && !json_is_null(schema)) TRY(ask_schema(k, json_incref(schema)));
    TRY(json_get_bool(body, WHERE, "stream", &k->stream));
    TRY(json_get_bool(body, WHERE, "return_token_ids", &k->return_ids));
    TRY(id_slot(k, s, body));
    k->verbose = s->o.verbose;
    TRY(json_get_bool(body, WHERE, "verbose", &k->verbose));
    TRY(json_get_bool(body, WHERE, "timings_per_token", &k->timings));
    TRY(json_get_bool(body, WHERE, "return_progress", &k->progress));
    TRY(json_get_u32(body, WHERE, "n", 1, MOST_CHOICES, &k->choices));
    const json_t *wish = json_object_get(body, "priority");
    if (wish && !json_is_null(wish) && !json_is_integer(wish))
        return ERR(ARG, "field \"priority\" must be an integer, not %s", JSON_QUOTE(wish));
    int64_t priority = json_integer_value(wish);
    k->priority = (int32_t)MAX(INT32_MIN, MIN(s->o.max_priority, priority));
    return 0;
}

int ask_moved_chunks(struct documents *d, const json_t *body)
{
    static const struct field_type type = {"moved_chunks", FIELD_OBJECT};
    const json_t *given = json_object_get(body, "moved_chunks");
    const uint32_t most = 1u << 20;
    uint32_t recompute = 0;
    if (!given || json_is_null(given)) return 0;
    TRY(ask_types(body, &type, 1));
    /* a key that is spelled in another way would change the answer by more than was asked for */
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)given, key, v)
    {
        if (strcmp(key, "recompute") != 0 && strcmp(key, "fraction") != 0)
            return ERR(ARG,
                       "field \"moved_chunks\" has no key \"%.60s\"; it has recompute and fraction",
                       key);
    }
    TRY(json_get_u32(given, "moved_chunks", "recompute", 0, most, &recompute));
    TRY(json_get_f64(given, "moved_chunks", "fraction", &d->fraction));
    if (!(d->fraction >= 0 && d->fraction <= 1))
        return ERR(ARG, "field \"moved_chunks.fraction\" must be between 0 and 1, not %g",
                   d->fraction);
    d->recompute = recompute;
    return (d->texts = json_array()) ? 0 : ERR(NOMEM, "out of memory");
}
