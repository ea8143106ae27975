/* conversation_text.c - renders a conversation, as text and as ids. */
#include "api/taken.h"
#include "chat/chat.h"
#include "chat/rendering.h"
#include "generate/handle.h"

#include <string.h>

/* Makes the array of n messages that chat templates take. */
static int messages_of(const kvik_message *message, size_t n, json_t **out)
{
    JSON_SCOPE(scope);
    json_t *list = json_array();
    int e = list ? 0 : ERR(NOMEM, "out of memory");
    for (size_t i = 0; e >= 0 && i < n; i++) {
        kvik_message m = {0};
        json_t *o = json_object();
        if (!o || json_array_append_new(list, o) < 0) e = ERR(NOMEM, "out of memory");
        if (e >= 0) e = SIZED_NTH(&m, message, i, kvik_message);
        if (e >= 0) e = chat_message(o, i, m.role, m.content, m.more);
    }
    if (e >= 0) e = json_whole(&scope);
    if (e < 0)
        json_decref(list);
    else
        *out = list;
    return e;
}

/* Reads a conversation; rendering_done releases it, also after an error. */
static int rendering_begin(struct rendering *r, const kvik_tokenizer *t, const kvik_chat *chat)
{
    kvik_chat c = {0};
    json_t *messages;
    *r = (struct rendering){0};
    if (!chat) return ERR(ARG, "a kvik_chat with messages is needed, and NULL was given");
    TRY(SIZED_IN(&c, chat, kvik_chat));
    if (t) TRY(tokenizer_check(t));
    if (!c.template_text && !t) return ERR(ARG, "a tokenizer or a template is needed");
    if (!c.template_text && !tok_chat_template(t->tok))
        return ERR(NOTFOUND, "the model has no chat template; give the text to complete instead of "
                             "messages");
    if (!c.json && !c.message)
        return ERR(ARG, "a conversation needs messages: kvik_chat.message, or kvik_chat.json");
    if (c.json && (c.message || c.n))
        return ERR(ARG, "messages are given twice, as kvik_chat.message and as kvik_chat.json");
    TRY(c.json ? json_parse(c.json, strlen(c.json), "messages", &messages)
               : messages_of(c.message, c.n, &messages));
    const struct rendering_texts texts = {c.kwargs, c.special_tokens, c.now};
    TRY(rendering_of(r, messages, &texts));
    r->o.template_text = c.template_text;
    return 0;
}

KVIK_API int kvik_chat_render(const kvik_tokenizer *t, const kvik_chat *chat, char **text)
{
    struct rendering r;
    struct buf b;
    if (!text) return ERR(ARG, "a pointer for the text is needed, and NULL was given");
    buf_init(&b, JINJA_MAX_OUTPUT + 1);
    int e = rendering_begin(&r, t, chat);
    if (e >= 0) e = chat_render(t ? t->tok : NULL, r.messages, &r.o, &b);
    rendering_done(&r);
    return take_text(&b, e, text, NULL);
}

KVIK_API int kvik_chat_encode(const kvik_tokenizer *t, const kvik_chat *chat, int32_t **ids,
                              size_t *n, bool **assistant)
{
    struct rendering r;
    struct ids v = {0};
    bool *marked = NULL;
    if (!t || !ids || !n)
        return ERR(ARG, "a tokenizer and pointers for the ids are needed, and one of them is NULL");
    int e = rendering_begin(&r, t, chat);
    if (e >= 0 && assistant)
        e = chat_encode_marked(t->tok, r.messages, &r.o, &v, &marked);
    else if (e >= 0)
        e = chat_encode(t->tok, r.messages, &r.o, &v, NULL);
    rendering_done(&r);
    e = take_ids(&v, e, ids, n);
    if (e >= 0 && assistant)
        *assistant = marked;
    else
        mem_free(marked);
    return e;
}
