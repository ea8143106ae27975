/* encode.c - chat_render and chat_encode: prompts for a tokenizer.  Text that came from the caller
 * (messages, tools, documents, kwargs) never becomes a control token: the engine knows which bytes
 * of the output are the caller's, and the tokenizer is told to read special tokens that touch them
 * as plain text. */
#include "chat/prompt.h"
#include "tok/tok.h"

#include <string.h>

static const char *const special_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                            "pad_token", "cls_token", "mask_token"};

/* The named special tokens as template variables; NULL when out of memory. */
static json_t *special_vars(const struct tok *t)
{
    json_t *o = json_object();
    for (size_t i = 0; i < countof(special_names) && o; i++) {
        const char *s = tok_special_text(t, special_names[i]);
        if (!s) continue;
        if (json_object_set_new(o, special_names[i], json_string(s)) == 0) continue;
        json_decref(o);
        o = NULL;
    }
    return o;
}

static const char *template_of(const struct tok *t, const struct chat_options *o)
{
    return o->template_text ? o->template_text : tok_chat_template(t);
}

int chat_render(const struct tok *t, const json_t *messages, const struct chat_options *o,
                struct buf *out)
{
    const char *text = template_of(t, o);
    if (!text)
        return ERR(NOTFOUND,
                   "this model has no chat template; give one, or generate from plain text");
    json_t *special = special_vars(t);
    if (!special) return ERR(NOMEM, "out of memory");
    int e = prompt_render(text, special, messages, o, out, NULL, NULL);
    json_decref(special);
    return e;
}
