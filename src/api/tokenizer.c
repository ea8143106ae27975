/* tokenizer.c - tokenizers and chat templates as the public header shows them: plain pointers and JSON text
 * around tok/ and chat/.  kwargs is split here into the arguments of a rendering (tools, documents, the two prompt flags)
 * and variables of the template, as apply_chat_template does. */
#include "api/messages.h"
#include "base/json.h"
#include "base/map.h"
#include "chat/chat.h"
#include "chat/formats.h"
#include "fmt/fmt.h"
#include "generate/handle.h"

#include <string.h>

static int open_gguf(const char *path, struct tok **out)
{
    struct gguf *g;
    TRY(gguf_open(path, &g));
    int e = tok_open_gguf(g, out);
    gguf_close(g);
    return e;
}

KVIK_API int kvik_tokenizer_open(const char *path, kvik_tokenizer **out)
{
    if (!path || !out) return ERR(ARG, "a path is needed");
    if (!dir_exists(path) && !file_exists(path))
        return ERR(
            NOTFOUND,
            "%s: no such file or directory; give a Hugging Face model directory or a .gguf file",
            path);
    kvik_tokenizer *t = mem_alloc(sizeof *t);
    if (!t) return ERR_NOMEM;
    t->refs = 1;
    int e = dir_exists(path) ? tok_open_dir(path, &t->tok) : open_gguf(path, &t->tok);
    if (e < 0) {
        mem_free(t);
        return e;
    }
    *out = t;
    return 0;
}

KVIK_API void kvik_tokenizer_close(kvik_tokenizer *t)
{
    if (!t || !refs_drop(&t->refs)) return;
    tok_close(t->tok);
    mem_free(t);
}

/* Gives the ids to the caller as an array of its own, never NULL. */
static int take_ids(struct ids *v, int e, int32_t **ids, size_t *n)
{
    if (e >= 0 && !v->id && !(v->id = mem_alloc(sizeof *v->id))) e = ERR_NOMEM;
    if (e < 0) {
        ids_done(v);
        return e;
    }
    *ids = v->id;
    *n = v->n;
    return 0;
}

static int take_text(struct buf *b, int e, char **text, size_t *n)
{
    size_t len = b->len;
    char *s = e < 0 ? NULL : buf_take(b);
    if (!s) {
        buf_done(b);
        return e < 0 ? e : ERR_NOMEM;
    }
    *text = s;
    if (n) *n = len;
    return 0;
}

KVIK_API int kvik_tokenizer_encode(const kvik_tokenizer *t, const char *text, size_t n_bytes,
                                   bool add_special_tokens, int32_t **ids, size_t *n)
{
    struct ids v = {0};
    if (!t || (!text && n_bytes) || !ids || !n)
        return ERR(ARG, "a tokenizer and a text are needed");
    int e = tok_encode(t->tok, text ? text : "", n_bytes, add_special_tokens ? TOK_SPECIAL : 0,
                       NULL, 0, &v);
    return take_ids(&v, e, ids, n);
}

KVIK_API int kvik_tokenizer_decode(const kvik_tokenizer *t, const int32_t *ids, size_t n,
                                   bool skip_special_tokens, char **text, size_t *n_bytes)
{
    struct buf b;
    if (!t || (!ids && n) || !text) return ERR(ARG, "a tokenizer and token ids are needed");
    buf_init(&b, SIZE_MAX / 2);
    return take_text(&b, tok_decode(t->tok, ids, n, skip_special_tokens, &b), text, n_bytes);
}

KVIK_API int32_t kvik_tokenizer_find(const kvik_tokenizer *t, const char *token)
{
    return t && token ? tok_find(t->tok, token, strlen(token)) : -1;
}

KVIK_API const char *kvik_tokenizer_special(const kvik_tokenizer *t, const char *name)
{
    return t && name ? tok_special_text(t->tok, name) : NULL;
}

KVIK_API const char *kvik_tokenizer_template(const kvik_tokenizer *t)
{
    return t ? tok_chat_template(t->tok) : NULL;
}

KVIK_API int kvik_model_set_template(kvik_model *m, const char *template_text, const char *end)
{
    struct jinja *j;
    if (!m || !template_text) return ERR(ARG, "a model and a template are needed");
    if (!m->tok) return ERR(ARG, "the model has no tokenizer, so a template has no use");
    int e = jinja_compile(template_text, strlen(template_text), &j);
    if (e < 0) return err_prefix(e, "chat template");
    jinja_drop(j);
    TRY(tok_set_chat_template(m->tok->tok, template_text));
    m->turn_end = end ? tok_find(m->tok->tok, end, strlen(end)) : -1;
    return 0;
}

KVIK_API const char *kvik_format_name(uint32_t i)
{
    const struct chat_format *f = format_at(i);
    return f ? f->name : NULL;
}

