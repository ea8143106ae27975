/* ask_prompt.c - the prompts of a request as tokens: of messages, of texts, of ids. */
#include "serve/protocol.h"
#include "serve/reasoning.h"

#include <string.h>

enum {
    MARK_TOKENS = 24 /* most tokens of a mark with white space at the end of a prompt */
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
    char *text = NULL, *more = NULL, *own = NULL;
    int e = json_text(messages, &text);
    if (e >= 0 && kwargs) e = json_text(kwargs, &more);
    kvik_chat chat = {.size = sizeof chat, .json = text, .kwargs = more};
    if (e >= 0) e = reasoning_template(s, &chat, kwargs, &own);
    chat.template_text = own;
    if (e >= 0) e = kvik_chat_encode(s->tokenizer, &chat, out, n, NULL);
    mem_free(own);
    mem_free(text);
    mem_free(more);
    return e;
}

/* True if the template has opened a block of reasoning at the end of the prompt. */
static bool opens_reasoning(const struct ask *k, const struct server *s)
{
    char *text = NULL;
    size_t last = MIN(k->n, (size_t)MARK_TOKENS), n = 0;
    if (kvik_tokenizer_decode(s->tokenizer, k->ids + k->n - last, last, false, &text, &n) < 0)
        return false;
    bool opens = reasoning_opens(s, text, n);
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

int ask_text_add(struct ask_text *t, const int32_t *ids, size_t n)
{
    int32_t *all = mem_grow(t->ids, t->n + n + 1, sizeof *all);
    if (!all) return ERR_NOMEM;
    t->ids = all;
    if (n) memcpy(all + t->n, ids, n * sizeof *ids);
    t->n += n;
    return 0;
}

/* Appends a text.  The first text of a prompt gets the tokens that the tokenizer puts before texts. */
static int append_text(const struct server *s, struct ask_text *t, const json_t *text, bool first)
{
    int32_t *ids = NULL;
    size_t n = 0;
    TRY(kvik_tokenizer_encode(s->tokenizer, json_string_value(text), json_string_length(text),
                              first, &ids, &n));
    int e = ask_text_add(t, ids, n);
    kvik_free(ids);
    return e;
}

/* Appends one item of an array that is a single prompt: an id, or a text between ids. */
static int append_item(const struct server *s, struct ask_text *t, const json_t *v, size_t at)
{
    json_int_t id = json_integer_value(v);
    if (json_is_string(v)) return append_text(s, t, v, at == 0);
    if (!json_is_integer(v) || id < 0 || id >= (json_int_t)kvik_model_vocab(s->o.model))
        return ERR(
            ARG,
            "field \"prompt\": token %zu is %s, which is no id of this model; its ids are 0 to %lld",
            at, JSON_QUOTE(v), (long long)kvik_model_vocab(s->o.model) - 1);
    return ask_text_add(t, &(int32_t){(int32_t)id}, 1);
}

/* Reads one prompt: a text, an array of ids and texts, or llama-server's {"prompt_string": text}. */
static int read_prompt(const struct server *s, const json_t *prompt, struct ask_text *out)
{
    struct ask_text t = {0};
    const json_t *v;
    size_t i;
    if (json_is_object(prompt) && !json_object_get(prompt, "multimodal_data"))
        prompt = json_object_get(prompt, "prompt_string");
    if (!json_is_string(prompt) && !json_is_array(prompt))
        return ERR(ARG, "field \"prompt\" must be a string or an array of token ids, not %s",
                   JSON_QUOTE(prompt));
    int e = ask_text_add(&t, NULL, 0);
    if (e >= 0 && json_is_string(prompt)) e = append_text(s, &t, prompt, true);
    json_array_foreach(prompt, i, v)
    {
        if (e >= 0) e = append_item(s, &t, v, i);
    }
    if (e < 0)
        mem_free(t.ids);
    else
        *out = t;
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

/* True if an array is a single prompt: it has an id, and neither arrays nor objects. */
static bool is_one(const json_t *prompts)
{
    bool ids = false;
    const json_t *v;
    size_t i;
    json_array_foreach(prompts, i, v)
    {
        if (json_is_array(v) || json_is_object(v)) return false;
        ids |= !json_is_string(v);
    }
    return ids;
}

int ask_prompts(struct ask *k, const struct server *s, const json_t *prompts)
{
    size_t n = json_array_size(prompts);
    if (!n || is_one(prompts)) return ask_prompt(k, s, prompts);
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
