/* prompt.c - messages to text, as apply_chat_template of Transformers (Hugging Face) does it.  The reasoning of a
 * message is given to the template under all its usual names.  A final message that the model shall continue stays
 * open.  kwargs become template variables and nothing else: they cannot reach an argument of this library
 * (CVE-2025-62426). */
#include "chat/prompt.h"
#include "base/utf8.h"
#include "chat/value.h"
#include "tok/tok.h"

#include <string.h>

#define TAG "CONTINUE_FINAL_MESSAGE_TAG "

static int set(json_t *o, const char *key, json_t *v) /* steals v */
{
    return json_object_set_new(o, key, v) == 0 ? 0 : ERR(NOMEM, "out of memory");
}

/* Makes {"thinking": r, **message, "reasoning_content": r}, where r is the first reasoning that the message has. */
static int alias_reasoning(const json_t *message, json_t **out)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    json_t *reasoning = NULL, *v;
    for (size_t i = 0; i < countof(names) && !reasoning; i++)
        if ((v = json_object_get(message, names[i])) && !json_is_null(v)) reasoning = v;
    json_t *m = json_pack("{s:O*}", "thinking", reasoning);
    if (m && json_object_update(m, (json_t *)message) == 0 &&
        (!reasoning || json_object_set(m, "reasoning_content", reasoning) == 0)) {
        *out = m;
        return 0;
    }
    json_decref(m);
    return ERR(NOMEM, "out of memory");
}

static int copy_messages(const json_t *messages, json_t **out)
{
    if (!json_is_array(messages)) return ERR(ARG, "messages must be a list of objects");
    json_t *list = json_array();
    if (!list) return ERR(NOMEM, "out of memory");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i);
        json_t *copy = NULL;
        int e = json_is_object(m) ? alias_reasoning(m, &copy)
                                  : ERR(ARG, "message %zu is not an object", i + 1);
        if (e >= 0 && json_array_append_new(list, copy) != 0) e = ERR(NOMEM, "out of memory");
        if (e < 0) {
            json_decref(list);
            return e;
        }
    }
    *out = list;
    return 0;
}

static json_t *tagged(const json_t *text)
{
    return json_pack("s%+", json_string_value(text), json_string_length(text), TAG);
}

/* Appends a tag to the text that the model shall continue, in the last message.  *text is a reference to that
 * text. */
static int tag_final(json_t *list, const char *template_text, const json_t **text)
{
    size_t n = json_array_size(list);
    if (!n) return ERR(ARG, "continue_final_message is set but the conversation is empty!");
    json_t *last = json_array_get(list, n - 1), *content = json_object_get(last, "content");
    if (!content || json_is_null(content))
        return ERR(ARG, "continue_final_message is set but the final message has no \"content\" to "
                        "continue!");
    if (!strstr(template_text, "content"))
        return ERR(ARG, "continue_final_message is set to \"content\" but this is not an accepted "
                        "field in the chat_template");
    if (json_is_string(content)) {
        *text = content;
        json_incref(content);
        return set(last, "content", tagged(content));
    }
    if (!json_is_array(content))
        return ERR(ARG, "continue_final_message: the final message's content is not a text");
    for (size_t i = json_array_size(content); i-- > 0;) {
        json_t *part = json_array_get(content, i), *t = json_object_get(part, "text");
        if (!json_is_string(t)) continue;
        json_t *own = json_deep_copy(content);
        *text = t;
        json_incref(t);
        if (!own) return ERR(NOMEM, "out of memory");
        int e = set(json_array_get(own, i), "text", tagged(t));
        int e2 = set(last, "content", own);
        return e < 0 ? e : e2;
    }
    return ERR(ARG, "continue_final_message is set but we could not find any text to continue in "
                    "the final message!");
}

/* Cuts the rendered text behind the continued text, where the tag is. */
static int cut_at_tag(struct buf *b, size_t from, const json_t *text)
{
    const char *s = json_string_value(text), *out = b->data ? b->data + from : "";
    size_t n = str_trim_end(s, 0, json_string_length(text)), len, n_out = b->len - from;
    while (n && chr_space(utf8_decode(s, n, &len))) {
        s += len;
        n -= len;
    }
    size_t tag = str_rfind(out, n_out, TAG, strlen(TAG) - 1);
    if (tag == SIZE_MAX || str_find(out, n_out, s, n) == SIZE_MAX)
        return ERR(ARG,
                   "continue_final_message is set but the final message does not appear in the "
                   "chat after applying the chat template! This can happen if the chat "
                   "template deletes portions of the final message. Please verify the chat "
                   "template and final message in your chat to ensure they are compatible."
                   "Final message to continue: %.*s",
                   (int)MIN(n, (size_t)200), s);
    bool whole = n_out - tag >= strlen(TAG) && memcmp(out + tag, TAG, strlen(TAG)) == 0;
    b->len = from + (whole ? tag : str_trim_end(out, 0, tag));
    b->data[b->len] = 0;
    return 0;
}

