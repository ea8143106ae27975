/* ask_prompt.c - the prompts of a request as tokens: of messages, of texts, of ids. */
#include "serve/protocol.h"

#include <string.h>

enum {
    MARK_TOKENS = 24 /* at the end of a prompt, which a mark and white space have at most */
};

static int take_ids(struct ask *k, const int32_t *ids, size_t n)
{
    k->ids = mem_array(n ? n : 1, sizeof *k->ids);
    if (!k->ids) return ERR_NOMEM;
    if (n) memcpy(k->ids, ids, n * sizeof *ids);
    k->n = n;
    return 0;
}

int ask_encode(const struct server *s, const json_t *messages, const json_t *kwargs, int32_t **out,
               size_t *n)
{
    char *text = NULL, *more = NULL;
    int e = json_text(messages, &text);
    if (e >= 0 && kwargs) e = json_text(kwargs, &more);
    const kvik_chat chat = {.size = sizeof chat, .json = text, .kwargs = more};
    if (e >= 0) e = kvik_chat_encode(s->tokenizer, &chat, out, n, NULL);
    mem_free(text);
    mem_free(more);
    return e;
}

/* True if the prompt ends with the mark that opens a reasoning: the template has opened it for the model. */
static bool opens_reasoning(const struct ask *k, const struct server *s)
{
    const struct dialect *d = s->dialect.dialect;
    char *text = NULL;
    size_t last = MIN(k->n, (size_t)MARK_TOKENS), n = 0;
    bool opens = false;
    if (!d || kvik_tokenizer_decode(s->tokenizer, k->ids + k->n - last, last, false, &text, &n) < 0)
        return false;
    while (n && strchr(" \n", text[n - 1]))
        n--;
    for (const struct dialect_mark *m = d->mark; m < d->mark + countof(d->mark) && m->text; m++) {
        size_t len = strlen(m->text);
        if (m->to == SAID_REASONING && n >= len && !memcmp(text + n - len, m->text, len))
            opens = true;
    }
    kvik_free(text);
    return opens;
}

int ask_render(struct ask *k, const struct server *s)
{
    int32_t *ids;
    size_t n;
    TRY(ask_encode(s, k->messages, k->kwargs, &ids, &n));
    int e = take_ids(k, ids, n);
    if (e >= 0) k->reasoning = opens_reasoning(k, s);
    kvik_free(ids);
    return e;
}

static int check_ids(const struct server *s, const json_t *given, int32_t *ids)
{
    const json_t *v;
    size_t i;
    json_array_foreach(given, i, v)
    {
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id >= (json_int_t)kvik_model_vocab(s->o.model))
            return ERR(ARG, "field \"prompt\": token %zu is no id of this model", i);
        ids[i] = (int32_t)id;
    }
    return 0;
}

/* Reads a text, an array of ids, or llama-server's {"prompt_string": text}. */
static int read_prompt(const struct server *s, const json_t *prompt, struct ask_text *out)
{
    int32_t *ids = NULL;
    size_t n = json_array_size(prompt);
    int e = 0;
    if (json_is_object(prompt) && !json_object_get(prompt, "multimodal_data"))
        prompt = json_object_get(prompt, "prompt_string");
    if (!json_is_string(prompt) && !json_is_array(prompt))
        return ERR(ARG, "field \"prompt\" must be a string or an array of token ids");
    if (json_is_string(prompt))
        TRY(kvik_tokenizer_encode(s->tokenizer, json_string_value(prompt),
                                  json_string_length(prompt), true, &ids, &n));
    int32_t *own = mem_array(n ? n : 1, sizeof *own);
    if (!own)
        e = ERR_NOMEM;
    else if (!ids)
        e = check_ids(s, prompt, own);
    else if (n)
        memcpy(own, ids, n * sizeof *own);
    kvik_free(ids);
    if (e < 0)
        mem_free(own);
    else
        *out = (struct ask_text){own, n};
    return e;
}

int ask_prompt(struct ask *k, const struct server *s, const json_t *prompt)
{
    struct ask_text t;
    TRY(read_prompt(s, prompt, &t));
    k->ids = t.ids;
    k->n = t.n;
    return 0;
}

int ask_prompts(struct ask *k, const struct server *s, const json_t *prompts)
{
    size_t n = json_array_size(prompts);
    if (!n || json_is_integer(json_array_get(prompts, 0))) return ask_prompt(k, s, prompts);
    if (n > MOST_CHOICES || n * k->choices > MOST_CHOICES)
        return ERR(
            ARG,
            "field \"prompt\": %zu prompts of %u texts are more than the %d that one request may ask for",
            n, k->choices, MOST_CHOICES);
    TRY(ask_prompt(k, s, json_array_get(prompts, 0)));
    if (!(k->more = mem_array(n, sizeof *k->more))) return ERR_NOMEM;
    for (size_t i = 1; i < n; i++) {
        TRY(read_prompt(s, json_array_get(prompts, i), &k->more[k->n_more]));
        k->n_more++;
    }
    k->choices *= (uint32_t)n;
    return 0;
}
