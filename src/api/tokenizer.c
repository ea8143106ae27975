/* tokenizer.c - tokenizers and chat templates as the public header shows them: plain pointers and JSON text
 * around tok/ and chat/. */
#include "api/taken.h"
#include "base/file.h"
#include "base/json.h"
#include "chat/chat.h"
#include "chat/formats.h"
#include "fmt/fmt.h"
#include "generate/handle.h"
#include "kvik_compat.h"

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
    if (!path || !out)
        return ERR(ARG,
                   "a path and a pointer for the tokenizer are needed, and one of them is NULL");
    if (!path_exists(path))
        return ERR(
            NOTFOUND,
            "%s: no such file or directory; give a Hugging Face model directory or a .gguf file",
            path);
    kvik_tokenizer *t = mem_alloc(sizeof *t);
    if (!t) return ERR_NOMEM;
    refs_init(&t->refs);
    int e = dir_exists(path) ? tok_open_dir(path, &t->tok) : open_gguf(path, &t->tok);
    if (e < 0) {
        mem_free(t);
        return e;
    }
    *out = t;
    return 0;
}

void tokenizer_drop(kvik_tokenizer *t)
{
    if (!t || !refs_drop(&t->refs)) return;
    tok_close(t->tok);
    mem_free(t);
}

KVIK_API void kvik_tokenizer_close(kvik_tokenizer *t)
{
    if (t && refs_close(&t->refs)) tokenizer_drop(t);
}

KVIK_API int kvik_tokenizer_encode(const kvik_tokenizer *t, const char *text, size_t n_bytes,
                                   bool add_special_tokens, int32_t **ids, size_t *n)
{
    struct ids v = {0};
    if (!t || (!text && n_bytes) || !ids || !n)
        return ERR(
            ARG,
            "a tokenizer, a text and pointers for the ids are needed, and one of them is NULL");
    TRY(tokenizer_check(t));
    int e = tok_encode(t->tok, text ? text : "", n_bytes, add_special_tokens ? TOK_SPECIAL : 0,
                       NULL, 0, &v);
    return take_ids(&v, e, ids, n);
}

KVIK_API int kvik_tokenizer_decode(const kvik_tokenizer *t, const int32_t *ids, size_t n,
                                   bool skip_special_tokens, char **text, size_t *n_bytes)
{
    struct buf b;
    if (!t || (!ids && n) || !text)
        return ERR(
            ARG,
            "a tokenizer, token ids and a pointer for the text are needed, and one of them is NULL");
    TRY(tokenizer_check(t));
    buf_init(&b, SIZE_MAX / 2);
    return take_text(&b, tok_decode(t->tok, ids, n, skip_special_tokens, &b), text, n_bytes);
}

/* Writes the begin, the end and the word of each id to *places, three numbers for each id.  Begin and end are
 * rounded to whole characters. */
static int join_places(const char *text, size_t n, const struct tok_places *at,
                       const struct tok_places *end, const struct tok_places *word,
                       uint32_t **places)
{
    uint32_t *v = mem_array(at->n ? at->n : 1, 3 * sizeof *v);
    if (!v) return ERR_NOMEM;
    for (size_t i = 0; i < at->n; i++) {
        size_t from = at->v[i];
        while (from > 0 && from < n && ((uint8_t)text[from] & 0xC0) == 0x80)
            from--;
        v[3 * i] = (uint32_t)from;
        v[3 * i + 1] = MAX(end->v[i], (uint32_t)from);
        v[3 * i + 2] = word->v[i];
    }
    *places = v;
    return 0;
}

/* Encodes a text that is given, with places if they are wanted. */
static int64_t encode_flags(const kvik_tokenizer *t, const char *text, size_t n_bytes,
                            unsigned flags, int32_t **ids, uint32_t **places)
{
    struct ids v = {0};
    struct tok_places at = {0}, end = {0}, word = {0};
    uint32_t *joined = NULL;
    size_t n = 0;
    int e;
    if (!text) text = "";
    if (places) {
        e = tok_encode_words(t->tok, text, n_bytes, flags, &v, &at, &end, &word);
        if (e >= 0) e = join_places(text, n_bytes, &at, &end, &word, &joined);
    } else {
        e = tok_encode(t->tok, text, n_bytes, flags, NULL, 0, &v);
    }
    e = take_ids(&v, e, ids, &n);
    if (e >= 0 && places)
        *places = joined;
    else
        mem_free(joined);
    tok_places_done(&at);
    tok_places_done(&end);
    tok_places_done(&word);
    return e < 0 ? e : (int64_t)n;
}