static int check_objects(const json_t *list, const char *what)
{
    if (!list || json_is_null(list)) return 0;
    if (!json_is_array(list)) return ERR(ARG, "%s must be a list of objects", what);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_object(json_array_get(list, i)))
            return ERR(ARG, "%s: item %zu is not an object", what, i + 1);
    return 0;
}

/* Refuses kwargs with the names of arguments of apply_chat_template: as template variables they would have no
 * effect. */
static int check_kwargs(const json_t *kwargs)
{
    static const char *const reserved[] = {"messages",
                                           "conversation",
                                           "chat_template",
                                           "tokenize",
                                           "padding",
                                           "truncation",
                                           "max_length",
                                           "return_tensors",
                                           "return_dict",
                                           "tokenizer_kwargs",
                                           "continue_final_message",
                                           "return_assistant_tokens_mask"};
    if (!kwargs) return 0;
    if (!json_is_object(kwargs)) return ERR(ARG, "chat template kwargs must be an object");
    for (size_t i = 0; i < countof(reserved); i++)
        if (json_object_get(kwargs, reserved[i]))
            return ERR(ARG, "\"%s\" is not a chat template variable; remove it from the kwargs",
                       reserved[i]);
    return 0;
}

/* Makes the variables of the template: kwargs, and over them the arguments of the call. */
static int make_vars(json_t *messages, const struct chat_options *o, json_t **out)
{
    const json_t *tools = o->tools ? o->tools : json_object_get(o->kwargs, "tools");
    const json_t *docs = o->documents ? o->documents : json_object_get(o->kwargs, "documents");
    TRY(check_kwargs(o->kwargs));
    TRY(check_objects(tools, "tools"));
    TRY(check_objects(docs, "documents"));
    json_t *own =
        json_pack("{s:O, s:O?, s:O?}", "messages", messages, "tools", tools, "documents", docs);
    json_t *v = o->kwargs ? json_copy((json_t *)o->kwargs) : json_object();
    int e = own && v && json_object_update(v, own) == 0 ? 0 : ERR(NOMEM, "out of memory");
    if (e >= 0 && (o->add_generation_prompt || !json_object_get(v, "add_generation_prompt")))
        e = set(v, "add_generation_prompt", json_boolean(o->add_generation_prompt));
    json_decref(own);
    if (e < 0)
        json_decref(v);
    else
        *out = v;
    return e;
}

/* Ends the marks where the text was cut. */
static void clip(struct rendered *m, size_t len)
{
    while (m->n_span && m->span[m->n_span - 1].from >= len)
        m->n_span--;
    for (size_t i = 0; i < m->n_span; i++)
        m->span[i].to = MIN(m->span[i].to, len);
    while (m->n_foreign && m->foreign[m->n_foreign - 1].from >= len)
        m->n_foreign--;
    if (m->n_foreign) m->foreign[m->n_foreign - 1].to = MIN(m->foreign[m->n_foreign - 1].to, len);
}

static int render_list(const char *template_text, const json_t *special, json_t *list,
                       const struct chat_options *o, struct buf *out, struct rendered *marks)
{
    struct jinja *j = NULL;
    json_t *vars = NULL;
    const json_t *final = NULL;
    size_t from = out->len;
    JSON_SCOPE(scope);
    int e = jinja_compile(template_text, strlen(template_text), &j);
    if (e < 0) err_prefix(e, "chat template");
    if (e >= 0 && o->continue_final_message) e = tag_final(list, template_text, &final);
    if (e >= 0) e = make_vars(list, o, &vars);
    if (e >= 0) e = json_whole(&scope);
    if (e >= 0) {
        e = jinja_run(j, vars, special, o->now, out, marks);
        if (e < 0) err_prefix(e, "chat template");
    }
    if (e >= 0 && final) {
        e = cut_at_tag(out, from, final);
        if (e < 0)
            rendered_done(marks);
        else
            clip(marks, out->len);
    }
    if (e < 0 && out->data) {
        out->len = from;
        out->data[from] = 0;
    }
    json_decref(vars);
    json_decref((json_t *) final);
    jinja_drop(j);
    return e;
}

int prompt_render(const char *template_text, const json_t *special, const json_t *messages,
                  const struct chat_options *o, struct buf *out, struct rendered *marks)
{
    json_t *list;
    if (o->continue_final_message && o->add_generation_prompt)
        return ERR(ARG, "continue_final_message and add_generation_prompt are not compatible: one "
                        "leaves the final message open, the other begins a new one");
    JSON_SCOPE(scope);
    TRY(copy_messages(messages, &list));
    int e = json_whole(&scope);
    if (e >= 0) e = render_list(template_text, special, list, o, out, marks);
    json_decref(list);
    return e;
}
