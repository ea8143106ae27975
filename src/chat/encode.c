/* encode.c - chat_render and chat_encode: prompts for a tokenizer.  Text that came from the caller
 * (messages, tools, documents, kwargs) never becomes a control token: the engine knows which bytes
 * of the output are the caller's, and the tokenizer is told to read special tokens that touch them
 * as plain text.  The prompt is rendered once and is the same text with or without that. */
#include "chat/prompt.h"
#include "tok/tok.h"

#include <string.h>

#define PROMPT_MAX (2 * JINJA_MAX_OUTPUT)

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

static int render(const struct tok *t, const json_t *messages, const struct chat_options *o,
                  struct buf *out, struct rendered *marks)
{
    const char *text = o->template_text ? o->template_text : t ? tok_chat_template(t) : NULL;
    if (!text)
        return ERR(NOTFOUND,
                   "this model has no chat template; give one, or generate from plain text");
    json_t *special = special_vars(t);
    if (!special) return ERR(NOMEM, "out of memory");
    int e = prompt_render(text, special, messages, o, out, marks);
    json_decref(special);
    return e;
}

int chat_render(const struct tok *t, const json_t *messages, const struct chat_options *o,
                struct buf *out)
{
    struct rendered marks = {0};
    TRY(render(t, messages, o, out, &marks));
    rendered_done(&marks);
    return 0;
}

static size_t count_special(const struct tok *t, const struct ids *v, size_t from)
{
    size_t k = 0;
    for (size_t i = from; i < v->n; i++)
        k += tok_is_special(t, v->id[i]);
    return k;
}

/* Only the places that spell a special token are plain, so that the rest is encoded as ever.  More
 * control tokens than the template wrote mean that a normalizer made one: then all foreign text is. */
static int encode_guarded(const struct tok *t, const char *s, size_t n, const struct rendered *m,
                          struct ids *out)
{
    struct plain_spans plain = {0};
    size_t from = out->n;
    TRY(guard_spans(t, s, n, m->foreign, m->n_foreign, &plain));
    int e = tok_encode(t, s, n, 0, plain.v, plain.n, out);
    if (e >= 0 && count_special(t, out, from) > plain.n_own) {
        struct tok_span *all = mem_array(m->n_foreign, sizeof *all);
        for (size_t i = 0; all && i < m->n_foreign; i++)
            all[i] = (struct tok_span){m->foreign[i].from, m->foreign[i].to};
        out->n = from;
        e = all ? tok_encode(t, s, n, 0, all, m->n_foreign, out) : ERR_NOMEM;
        mem_free(all);
    }
    mem_free(plain.v);
    return e;
}

int chat_encode(const struct tok *t, const json_t *messages, const struct chat_options *o,
                struct ids *out, struct buf *text)
{
    struct buf prompt;
    struct rendered marks = {0};
    size_t n_ids = out->n;
    buf_init(&prompt, PROMPT_MAX);
    int e = render(t, messages, o, &prompt, &marks);
    const char *s = prompt.data ? prompt.data : "";
    if (e >= 0 && o->allow_special)
        e = tok_encode(t, s, prompt.len, 0, NULL, 0, out);
    else if (e >= 0)
        e = encode_guarded(t, s, prompt.len, &marks, out);
    if (e >= 0 && text) e = buf_append(text, s, prompt.len);
    if (e < 0) out->n = n_ids;
    rendered_done(&marks);
    buf_done(&prompt);
    return e < 0 ? e : 0;
}