KVIK_API int64_t kvik_tokenizer_encode_placed(const kvik_tokenizer *t, const char *text,
                                              size_t n_bytes, bool add_special_tokens,
                                              int32_t **ids, uint32_t **places)
{
    if (!t || (!text && n_bytes) || !ids || !places)
        return ERR(
            ARG,
            "a tokenizer, a text and pointers for ids and places are needed, and one of them is NULL");
    TRY(tokenizer_check(t));
    return encode_flags(t, text, n_bytes, add_special_tokens ? TOK_SPECIAL : 0, ids, places);
}

KVIK_API int64_t kvik_tokenizer_encode_plain(const kvik_tokenizer *t, const char *text,
                                             size_t n_bytes, int32_t **ids, uint32_t **places)
{
    if (!t || (!text && n_bytes) || !ids)
        return ERR(
            ARG,
            "a tokenizer, a text and a pointer for the ids are needed, and one of them is NULL");
    TRY(tokenizer_check(t));
    return encode_flags(t, text, n_bytes, TOK_PLAIN, ids, places);
}

KVIK_API int64_t kvik_tokenizer_layout(const kvik_tokenizer *t, bool pair, int32_t **parts)
{
    uint32_t n;
    if (!t || !parts)
        return ERR(ARG,
                   "a tokenizer and a pointer for the parts are needed, and one of them is NULL");
    TRY(tokenizer_check(t));
    const struct tok_part *part = tok_layout(t->tok, pair, &n);
    if (!n) return ERR(UNSUPPORTED, "the tokenizer's files do not say how two texts are joined");
    int32_t *out = mem_array(n, 2 * sizeof *out);
    if (!out) return ERR_NOMEM;
    for (uint32_t i = 0; i < n; i++) {
        out[2 * i] = part[i].id;
        out[2 * i + 1] = (int32_t)part[i].type;
    }
    *parts = out;
    return n;
}

/* True if a tokenizer is open.  Else sets an error, for calls that return no error code. */
static bool given(const kvik_tokenizer *t)
{
    return tokenizer_check(t) >= 0;
}

static bool named(const char *name)
{
    if (!name) (void)ERR(ARG, "the name of a token is NULL");
    return name;
}

KVIK_API int32_t kvik_tokenizer_find(const kvik_tokenizer *t, const char *token)
{
    return given(t) && named(token) ? tok_find(t->tok, token, strlen(token)) : -1;
}

KVIK_API uint32_t kvik_tokenizer_vocab(const kvik_tokenizer *t)
{
    return given(t) ? tok_size(t->tok) : 0;
}

KVIK_API const char *kvik_tokenizer_piece(const kvik_tokenizer *t, int32_t id, size_t *n_bytes,
                                          uint32_t *kind)
{
    if (!given(t)) return NULL;
    if (!n_bytes) {
        (void)ERR(ARG, "a pointer for the length of the token is NULL");
        return NULL;
    }
    if (kind)
        *kind = (tok_is_model(t->tok, id) ? (uint32_t)KVIK_PIECE_MODEL : 0) |
                (tok_is_added(t->tok, id) ? (uint32_t)KVIK_PIECE_ADDED : 0) |
                (tok_is_special(t->tok, id) ? (uint32_t)KVIK_PIECE_SPECIAL : 0);
    return tok_piece(t->tok, id, n_bytes);
}

KVIK_API int kvik_tokenizer_bytes(const kvik_tokenizer *t, int32_t id, char **bytes,
                                  size_t *n_bytes)
{
    struct buf b;
    if (!t || !bytes || !n_bytes)
        return ERR(
            ARG,
            "a tokenizer and pointers for the bytes and their number are needed, and one of them is NULL");
    TRY(tokenizer_check(t));
    buf_init(&b, SIZE_MAX / 2);
    return take_text(&b, tok_bytes(t->tok, id, &b), bytes, n_bytes);
}

KVIK_API const char *kvik_tokenizer_special(const kvik_tokenizer *t, const char *name)
{
    return given(t) && named(name) ? tok_special_text(t->tok, name) : NULL;
}

KVIK_API const char *kvik_tokenizer_template(const kvik_tokenizer *t)
{
    return given(t) ? tok_chat_template(t->tok) : NULL;
}

KVIK_API int kvik_model_set_template(kvik_model *m, const char *template_text, const char *end)
{
    struct jinja *j;
    TRY(model_check(m));
    if (!template_text) return ERR(ARG, "a template is needed");
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

static const struct chat_format *format_named(const char *name)
{
    if (!name) (void)ERR(ARG, "the name of a chat format is NULL");
    return format_find(name);
}

KVIK_API const char *kvik_format_template(const char *name)
{
    const struct chat_format *f = format_named(name);
    return f ? f->text : NULL;
}

KVIK_API const char *kvik_format_end(const char *name)
{
    const struct chat_format *f = format_named(name);
    return f ? f->end : NULL;
}

KVIK_API const char *kvik_format_guess(const kvik_tokenizer *t)
{
    const struct chat_format *f = given(t) ? format_guess(t->tok) : NULL;
    return f ? f->name : NULL;
}