static const struct chat_format *format_find(const char *name)
{
    const struct chat_format *f = NULL;
    for (uint32_t i = 0; name && (f = format_at(i)); i++)
        if (!strcmp(f->name, name)) return f;
    return NULL;
}

KVIK_API const char *kvik_format_template(const char *name)
{
    const struct chat_format *f = format_find(name);
    return f ? f->text : NULL;
}

KVIK_API const char *kvik_format_end(const char *name)
{
    const struct chat_format *f = format_find(name);
    return f ? f->end : NULL;
}

KVIK_API const char *kvik_format_guess(const kvik_tokenizer *t)
{
    const struct chat_format *f = t ? format_guess(t->tok) : NULL;
    return f ? f->name : NULL;
}

/* A rendering's inputs, parsed; request_done releases them. */
struct request {
    json_t *messages, *kwargs; /* owned; kwargs without the keys that o holds */
    json_t *tools, *documents; /* owned */
    struct jinja_now now;
    struct chat_options o;
};

static void request_done(struct request *r)
{
    json_decref(r->messages);
    json_decref(r->kwargs);
    json_decref(r->tools);
    json_decref(r->documents);
}

/* Removes a boolean argument from the kwargs; null is false. */
static int take_flag(json_t *kwargs, const char *key, bool *out)
{
    const json_t *v = json_object_get(kwargs, key);
    if (!v) return 0;
    if (!json_is_boolean(v) && !json_is_null(v))
        return ERR(ARG, "kwargs: \"%s\" must be true or false", key);
    *out = json_is_true(v);
    json_object_del(kwargs, key);
    return 0;
}

static int take_list(json_t *kwargs, const char *key, json_t **out)
{
    json_t *v = json_object_get(kwargs, key);
    if (!v) return 0;
    if (!json_is_array(v) && !json_is_null(v))
        return ERR(ARG, "kwargs: \"%s\" must be a list", key);
    if (json_is_array(v)) *out = json_incref(v);
    json_object_del(kwargs, key);
    return 0;
}

/* Takes the reference to messages; kwargs may be NULL or a JSON null and is copied. */
static int request_init(struct request *r, json_t *messages, const json_t *kwargs)
{
    *r = (struct request){.messages = messages};
    if (!json_is_array(messages))
        return ERR(ARG, "messages must be a JSON list of {\"role\", \"content\"}");
    if (kwargs && !json_is_null(kwargs) && !json_is_object(kwargs))
        return ERR(ARG, "kwargs must be a JSON object");
    r->kwargs = json_is_object(kwargs) ? json_copy((json_t *)(uintptr_t)kwargs) : json_object();
    if (!r->kwargs) return ERR(NOMEM, "out of memory");
    TRY(take_flag(r->kwargs, "add_generation_prompt", &r->o.add_generation_prompt));
    TRY(take_flag(r->kwargs, "continue_final_message", &r->o.continue_final_message));
    TRY(take_flag(r->kwargs, "allow_special_tokens", &r->o.allow_special));
    TRY(take_list(r->kwargs, "tools", &r->tools));
    TRY(take_list(r->kwargs, "documents", &r->documents));
    if (r->o.add_generation_prompt && r->o.continue_final_message)
        return ERR(ARG, "add_generation_prompt and continue_final_message exclude each other");
    r->o.tools = r->tools;
    r->o.documents = r->documents;
    r->o.kwargs = r->kwargs;
    return 0;
}

/* Takes the reference to messages, also after an error; kwargs NULL: none. */
static int request_parse(struct request *r, json_t *messages, const char *kwargs)
{
    json_t *k = NULL;
    *r = (struct request){0};
    int e = kwargs ? json_parse(kwargs, strlen(kwargs), "kwargs", &k) : 0;
    if (e < 0)
        json_decref(messages);
    else
        e = request_init(r, messages, k);
    json_decref(k);
    return e;
}

static int need_template(const kvik_tokenizer *t)
{
    if (tok_chat_template(t->tok)) return 0;
    return ERR(NOTFOUND,
               "the model has no chat template; give the text to complete instead of messages");
}

/* Renders messages, whose reference is taken, as *text; or, if text is NULL, encodes them as *ids. */
static int chat(const kvik_tokenizer *t, json_t *messages, const char *kwargs, char **text,
                int32_t **ids, size_t *n)
{
    struct request r;
    struct ids v = {0};
    struct buf b;
    buf_init(&b, JINJA_MAX_OUTPUT + 1);
    int e = request_parse(&r, messages, kwargs);
    if (e >= 0)
        e = text ? chat_render(t->tok, r.messages, &r.o, &b)
                 : chat_encode(t->tok, r.messages, &r.o, &v, NULL);
    request_done(&r);
    return text ? take_text(&b, e, text, NULL) : take_ids(&v, e, ids, n);
}

