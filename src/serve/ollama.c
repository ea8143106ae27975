/* ollama.c - Ollama's own protocol: chats and texts, as whole answers or as streams with a line of JSON for each
 * part.  Streams are the default.  Options stand in an object of their own, under Ollama's names. */
#include "serve/infill.h"
#include "serve/replay.h"
#include "serve/tool_schema.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static json_t *error(const struct fault *f)
{
    return json_pack("{s:s}", "error", f->sentence);
}

static void send_line(struct answer *a, json_t *o)
{
    char *text = NULL;
    struct buf b;
    buf_init(&b, SIZE_MAX);
    bool whole =
        o && json_text(o, &text) == 0 && buf_puts(&b, text) >= 0 && buf_putc(&b, '\n') >= 0;
    answer_send(a, whole ? &b : NULL);
    buf_done(&b);
    mem_free(text);
    json_decref(o);
}

enum { TIME_TEXT = 40 };
static void time_text(time_t seconds, char out[TIME_TEXT])
{
    struct tm t;
    strftime(out, TIME_TEXT, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &t));
}

static json_t *head(const struct answer *a)
{
    char when[TIME_TEXT];
    time_text((time_t)a->created, when);
    return json_pack("{s:s, s:s}", "model", a->server->o.name, "created_at", when);
}

static json_t *nanoseconds_of(double seconds)
{
    return json_integer((json_int_t)llround(fmax(seconds, 0) * 1e9));
}

static void add_ending(const struct answer *a, json_t *o)
{
    /* Ollama has no own reason for texts that end with calls */
    const char *reason = answer_finish(&a->choice[0]);
    bool full = reason && !strcmp(reason, "length");
    json_object_set_new(o, "done", json_true());
    json_object_set_new(o, "done_reason", json_string(full ? "length" : "stop"));
    json_object_set_new(o, "total_duration", nanoseconds_of(a->seconds));
    json_object_set_new(o, "load_duration", nanoseconds_of(a->waited));
    json_object_set_new(o, "prompt_eval_count", json_integer((json_int_t)a->prompt_tokens));
    json_object_set_new(o, "prompt_eval_duration", nanoseconds_of(a->first - a->waited));
    json_object_set_new(o, "eval_count", json_integer((json_int_t)a->new_tokens));
    json_object_set_new(o, "eval_duration", nanoseconds_of(a->decoding));
    json_object_set_new(o, "kvik", answer_kvik(a));
}

/* Adds the probabilities of tokens that earlier lines have not told, if the request asks for them. */
static json_t *add_logprobs(struct choice *c, json_t *o)
{
    json_t *list = answer_probabilities(c);
    if (list) json_object_set_new(o, "logprobs", list);
    return o;
}

static void broken(struct answer *a, const struct fault *f)
{
    send_line(a, error(f));
}

/* --- Chat. */

static json_t *chat_line(const struct answer *a, json_t *message)
{
    json_t *o = head(a);
    json_object_set_new(o, "message", message);
    json_object_set_new(o, "done", json_false());
    return o;
}

static void chat_piece(struct answer *a, struct choice *c, enum piece kind, const char *text)
{
    bool thinks = kind == PIECE_REASONING;
    json_t *m = json_pack("{s:s, s:o}", "role", "assistant", "content",
                          answer_text(thinks ? "" : text, thinks ? 0 : strlen(text)));
    if (thinks) json_object_set_new(m, "thinking", answer_text(text, strlen(text)));
    send_line(a, add_logprobs(c, chat_line(a, m)));
}

/* Returns a call as Ollama shows it: its arguments are an object. */
static json_t *shown_call(const struct call *k, uint32_t index)
{
    json_t *o = NULL;
    (void)json_parse(call_arguments(k), strlen(call_arguments(k)), "arguments", &o);
    return json_pack("{s:s, s:{s:i, s:s, s:o}}", "id", k->id, "function", "index", (int)index,
                     "name", k->name, "arguments", o ? o : json_object());
}

static void chat_called(struct answer *a, struct choice *c)
{
    const struct call *k = &c->call[c->n_calls - 1];
    send_line(a, chat_line(a, json_pack("{s:s, s:s, s:[o]}", "role", "assistant", "content", "",
                                        "tool_calls", shown_call(k, c->n_calls - 1))));
}

static void chat_done(struct answer *a)
{
    json_t *o = chat_line(a, json_pack("{s:s, s:s}", "role", "assistant", "content", ""));
    add_ending(a, o);
    send_line(a, o);
}

