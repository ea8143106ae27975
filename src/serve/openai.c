/* openai.c - OpenAI's chat completions and completions, whole and as streams. */
#include "serve/infill.h"
#include "serve/replay.h"

#include <string.h>

static const char *type_of(const struct fault *f)
{
    if (f->n_ctx) return "exceed_context_size_error";
    switch (f->status) {
    case 401:
        return "authentication_error";
    case 404:
        return "not_found_error";
    case 501:
        return "not_supported_error";
    case 503:
        return "unavailable_error";
    default:
        return f->status < 500 ? "invalid_request_error" : "server_error";
    }
}

static json_t *error(const struct fault *f)
{
    json_t *e = json_pack("{s:i, s:s, s:s, s:n}", "code", f->status, "message", f->sentence, "type",
                          type_of(f), "param");
    if (f->n_ctx) {
        json_object_set_new(e, "n_prompt_tokens", json_integer((json_int_t)f->n_prompt));
        json_object_set_new(e, "n_ctx", json_integer((json_int_t)f->n_ctx));
    }
    return json_pack("{s:o}", "error", e);
}

/* Makes the fields with which chunks and whole answers begin. */
static json_t *head(const struct answer *a, const char *object)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s}", "id", a->id, "object", object, "created",
                     (json_int_t)a->created, "model", a->server->o.name, "system_fingerprint",
                     "b" KVIK_VERSION "-kvik");
}

static void add_ending(const struct answer *a, json_t *o)
{
    json_object_set_new(o, "usage", answer_usage(a));
    json_object_set_new(o, "timings", answer_timings(a));
    json_object_set_new(o, "kvik", answer_kvik(a));
}

static void broken(struct answer *a, const struct fault *f)
{
    answer_event(a, NULL, error(f));
}

static void send_done(struct answer *a)
{
    static const char end[] = "data: [DONE]\n\n";
    exchange_send(a->x, end, sizeof end - 1);
}

/* --- Chat. */

static void chat_chunk(struct answer *a, struct choice *c, json_t *delta, json_t *logprobs)
{
    json_t *o = head(a, "chat.completion.chunk");
    json_t *one = json_pack("{s:i, s:o, s:o, s:s?}", "index", (int)c->index, "delta", delta,
                            "logprobs", logprobs, "finish_reason", answer_finish(c));
    json_object_set_new(o, "choices", json_pack("[o]", answer_ids(c, one)));
    if (c->new_tokens) answer_add_timings(a, c, o);
    answer_event(a, NULL, o);
}

/* Sends how far the prompt is, in a chunk whose choice has no text. */
static void send_progress(struct answer *a, json_t *o, json_t *choice, json_t *progress,
                          json_t *times)
{
    json_object_set_new(o, "choices", json_pack("[o]", choice));
    json_object_set_new(o, "prompt_progress", progress);
    if (times) json_object_set_new(o, "timings", times);
    answer_event(a, NULL, o);
}

static void chat_progress(struct answer *a, json_t *progress, json_t *times)
{
    send_progress(
        a, head(a, "chat.completion.chunk"),
        json_pack("{s:i, s:{}, s:n, s:n}", "index", 0, "delta", "logprobs", "finish_reason"),
        progress, times);
}

static void chat_begin(struct answer *a)
{
    for (uint32_t i = 0; i < a->ask.choices; i++)
        chat_chunk(a, &a->choice[i], json_pack("{s:s, s:n}", "role", "assistant", "content"),
                   json_null());
}

static void chat_piece(struct answer *a, struct choice *c, enum piece kind, const char *text)
{
    const char *field = kind == PIECE_REASONING ? "reasoning_content" : "content";
    chat_chunk(a, c, json_pack("{s:o}", field, answer_text(text, strlen(text))),
               answer_logprobs(c));
}

/* Begins a call in a stream.  It has empty arguments, as clients that join the parts expect. */
static void chat_call(struct answer *a, struct choice *c)
{
    json_t *o = answer_call(&c->call[c->n_calls - 1], "");
    json_object_set_new(o, "index", json_integer((json_int_t)c->n_calls - 1));
    chat_chunk(a, c, json_pack("{s:[o]}", "tool_calls", o), answer_logprobs(c));
}

static void chat_arguments(struct answer *a, struct choice *c, const char *text)
{
    chat_chunk(a, c,
               json_pack("{s:[{s:i, s:{s:s}}]}", "tool_calls", "index", (int)c->n_calls - 1,
                         "function", "arguments", text),
               answer_logprobs(c));
}

static void chat_ending(struct answer *a, struct choice *c)
{
    chat_chunk(a, c, json_object(), answer_logprobs(c));
}

static void chat_done(struct answer *a)
{
    if (a->ask.include_usage) {
        json_t *o = head(a, "chat.completion.chunk");
        json_object_set_new(o, "choices", json_array());
        add_ending(a, o);
        answer_event(a, NULL, o);
    }
    send_done(a);
}

