/* infill.c - the text that stands between two others, by the tokens that models of code have for that; see infill.h. */
#include "serve/infill.h"

#include <string.h>

/* The marks before the text, before the text that follows the gap, and before the gap. */
static const struct {
    const char *prefix, *suffix, *middle;
} table[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}, /* Qwen, CodeGemma */
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},       /* StarCoder, Granite */
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},       /* SantaCoder */
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"}, /* DeepSeek */
    {"▁<PRE>", "▁<SUF>", "▁<MID>"},                         /* Code Llama */
    {"<PRE>", "<SUF>", "<MID>"},
};

struct marks {
    int32_t prefix, suffix, middle;
    int32_t file; /* the token before another file, or -1 */
};

static bool find_marks(const struct server *s, struct marks *m)
{
    for (size_t i = 0; i < countof(table); i++) {
        m->prefix = kvik_tokenizer_find(s->tokenizer, table[i].prefix);
        m->suffix = kvik_tokenizer_find(s->tokenizer, table[i].suffix);
        m->middle = kvik_tokenizer_find(s->tokenizer, table[i].middle);
        if (m->prefix < 0 || m->suffix < 0 || m->middle < 0) continue;
        m->file = kvik_tokenizer_find(s->tokenizer, "<|file_sep|>");
        if (m->file < 0) m->file = kvik_tokenizer_find(s->tokenizer, "<file_sep>");
        return true;
    }
    return false;
}

/* Adds a text.  If it spells a mark, that is text and no mark. */
static int add_text(struct ask_text *t, const struct server *s, const char *text, size_t n)
{
    int32_t *ids = NULL;
    int64_t count = text && n ? kvik_tokenizer_encode_plain(s->tokenizer, text, n, &ids, NULL) : 0;
    int e = count < 0 ? (int)count : ask_text_add(t, ids, (size_t)count);
    kvik_free(ids);
    return e;
}

static int add_field(struct ask_text *t, const struct server *s, const json_t *v)
{
    return add_text(t, s, json_string_value(v), json_string_length(v));
}

/* Adds the tokens that the tokenizer puts before every text; tokens that it puts behind are left out. */
static int add_begin(struct ask_text *t, const struct server *s)
{
    int32_t *whole = NULL, *bare = NULL;
    size_t n = 0, len = 0, at = 0;
    int e = kvik_tokenizer_encode(s->tokenizer, "a", 1, true, &whole, &n);
    if (e >= 0) e = kvik_tokenizer_encode(s->tokenizer, "a", 1, false, &bare, &len);
    while (e >= 0 && at + len <= n && memcmp(whole + at, bare, len * sizeof *bare) != 0)
        at++;
    if (e >= 0 && at + len <= n) e = ask_text_add(t, whole, at);
    kvik_free(whole);
    kvik_free(bare);
    return e;
}

static int add_files(struct ask_text *t, const struct server *s, const struct marks *m,
                     const json_t *extra)
{
    const json_t *file;
    size_t i;
    json_array_foreach(extra, i, file)
    {
        const json_t *name = json_object_get(file, "filename"),
                     *text = json_object_get(file, "text");
        if (!json_is_string(text) || (name && !json_is_string(name)))
            return ERR(
                ARG,
                "field \"input_extra[%zu]\" must have a string \"text\" and may have a string \"filename\", not %s and %s",
                i, JSON_QUOTE(text), JSON_QUOTE(name));
        if (m->file >= 0) TRY(ask_text_add(t, &m->file, 1));
        if (name) TRY(add_field(t, s, name));
        TRY(add_text(t, s, "\n", 1));
        TRY(add_field(t, s, text));
        TRY(add_text(t, s, "\n", 1));
    }
    return i && m->file >= 0 ? ask_text_add(t, &m->file, 1) : 0;
}

/* Adds the tokens of a whole prompt: the tokens before every text, the files, and both texts between their marks. */
static int add_all(struct ask_text *t, const struct server *s, const struct marks *m,
                   const json_t *extra, const json_t *const text[3])
{
    TRY(add_begin(t, s));
    TRY(add_files(t, s, m, extra));
    TRY(ask_text_add(t, &m->prefix, 1));
    TRY(add_field(t, s, text[0]));
    TRY(add_field(t, s, text[1]));
    TRY(ask_text_add(t, &m->suffix, 1));
    TRY(add_field(t, s, text[2]));
    return ask_text_add(t, &m->middle, 1);
}

int infill_prompt(struct ask *k, const struct server *s, const json_t *extra, const json_t *prefix,
                  const json_t *more, const json_t *suffix)
{
    struct marks m;
    struct ask_text t = {k->ids, k->n};
    if (!find_marks(s, &m))
        return ERR(UNSUPPORTED, "this model has no tokens for a text between two others");
    int e = add_all(&t, s, &m, extra, (const json_t *const[]){prefix, more, suffix});
    k->ids = t.ids; /* k frees them, after an error too */
    k->n = t.n;
    return e;
}