static json_t *chat_whole(struct answer *a)
{
    struct choice *c = &a->choice[0];
    json_t *m = answer_message(c), *thought = json_object_get(m, "reasoning_content"),
           *list = c->n_calls ? json_array() : NULL;
    for (uint32_t i = 0; i < c->n_calls; i++)
        json_array_append_new(list, shown_call(&c->call[i], i));
    if (list) json_object_set_new(m, "tool_calls", list);
    if (!c->text.len) json_object_set_new(m, "content", json_string(""));
    if (thought) {
        json_object_set(m, "thinking", thought);
        json_object_del(m, "reasoning_content");
    }
    json_t *o = chat_line(a, m);
    add_ending(a, o);
    return add_logprobs(c, o);
}

static const struct protocol chats = {.name = "ollama.chat",
                                      .prefix = "ollama-",
                                      .call_prefix = "call_",
                                      .stream = "application/x-ndjson",
                                      .error = error,
                                      .piece = chat_piece,
                                      .calls = true,
                                      .called = chat_called,
                                      .done = chat_done,
                                      .broken = broken,
                                      .whole = chat_whole};

/* --- Texts. */

static json_t *text_line(const struct answer *a, const char *text, size_t n)
{
    json_t *o = head(a);
    json_object_set_new(o, "response", answer_text(text, n));
    json_object_set_new(o, "done", json_false());
    return o;
}

static void text_piece(struct answer *a, struct choice *c, enum piece kind, const char *text)
{
    bool thinks = kind == PIECE_REASONING;
    json_t *o = text_line(a, thinks ? "" : text, thinks ? 0 : strlen(text));
    if (thinks) json_object_set_new(o, "thinking", answer_text(text, strlen(text)));
    send_line(a, add_logprobs(c, o));
}

static void text_done(struct answer *a)
{
    json_t *o = text_line(a, "", 0);
    add_ending(a, o);
    send_line(a, o);
}

static json_t *text_whole(struct answer *a)
{
    struct choice *c = &a->choice[0];
    json_t *o = text_line(a, c->text.data, c->text.len);
    if (c->reason.len)
        json_object_set_new(o, "thinking", answer_text(c->reason.data, c->reason.len));
    add_ending(a, o);
    return add_logprobs(c, o);
}

static const struct protocol texts = {.name = "ollama.generate",
                                      .prefix = "ollama-",
                                      .stream = "application/x-ndjson",
                                      .error = error,
                                      .calls = true, /* reasoning is separated from the text */
                                      .piece = text_piece,
                                      .done = text_done,
                                      .broken = broken,
                                      .whole = text_whole};

/* --- Requests. */

/* Ollama's names of options beside those that OpenAI has. */
static const char *const renamed[][2] = {{"num_predict", "max_tokens"}};

/* Reads the object "options" as the fields of other protocols.  num_predict -1 and -2: no limit. */
static int read_options(struct ask *k, const struct server *s, const json_t *body)
{
    static const struct field_type type = {"options", FIELD_OBJECT};
    json_t *given = json_object_get(body, "options"), *o, *v;
    TRY(ask_types(body, &type, 1));
    if (!(o = json_is_object(given) ? json_copy(given) : json_object()))
        return ERR(NOMEM, "out of memory");
    for (size_t i = 0; i < countof(renamed); i++) {
        if (!(v = json_object_get(o, renamed[i][0]))) continue;
        if (!json_is_integer(v) || json_integer_value(v) > 0) json_object_set(o, renamed[i][1], v);
        json_object_del(o, renamed[i][0]);
    }
    json_object_del(o, "stream");
    json_object_del(o, "n");
    int e = ask_sampling(k, s, o);
    json_decref(o);
    k->stream = true;
    if (e >= 0) e = json_get_bool(body, "the request", "stream", &k->stream);
    if (e >= 0) e = json_get_bool(body, "the request", "logprobs", &k->logprobs);
    if (e >= 0)
        e = json_get_u32(body, "the request", "top_logprobs", 0, MOST_TOP, &k->top_logprobs);
    return e;
}

/* Reads "think": whether the model reasons, or how much ("low", "medium", "high").  It sets the variables of the
 * template that other protocols set. */
static int read_template(struct ask *k, const struct server *s, const json_t *body)
{
    static const struct field_type types[] = {{"think", FIELD_BOOL | FIELD_TEXT},
                                              {"chat_template_kwargs", FIELD_OBJECT}};
    const json_t *think = json_object_get(body, "think");
    TRY(ask_types(body, types, countof(types)));
    json_t *chat = json_copy((json_t *)(uintptr_t)body),
           *kwargs = json_copy(json_object_get(body, "chat_template_kwargs"));
    if (!kwargs) kwargs = json_object();
    if (json_is_string(think))
        json_object_set(chat, "reasoning_effort", (json_t *)(uintptr_t)think);
    if (json_is_boolean(think) || json_is_string(think))
        json_object_set_new(kwargs, "enable_thinking", json_boolean(!json_is_false(think)));
    json_object_set_new(chat, "chat_template_kwargs", kwargs);
    int e = chat ? ask_kwargs(k, s, chat) : ERR(NOMEM, "out of memory");
    json_decref(chat);
    return e;
}