static json_t *chat_choice(struct choice *c)
{
    return answer_ids(c, json_pack("{s:i, s:o, s:o, s:s?}", "index", (int)c->index, "message",
                                   answer_message(c), "logprobs", answer_logprobs(c),
                                   "finish_reason", answer_finish(c)));
}

static json_t *chat_whole(struct answer *a)
{
    json_t *o = head(a, "chat.completion"), *list = json_array();
    for (uint32_t i = 0; i < a->ask.choices; i++)
        json_array_append_new(list, chat_choice(&a->choice[i]));
    json_object_set_new(o, "choices", list);
    add_ending(a, o);
    if (a->ask.verbose) json_object_set_new(o, "__verbose", answer_verbose(a));
    return o;
}

const struct protocol protocol_openai = {.name = "openai.chat",
                                         .prefix = "chatcmpl-",
                                         .call_prefix = "call_",
                                         .stream = "text/event-stream",
                                         .comments = true,
                                         .error = error,
                                         .begin = chat_begin,
                                         .piece = chat_piece,
                                         .calls = true,
                                         .call = chat_call,
                                         .arguments = chat_arguments,
                                         .ending = chat_ending,
                                         .done = chat_done,
                                         .progress = chat_progress,
                                         .broken = broken,
                                         .whole = chat_whole};

/* --- Completions. */

/* Makes the logprobs of completions: one array for each property. */
static json_t *legacy_logprobs(struct choice *c)
{
    json_t *given = answer_logprobs(c), *entry, *top, *tokens, *numbers, *tops, *offsets;
    size_t i, k;
    int offset = 0;
    if (json_is_null(given)) return given;
    tokens = json_array(), numbers = json_array(), tops = json_array(), offsets = json_array();
    json_array_foreach(json_object_get(given, "content"), i, entry)
    {
        json_t *token = json_object_get(entry, "token"), *map = json_object(), *one;
        json_array_append(tokens, token);
        json_array_append(numbers, json_object_get(entry, "logprob"));
        json_array_append_new(offsets, json_integer(offset));
        offset += (int)json_string_length(token);
        top = json_object_get(entry, "top_logprobs");
        json_array_foreach(top, k, one)
        {
            json_object_set(map, json_string_value(json_object_get(one, "token")),
                            json_object_get(one, "logprob"));
        }
        json_array_append_new(tops, map);
    }
    json_decref(given);
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", numbers,
                     "top_logprobs", tops, "text_offset", offsets);
}

static json_t *text_choice(struct choice *c, const char *text, size_t n)
{
    return json_pack("{s:i, s:o, s:o, s:s?}", "index", (int)c->index, "text", answer_text(text, n),
                     "logprobs", legacy_logprobs(c), "finish_reason", answer_finish(c));
}

static void text_chunk(struct answer *a, struct choice *c, const char *text)
{
    json_t *o = head(a, "text_completion");
    json_t *one = answer_ids(c, text_choice(c, text, strlen(text)));
    json_object_set_new(o, "choices", json_pack("[o]", one));
    answer_add_timings(a, c, o);
    answer_event(a, NULL, o);
}

static void text_progress(struct answer *a, json_t *progress, json_t *times)
{
    send_progress(a, head(a, "text_completion"), text_choice(&a->choice[0], "", 0), progress,
                  times);
}

static void text_piece(struct answer *a, struct choice *c, enum piece kind, const char *text)
{
    (void)kind;
    text_chunk(a, c, text);
}

static void text_ending(struct answer *a, struct choice *c)
{
    text_chunk(a, c, "");
}

static void text_done(struct answer *a)
{
    if (a->ask.include_usage) {
        json_t *o = head(a, "text_completion");
        json_object_set_new(o, "choices", json_array());
        add_ending(a, o);
        answer_event(a, NULL, o);
    }
    send_done(a);
}

static json_t *text_whole(struct answer *a)
{
    json_t *o = head(a, "text_completion"), *list = json_array();
    for (uint32_t i = 0; i < a->ask.choices; i++) {
        struct choice *c = &a->choice[i];
        json_array_append_new(list, answer_ids(c, text_choice(c, c->text.data, c->text.len)));
    }
    json_object_set_new(o, "choices", list);
    add_ending(a, o);
    return o;
}

static const struct protocol completions = {.name = "openai.completions",
                                            .prefix = "cmpl-",
                                            .stream = "text/event-stream",
                                            .comments = true,
                                            .error = error,
                                            .piece = text_piece,
                                            .ending = text_ending,
                                            .done = text_done,
                                            .progress = text_progress,
                                            .broken = broken,
                                            .whole = text_whole};

/* --- Requests. */

