/* native.c - llama-server's own routes: health, properties, tokens, templates, slots. */
#include "base/utf8.h"
#include "serve/net.h"
#include "serve/outage.h"
#include "serve/protocol.h"
#include "serve/reasoning.h"
#include "serve/token_text.h"

#include <string.h>

enum { MOST_PIECES = 1 << 20 }; /* most tokens of an answer of /tokenize: each is an object */

static int health(struct server *s, struct exchange *x)
{
    (void)s;
    exchange_json(x, 200, json_pack("{s:s}", "status", "ok"));
    return 0;
}

/* Adds the text of a token.  A token that is a part of a character has an array of bytes instead. */
static json_t *with_piece(const kvik_tokenizer *t, int32_t token, json_t *id)
{
    struct buf b;
    buf_init(&b, SIZE_MAX);
    (void)token_text(t, token, &b);
    bool whole = utf8_valid(b.data, b.len);
    json_t *o =
        json_pack("{s:o, s:o}", "id", id, "piece", whole ? token_string(&b) : token_bytes(&b));
    buf_done(&b);
    return o;
}

static int tokenize(struct server *s, struct exchange *x)
{
    json_t *body, *list = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    bool special = false, pieces = false;
    TRY(body_read(x, &body));
    json_t *content = json_object_get(body, "content");
    int e = json_is_string(content)
                ? 0
                : ERR(ARG, "field \"content\" must be a string, not %s", JSON_QUOTE(content));
    if (e >= 0) e = json_get_bool(body, "the request", "add_special", &special);
    if (e >= 0) e = json_get_bool(body, "the request", "with_pieces", &pieces);
    if (e >= 0)
        e = kvik_tokenizer_encode(s->tokenizer, json_string_value(content),
                                  json_string_length(content), special, &ids, &n);
    if (e >= 0 && pieces && n > MOST_PIECES)
        e = ERR(LIMIT,
                "field \"with_pieces\": the text has %zu tokens, and %d pieces are told at most", n,
                MOST_PIECES);
    if (e >= 0) list = json_array();
    for (size_t i = 0; list && i < n; i++) {
        json_t *id = json_integer(ids[i]);
        json_array_append_new(list, pieces ? with_piece(s->tokenizer, ids[i], id) : id);
    }
    kvik_free(ids);
    json_decref(body);
    if (e >= 0) exchange_json(x, 200, json_pack("{s:o}", "tokens", list));
    return e;
}

static int detokenize(struct server *s, struct exchange *x)
{
    struct ask k;
    json_t *body;
    char *text = NULL;
    size_t n = 0;
    TRY(body_read(x, &body));
    ask_init(&k);
    json_t *tokens = json_object_get(body, "tokens");
    int e = json_is_array(tokens)
                ? ask_prompt(&k, s, tokens)
                : ERR(ARG, "field \"tokens\" must be an array of token ids, not %s",
                      JSON_QUOTE(tokens));
    if (e >= 0) e = kvik_tokenizer_decode(s->tokenizer, k.ids, k.n, false, &text, &n);
    if (e >= 0) exchange_json(x, 200, json_pack("{s:o}", "content", answer_text(text, n)));
    kvik_free(text);
    ask_done(&k);
    json_decref(body);
    return e;
}

static int apply_template(struct server *s, struct exchange *x)
{
    struct ask k;
    json_t *body;
    char *messages = NULL, *kwargs = NULL, *text = NULL, *own = NULL;
    TRY(body_read(x, &body));
    ask_init(&k);
    int e = ask_refuse_nul(body, NULL);
    /* The answer is a text, which a NUL would end. */
    if (e >= 0) e = ask_refuse_nul(body, "messages");
    if (e >= 0) e = ask_messages(&k, s, json_object_get(body, "messages"));
    if (e >= 0) e = ask_kwargs(&k, s, body);
    if (e >= 0) e = json_text(k.messages, &messages);
    if (e >= 0) e = json_text(k.kwargs, &kwargs);
    kvik_chat chat = {.size = sizeof chat, .json = messages, .kwargs = kwargs};
    if (e >= 0) e = reasoning_template(s, &chat, k.kwargs, &own);
    chat.template_text = own;
    if (e >= 0) e = kvik_chat_render(s->tokenizer, &chat, &text);
    if (e >= 0)
        exchange_json(x, 200, json_pack("{s:o}", "prompt", answer_text(text, strlen(text))));
    kvik_free(text);
    mem_free(own);
    mem_free(messages);
    mem_free(kwargs);
    ask_done(&k);
    json_decref(body);
    return e;
}

static int props(struct server *s, struct exchange *x)
{
    const char *template = kvik_tokenizer_template(s->tokenizer);
    json_t *settings = json_pack("{s:I, s:{s:I}}", "n_ctx", (json_int_t)server_capacity(s),
                                 "params", "seed", (json_int_t)s->seed);
    json_t *all = json_pack(
        "{s:o, s:i, s:s, s:s, s:s?, s:s, s:{s:b}}", "default_generation_settings", settings,
        "total_slots", (int)s->o.parallel, "model_alias", s->o.name, "model_path", s->o.path,
        "chat_template", template, "build_info", "kvik " KVIK_VERSION, "modalities", "vision", 0);
    struct scheduler_state t;
    scheduler_look(s->scheduler, &t);
    if (t.shares) json_object_set_new(all, "prefix_store", outage_json(&t.store));
    if (s->o.prefix_dir) json_object_set_new(all, "prefix_cache", outage_dir_json(t.dir_error));
    exchange_json(x, 200, all);
    return 0;
}

/* Answers with an empty list, because there are no adapters. */
static int adapters(struct server *s, struct exchange *x)
{
    (void)s;
    exchange_json(x, 200, json_array());
    return 0;
}

static const struct route routes[] = {
    {"/lora-adapters", EXCHANGE_GET, .light = true, .protocol = &protocol_openai,
     .answer = adapters},
    {"/health", EXCHANGE_GET, .open = true, .light = true, .protocol = &protocol_openai,
     .answer = health},
    {"/v1/health", EXCHANGE_GET, .open = true, .light = true, .protocol = &protocol_openai,
     .answer = health},
    {"/ready", EXCHANGE_GET, .open = true, .light = true, .protocol = &protocol_openai,
     .answer = health},
    {"/props", EXCHANGE_GET, .light = true, .protocol = &protocol_openai, .answer = props},
    {"/tokenize", EXCHANGE_POST, .protocol = &protocol_openai, .answer = tokenize},
    {"/detokenize", EXCHANGE_POST, .protocol = &protocol_openai, .answer = detokenize},
    {"/apply-template", EXCHANGE_POST, .protocol = &protocol_openai, .answer = apply_template},
};
ROUTES(routes);