static void rename_key(json_t *o, const char *from, const char *to)
{
    json_t *v = json_object_get(o, from);
    if (v && !json_object_get(o, to)) json_object_set(o, to, v);
    json_object_del(o, from);
}

/* Reads messages.  Some of their fields have other names than OpenAI's. */
static int read_messages(struct ask *k, const struct server *s, const json_t *given)
{
    json_t *list = json_is_array(given) ? json_array() : NULL;
    const json_t *m;
    size_t i;
    int e = 0;
    json_array_foreach(given, i, m)
    {
        json_t *own = json_copy((json_t *)(uintptr_t)m);
        if (json_array_size(json_object_get(m, "images")))
            e = ERR(UNSUPPORTED, "field \"messages[%zu].images\": this model reads text", i);
        rename_key(own, "thinking", "reasoning_content");
        rename_key(own, "tool_name", "name");
        json_array_append_new(list, own);
    }
    if (e >= 0) e = ask_messages(k, s, list);
    json_decref(list);
    return e;
}

/* Reads "format": "json", or a schema. */
static int read_format(struct ask *k, const json_t *body)
{
    json_t *format = json_object_get(body, "format");
    const char *name = json_string_value(format);
    if (!format || json_is_null(format) || (name && !*name)) return 0;
    if (name && !strcmp(name, "json")) return ask_schema(k, json_string("json_object"));
    if (json_is_object(format)) {
        json_t *own = json_deep_copy(format);
        tool_schema_close(own); /* as Ollama's own server */
        return ask_schema(k, own);
    }
    return ERR(ARG, "field \"format\" must be \"json\" or a schema, which is an object, not %s",
               JSON_QUOTE(format));
}

static int read_chat(struct server *s, struct exchange *x, struct ask *k, json_t *body)
{
    TRY(read_options(k, s, body));
    TRY(read_format(k, body));
    TRY(read_messages(k, s, json_object_get(body, "messages")));
    TRY(read_template(k, s, body));
    return replay_render(k, s, x->client);
}

/* Reads a prompt.  It is a message of a user unless the request is `raw`. */
static int read_text(struct server *s, struct exchange *x, struct ask *k, json_t *body)
{
    json_t *prompt = json_object_get(body, "prompt"), *system = json_object_get(body, "system");
    static const struct field_type types[] = {
        {"system", FIELD_TEXT}, {"suffix", FIELD_TEXT}, {"images", FIELD_LIST}};
    bool raw = false;
    TRY(ask_types(body, types, countof(types)));
    TRY(read_options(k, s, body));
    TRY(read_format(k, body));
    TRY(json_get_bool(body, "the request", "raw", &raw));
    if (json_array_size(json_object_get(body, "images")))
        return ERR(UNSUPPORTED, "field \"images\": this model reads text");
    if (!json_is_string(prompt))
        return ERR(ARG, "field \"prompt\" must be a string, not %s", JSON_QUOTE(prompt));
    if (json_string_length(json_object_get(body, "suffix")))
        return infill_prompt(k, s, NULL, prompt, NULL, json_object_get(body, "suffix"));
    if (raw || !kvik_tokenizer_template(s->tokenizer)) return ask_prompt(k, s, prompt);
    if (!(k->messages = json_array())) return ERR(NOMEM, "out of memory");
    if (json_string_length(system))
        json_array_append_new(k->messages,
                              json_pack("{s:s, s:O}", "role", "system", "content", system));
    json_array_append_new(k->messages, json_pack("{s:s, s:O}", "role", "user", "content", prompt));
    TRY(read_template(k, s, body));
    return replay_render(k, s, x->client);
}

/* Answers a request without messages and prompt, by which a client only wants the model to be loaded. */
static void say_loaded(struct server *s, struct exchange *x, const char *field, json_t *value)
{
    struct answer a = {.server = s, .created = (int64_t)time(NULL)};
    json_t *o = head(&a);
    json_object_set_new(o, field, value);
    json_object_set_new(o, "done", json_true());
    json_object_set_new(o, "done_reason", json_string("load"));
    exchange_json(x, 200, o);
}