static int stream_options(struct ask *k, const json_t *body)
{
    static const struct field_type type = {"stream_options", FIELD_OBJECT};
    json_t *o = json_object_get(body, "stream_options");
    if (!o || json_is_null(o)) return 0;
    TRY(ask_types(body, &type, 1));
    return json_get_bool(o, "stream_options", "include_usage", &k->include_usage);
}

static int read_chat(struct server *s, struct exchange *x, struct ask *k, json_t *body)
{
    TRY(ask_sampling(k, s, body));
    TRY(stream_options(k, body));
    TRY(ask_format(k, json_object_get(body, "response_format"), "response_format"));
    TRY(json_get_bool(body, "the request", "logprobs", &k->logprobs));
    TRY(json_get_u32(body, "the request", "top_logprobs", 0, 20, &k->top_logprobs));
    TRY(ask_moved_chunks(&k->documents, body));
    TRY(ask_messages(k, s, json_object_get(body, "messages")));
    TRY(ask_kwargs(k, s, body));
    TRY(replay_render(k, s, x->client));
    return documents_find(&k->documents, s->tokenizer, k->ids, k->n);
}

static int read_prompt_of_chat(struct server *s, struct exchange *x, struct ask *k, json_t *body)
{
    (void)x;
    TRY(ask_messages(k, s, json_object_get(body, "messages")));
    TRY(ask_kwargs(k, s, body));
    return ask_render(k, s);
}

/* Counts the tokens of a chat without generating. */
static int count_tokens(struct server *s, struct exchange *x)
{
    struct ask k;
    int e = ask_read(s, x, read_prompt_of_chat, &k);
    if (e >= 0)
        exchange_json(x, 200,
                      json_pack("{s:s, s:I}", "object", "response.input_tokens", "input_tokens",
                                (json_int_t)k.n));
    ask_done(&k);
    return e;
}

/* Reads a prompt of parts, as those of a message: one text, in which documents may be marked. */
static int read_parts(struct ask *k, const struct server *s, const json_t *parts)
{
    const json_t *part;
    json_t *text;
    size_t i;
    json_array_foreach(parts, i, part)
    {
        if (!json_is_string(json_object_get(part, "text")))
            return ERR(ARG, "field \"prompt[%zu]\" must have a \"text\", as the first part has", i);
    }
    TRY(documents_note(&k->documents, parts));
    TRY(ask_join(parts, "prompt", 0, &text));
    int e = ask_prompt(k, s, text);
    json_decref(text);
    return e < 0 ? e : documents_find(&k->documents, s->tokenizer, k->ids, k->n);
}

static int read_text(struct server *s, struct exchange *x, struct ask *k, json_t *body)
{
    (void)x;
    bool echo = false;
    TRY(ask_sampling(k, s, body));
    TRY(stream_options(k, body));
    TRY(json_get_bool(body, "the request", "echo", &echo));
    if (echo) return ERR(UNSUPPORTED, "field \"echo\": the prompt is not repeated");
    json_t *suffix = json_object_get(body, "suffix");
    if (suffix && !json_is_null(suffix) && !json_is_string(suffix))
        return ERR(ARG, "field \"suffix\" must be a string, not %s", JSON_QUOTE(suffix));
    int e = json_get_u32(body, "the request", "logprobs", 0, 20, &k->top_logprobs);
    if (e < 0) return e;
    k->logprobs = e > 0;
    if (json_string_length(suffix)) {
        if (!json_is_string(json_object_get(body, "prompt")))
            return ERR(ARG, "field \"prompt\" must be a string where there is a \"suffix\", not %s",
                       JSON_QUOTE(json_object_get(body, "prompt")));
        return infill_prompt(k, s, NULL, json_object_get(body, "prompt"), NULL, suffix);
    }
    const json_t *prompt = json_object_get(body, "prompt");
    TRY(ask_moved_chunks(&k->documents, body));
    return json_object_get(json_array_get(prompt, 0), "text") ? read_parts(k, s, prompt)
                                                              : ask_prompts(k, s, prompt);
}

static int chat(struct server *s, struct exchange *x)
{
    return ask_serve(s, x, &protocol_openai, read_chat);
}

static int complete(struct server *s, struct exchange *x)
{
    return ask_serve(s, x, &completions, read_text);
}

static const struct route routes[] = {
    {"/v1/chat/completions", EXCHANGE_POST, .protocol = &protocol_openai, .answer = chat},
    {"/v1/chat/completions/input_tokens", EXCHANGE_POST, .protocol = &protocol_openai,
     .answer = count_tokens},
    {"/chat/completions/input_tokens", EXCHANGE_POST, .protocol = &protocol_openai,
     .answer = count_tokens},
    {"/chat/completions", EXCHANGE_POST, .protocol = &protocol_openai, .answer = chat},
    {"/v1/completions", EXCHANGE_POST, .protocol = &completions, .answer = complete},
};
ROUTES(routes);