/* Does the same with messages as JSON text, or as n structs where json is NULL. */
static int chat_of(const kvik_tokenizer *t, const char *json, const kvik_message *message,
                   size_t n_messages, const char *kwargs, char **text, int32_t **ids, size_t *n)
{
    json_t *messages;
    if (!t || (!json && !message) || (!text && (!ids || !n)))
        return ERR(ARG, "a tokenizer and messages are needed");
    TRY(need_template(t));
    TRY(json ? json_parse(json, strlen(json), "messages", &messages)
             : messages_of(message, n_messages, &messages));
    return chat(t, messages, kwargs, text, ids, n);
}

KVIK_API int kvik_chat_render(const kvik_tokenizer *t, const char *messages, const char *kwargs,
                              char **text)
{
    return chat_of(t, messages, NULL, 0, kwargs, text, NULL, NULL);
}

KVIK_API int kvik_chat_encode(const kvik_tokenizer *t, const char *messages, const char *kwargs,
                              int32_t **ids, size_t *n)
{
    return chat_of(t, messages, NULL, 0, kwargs, NULL, ids, n);
}

KVIK_API int kvik_chat_render_messages(const kvik_tokenizer *t, const kvik_message *message,
                                       size_t n, const char *kwargs, char **text)
{
    return chat_of(t, NULL, message, n, kwargs, text, NULL, NULL);
}

KVIK_API int kvik_chat_encode_messages(const kvik_tokenizer *t, const kvik_message *message,
                                       size_t n, const char *kwargs, int32_t **ids, size_t *n_ids)
{
    return chat_of(t, NULL, message, n, kwargs, NULL, ids, n_ids);
}

/* Reads exactly `digits` digits at *s, then the character `after` (0: none); false if they are not there. */
static bool field(const char **s, int digits, const char *after, int lo, int hi, int *out)
{
    int v = 0;
    for (int i = 0; i < digits; i++, (*s)++) {
        if (**s < '0' || **s > '9') return false;
        v = v * 10 + (**s - '0');
    }
    if (*after && (!**s || !strchr(after, *(*s)++))) return false;
    *out = v;
    return v >= lo && v <= hi;
}

/* Reads ISO 8601 as Python writes it: a date, or a date and a time.  Fractions and zones are ignored. */
static int parse_now(const char *text, struct jinja_now *now)
{
    const char *s = text;
    struct jinja_now t = {.set = true};
    bool date = field(&s, 4, "-", 1, 9999, &t.year) && field(&s, 2, "-", 1, 12, &t.month) &&
                field(&s, 2, "", 1, 31, &t.day);
    bool only_date = date && !*s;
    bool time = date && (*s == 'T' || *s == ' ') && s++ && field(&s, 2, ":", 0, 23, &t.hour) &&
                field(&s, 2, ":", 0, 59, &t.minute) && field(&s, 2, "", 0, 60, &t.second) &&
                (!*s || strchr(".+-Z", *s));
    if (!only_date && !time)
        return ERR(ARG, "\"now\" must be a time such as \"2025-03-07T14:05:09\", not \"%.40s\"",
                   text);
    *now = t;
    return 0;
}

/* Makes the variables: special tokens, then kwargs, which win, as in Transformers. */
static int merge_special(struct request *r, const json_t *special)
{
    if (!special || json_is_null(special)) return 0;
    if (!json_is_object(special)) return ERR(ARG, "special_tokens must be a JSON object");
    if (json_object_update_missing(r->kwargs, (json_t *)(uintptr_t)special) < 0)
        return ERR(NOMEM, "out of memory");
    return 0;
}

static int request_of(struct request *r, const json_t *o)
{
    const char *now = NULL;
    *r = (struct request){0};
    if (!json_is_object(o)) return ERR(ARG, "request: must be a JSON object with \"messages\"");
    TRY(json_get_str(o, "request", "now", &now));
    TRY(request_init(r, json_incref(json_object_get(o, "messages")), json_object_get(o, "kwargs")));
    TRY(merge_special(r, json_object_get(o, "special_tokens")));
    if (now) TRY(parse_now(now, &r->now));
    if (now) r->o.now = &r->now;
    return 0;
}

KVIK_API int kvik_template_render(const char *template_text, const char *request, char **text)
{
    struct request r;
    struct buf b;
    json_t *o;
    if (!template_text || !request || !text) return ERR(ARG, "a template and a request are needed");
    TRY(json_parse(request, strlen(request), "request", &o));
    buf_init(&b, JINJA_MAX_OUTPUT + 1);
    int e = request_of(&r, o);
    r.o.template_text = template_text;
    if (e >= 0) e = chat_render(NULL, r.messages, &r.o, &b);
    request_done(&r);
    json_decref(o);
    return take_text(&b, e, text, NULL);
}