static int read_chat_or_load(struct server *s, struct exchange *x, struct ask *k, json_t *body)
{
    const json_t *messages = json_object_get(body, "messages");
    if (!json_is_array(messages) || json_array_size(messages)) return read_chat(s, x, k, body);
    say_loaded(s, x, "message", json_pack("{s:s, s:s}", "role", "assistant", "content", ""));
    return 1;
}

static int read_text_or_load(struct server *s, struct exchange *x, struct ask *k, json_t *body)
{
    const json_t *prompt = json_object_get(body, "prompt");
    if (prompt && (!json_is_string(prompt) || json_string_length(prompt)))
        return read_text(s, x, k, body);
    say_loaded(s, x, "response", json_string(""));
    return 1;
}

static int chat(struct server *s, struct exchange *x)
{
    return ask_serve(s, x, &chats, read_chat_or_load);
}

static int generate(struct server *s, struct exchange *x)
{
    return ask_serve(s, x, &texts, read_text_or_load);
}

/* --- The model. */

/* Describes the model as Ollama does; NULL if memory is short. */
static json_t *details(const struct server *s, json_t **about)
{
    char *text = NULL;
    json_t *o = NULL;
    *about = NULL;
    if (kvik_model_describe(s->o.model, &text) < 0) return NULL;
    (void)json_parse(text, strlen(text), "the description", &o);
    kvik_free(text);
    *about = o;
    const char *family = json_string_value(json_object_get(o, "architecture"));
    return json_pack("{s:s, s:s, s:[s], s:s, s:s, s:s}", "format", "gguf", "family",
                     family ? family : "", "families", family ? family : "", "parent_model", "",
                     "parameter_size", "", "quantization_level", "");
}

/* Lists the available models, or (running) those in memory.  There is one model, which is always in memory. */
static json_t *models_json(const struct server *s, bool running)
{
    struct stat st;
    char when[TIME_TEXT];
    json_t *about, *d = details(s, &about);
    json_int_t bytes = json_integer_value(json_object_get(about, "bytes"));
    json_decref(about);
    time_text(stat(s->o.path, &st) == 0 ? st.st_mtime : (time_t)s->created, when);
    json_t *m = json_pack("{s:s, s:s, s:s, s:I, s:s, s:o}", "name", s->o.name, "model", s->o.name,
                          "modified_at", when, "size", bytes, "digest", "", "details", d);
    if (running)
        json_object_update_new(m, json_pack("{s:s, s:i, s:I}", "expires_at", "2999-01-01T00:00:00Z",
                                            "size_vram", 0, "context_length",
                                            (json_int_t)server_capacity(s)));
    return m ? json_pack("{s:[o]}", "models", m) : NULL;
}

static int tags(struct server *s, struct exchange *x)
{
    exchange_json(x, 200, models_json(s, false));
    return 0;
}

static int ps(struct server *s, struct exchange *x)
{
    exchange_json(x, 200, models_json(s, true));
    return 0;
}

static int show(struct server *s, struct exchange *x)
{
    json_t *about, *d = details(s, &about);
    const char *template = kvik_tokenizer_template(s->tokenizer),
               *family = json_string_value(json_object_get(about, "architecture"));
    char key[96];
    snprintf(key, sizeof key, "%.60s.context_length", family ? family : "model");
    json_t *info = json_pack("{s:s, s:I}", "general.architecture", family ? family : "", key,
                             (json_int_t)server_capacity(s));
    json_t *can = json_pack("[s]", "completion");
    if (template && strstr(template, "tools")) json_array_append_new(can, json_string("tools"));
    exchange_json(x, 200,
                  json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "modelfile", "", "parameters", "",
                            "template", template ? template : "", "details", d, "model_info", info,
                            "capabilities", can));
    json_decref(about);
    return 0;
}

static int version(struct server *s, struct exchange *x)
{
    (void)s;
    exchange_json(x, 200, json_pack("{s:s}", "version", KVIK_VERSION));
    return 0;
}

static const struct route ollama_routes[] = {
    {"/api/chat", EXCHANGE_POST, .protocol = &chats, .answer = chat},
    {"/api/generate", EXCHANGE_POST, .protocol = &texts, .answer = generate},
    {"/api/tags", EXCHANGE_GET, .protocol = &texts, .answer = tags},
    {"/api/ps", EXCHANGE_GET, .protocol = &texts, .answer = ps},
    {"/api/show", EXCHANGE_POST, .protocol = &texts, .answer = show},
    {"/api/version", EXCHANGE_GET, .light = true, .protocol = &texts, .answer = version},
};
ROUTES(ollama_routes);
