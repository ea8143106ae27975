/* infill.c - the text that stands between two others, by the tokens that models of code have for that; see infill.h. */
#include "serve/infill.h"

#include <string.h>

/* Before the text, before what follows it, and before the gap. */
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
    int32_t file; /* before another file, or -1 */
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

static int add(struct ask *k, const int32_t *ids, size_t n)
{
    int32_t *all = mem_grow(k->ids, k->n + n + 1, sizeof *all);
    if (!all) return ERR_NOMEM;
    k->ids = all;
    if (n) memcpy(all + k->n, ids, n * sizeof *ids);
    k->n += n;
    return 0;
}

/* What spells a mark inside a text is text. */
static int add_text(struct ask *k, const struct server *s, const char *text, size_t n)
{
    int32_t *ids = NULL;
    int64_t count = text && n ? kvik_tokenizer_encode_plain(s->tokenizer, text, n, &ids, NULL) : 0;
    int e = count < 0 ? (int)count : add(k, ids, (size_t)count);
    kvik_free(ids);
    return e;
}

static int add_field(struct ask *k, const struct server *s, const json_t *v)
{
    return add_text(k, s, json_string_value(v), json_string_length(v));
}

/* The tokens that the tokenizer puts before every text. */
static int add_begin(struct ask *k, const struct server *s)
{
    int32_t *ids = NULL;
    size_t n = 0;
    TRY(kvik_tokenizer_encode(s->tokenizer, "", 0, true, &ids, &n));
    int e = add(k, ids, MIN(n, 1));
    kvik_free(ids);
    return e;
}

static int add_files(struct ask *k, const struct server *s, const struct marks *m,
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
                "field \"input_extra[%zu]\" must have a string \"text\" and may have a string \"filename\"",
                i);
        if (m->file >= 0) TRY(add(k, &m->file, 1));
        if (name) TRY(add_field(k, s, name));
        TRY(add_text(k, s, "\n", 1));
        TRY(add_field(k, s, text));
        TRY(add_text(k, s, "\n", 1));
    }
    return i && m->file >= 0 ? add(k, &m->file, 1) : 0;
}

int infill_prompt(struct ask *k, const struct server *s, const json_t *extra, const json_t *prefix,
                  const json_t *more, const json_t *suffix)
{
    struct marks m;
    if (!find_marks(s, &m))
        return ERR(UNSUPPORTED, "this model has no tokens for a text between two others");
    TRY(add_begin(k, s));
    TRY(add_files(k, s, &m, extra));
    TRY(add(k, &m.prefix, 1));
    TRY(add_field(k, s, prefix));
    TRY(add_field(k, s, more));
    TRY(add(k, &m.suffix, 1));
    TRY(add_field(k, s, suffix));
    return add(k, &m.middle, 1);
}
