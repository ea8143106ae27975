/* models.c - GET /v1/models and /v1/models/NAME: there is one model, which may have several names. */
#include "base/utf8.h"
#include "serve/protocol.h"

#include <string.h>

/* Returns an array of the comma-separated words of a list, which may be NULL. */
static json_t *words_of(const char *list)
{
    json_t *all = json_array();
    while (list && *list) {
        size_t n = strcspn(list, ",");
        if (n) json_array_append_new(all, json_stringn(list, n));
        list += n + (list[n] == ',');
    }
    return all;
}

/* Describes the model as OpenAI does, followed by the fields of Anthropic, vLLM and llama-server. */
static json_t *describe(const struct server *s)
{
    json_int_t context = (json_int_t)server_capacity(s);
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:s, s:I, s:I, s:o, s:o, s:{s:I, s:I}}", "id",
                     s->o.name, "object", "model", "created", (json_int_t)s->created, "owned_by",
                     "kvik", "type", "model", "display_name", s->o.name, "max_input_tokens",
                     context, "max_model_len", context, "aliases", words_of(s->o.aliases), "tags",
                     words_of(s->o.tags), "meta", "n_ctx", context, "n_vocab",
                     (json_int_t)kvik_model_vocab(s->o.model));
}

static int models(struct server *s, struct exchange *x)
{
    json_t *other =
        json_pack("{s:s, s:s, s:s}", "name", s->o.name, "model", s->o.name, "type", "model");
    exchange_json(
        x, 200,
        json_pack("{s:s, s:[o], s:[o]}", "object", "list", "data", describe(s), "models", other));
    return 0;
}

/* Decodes the part of a path behind `at`, which may have percent signs. */
static void decode(const char *at, char *out, size_t size)
{
    size_t n = 0;
    for (; *at && n + 1 < size; at++) {
        bool coded = *at == '%' && hex_digit(at[1]) >= 0 && hex_digit(at[2]) >= 0;
        out[n++] = coded ? (char)(hex_digit(at[1]) * 16 + hex_digit(at[2])) : *at;
        if (coded) at += 2;
    }
    out[n] = 0;
}

static int one_model(struct server *s, struct exchange *x)
{
    char name[256];
    decode(strstr(x->path, "/models/") + strlen("/models/"), name, sizeof name);
    json_t *names = words_of(s->o.aliases), *one;
    size_t i;
    bool known = !strcmp(name, s->o.name);
    json_array_foreach(names, i, one)
    {
        known |= !strcmp(name, json_string_value(one));
    }
    json_decref(names);
    if (!known) return ERR(NOTFOUND, "there is no model %s; this server has %s", name, s->o.name);
    exchange_json(x, 200, describe(s));
    return 0;
}

static const struct route model_routes[] = {
    {"/v1/models", EXCHANGE_GET, .light = true, .protocol = &protocol_openai, .answer = models},
    {"/models", EXCHANGE_GET, .light = true, .protocol = &protocol_openai, .answer = models},
    {"/v1/models/", EXCHANGE_GET, .below = true, .light = true, .protocol = &protocol_openai,
     .answer = one_model},
    {"/models/", EXCHANGE_GET, .below = true, .light = true, .protocol = &protocol_openai,
     .answer = one_model},
};
ROUTES(model_routes);
