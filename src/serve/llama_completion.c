/* llama_completion.c - POST /completion, as llama-server has it: a text with its timings. */
#include "serve/protocol.h"

#include <math.h>
#include <string.h>

static json_t *error(const struct fault *f)
{
    return protocol_openai.error(f);
}

static double per_second(double tokens, double seconds)
{
    return seconds > 0 ? tokens / seconds : 0;
}

static double each(double tokens, double milliseconds)
{
    return tokens > 0 ? milliseconds / tokens : 0;
}

static json_t *timings(const struct answer *a)
{
    double prompt = fmax(a->first - a->waited, 0), written = fmax(a->decoding, 0),
           read = (double)(a->prompt_tokens - a->reused), n = (double)a->new_tokens;
    return json_pack(
        "{s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:f}", "cache_n", (json_int_t)a->reused,
        "prompt_n", (json_int_t)a->prompt_tokens - (json_int_t)a->reused, "prompt_ms", prompt * 1e3,
        "prompt_per_token_ms", each(read, prompt * 1e3), "prompt_per_second",
        per_second(read, prompt), "predicted_n", (json_int_t)a->new_tokens, "predicted_ms",
        written * 1e3, "predicted_per_token_ms", each(n, written * 1e3), "predicted_per_second",
        per_second(n, written));
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

static json_t *part(const struct choice *c, const char *text, size_t n, bool stop)
{
    json_t *o = json_pack("{s:i, s:o, s:b}", "index", (int)c->index, "content",
                          answer_text(text, n), "stop", stop);
    return answer_ids(c, o);
}

static json_t *ended(const struct answer *a, const struct choice *c, const char *text, size_t n)
{
    json_t *o = part(c, text, n, true);
    json_object_set_new(o, "model", json_string(a->server->o.name));
    json_object_set_new(o, "id_slot", json_integer(-1));
    json_object_set_new(o, "tokens_predicted", json_integer((json_int_t)c->new_tokens));
    json_object_set_new(o, "tokens_evaluated", json_integer((json_int_t)a->prompt_tokens));
    json_object_set_new(o, "tokens_cached",
                        json_integer((json_int_t)a->prompt_tokens + (json_int_t)c->new_tokens));
    json_object_set_new(o, "truncated", json_false());
    json_object_set_new(o, "stop_type", json_string(stop_type(c)));
    json_object_set_new(o, "stopping_word", json_string(""));
    json_object_set_new(o, "timings", timings(a));
    json_object_set_new(o, "kvik", answer_kvik(a));
    return o;
}

static void piece(struct answer *a, struct choice *c, enum piece kind, const char *text)
{
    (void)kind;
    answer_event(a, NULL, part(c, text, strlen(text), false));
}

static void ending(struct answer *a, struct choice *c)
{
    answer_event(a, NULL, ended(a, c, "", 0));
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
        json_t *o = ended(a, c, c->text.data, c->text.len);
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
                                           .broken = broken,
                                           .whole = whole};

static int read_body(const struct server *s, struct ask *k, json_t *body)
{
    json_t *limit = json_object_get(body, "n_predict");
    /* -1: no limit. */
    if (limit && (!json_is_integer(limit) || json_integer_value(limit) > 0))
        json_object_set(body, "max_tokens", limit);
    TRY(ask_sampling(k, body));
    return ask_prompt(k, s, json_object_get(body, "prompt"));
}

static int complete(struct server *s, struct exchange *x)
{
    json_t *body;
    struct ask k;
    TRY(body_read(x, &body));
    ask_init(&k);
    int e = read_body(s, &k, body);
    if (e >= 0) e = ask_run(s, x, &completion, &k);
    ask_done(&k);
    json_decref(body);
    return e;
}

static const struct route completion_routes[] = {
    {"/completion", EXCHANGE_POST, .protocol = &completion, .answer = complete},
};
ROUTES(completion_routes);
