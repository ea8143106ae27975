/* documents.c - finds the documents of a request in its prompt; see documents.h.
 *
 * The prompt is decoded token by token, because only its text shows where the template has put a document.  A token with
 * characters of a document and of the text beside it belongs to no document.  So a document has the same tokens in other
 * prompts, unless the text beside it changes how the tokenizer cuts the document. */
#include "serve/documents.h"
#include "base/buf.h"

#include <string.h>

enum { MOST_DOCUMENTS = 4096 };

/* Notes a part if it is marked.  A document of Anthropic's has its text in a source. */
static int note(struct documents *d, const json_t *part)
{
    json_t *text = json_object_get(part, "text");
    if (!text) text = json_object_get(json_object_get(part, "source"), "data");
    bool movable = false;
    TRY(json_get_bool(part, "a part of a message", "movable", &movable));
    if (!movable || !json_is_string(text)) return 0;
    if (json_array_size(d->texts) == MOST_DOCUMENTS)
        return ERR(LIMIT, "the messages have more than %d movable parts", MOST_DOCUMENTS);
    return json_array_append(d->texts, text) < 0 ? ERR(NOMEM, "out of memory") : 0;
}

int documents_note(struct documents *d, const json_t *content)
{
    const json_t *part, *inner;
    size_t i, k;
    if (!d->texts) return 0;
    json_array_foreach(content, i, part)
    {
        TRY(note(d, part));
        json_array_foreach(json_object_get(part, "content"), k, inner)
        {
            TRY(note(d, inner));
        }
    }
    return 0;
}

/* Decodes the prompt.  end[i]: bytes of the text up to and with token i; a character that later tokens complete does not
 * count yet. */
static int decode(const kvik_tokenizer *t, const int32_t *ids, size_t n, struct buf *text,
                  size_t *end)
{
    kvik_decoder *d;
    const char *more;
    TRY(kvik_decoder_open(t, false, &d));
    int64_t e = 0;
    for (size_t i = 0; e >= 0 && i < n; i++) {
        e = kvik_decoder_put(d, ids + i, 1, &more);
        if (e >= 0) e = buf_append(text, more, (size_t)e);
        end[i] = text->len;
    }
    kvik_decoder_close(d);
    return (int)MIN(e, 0);
}

/* Templates trim texts. */
static const char *trimmed(const json_t *text, size_t *n)
{
    const char *s = json_string_value(text);
    *n = json_string_length(text);
    while (*n && memchr(" \t\r\n", s[*n - 1], 4))
        --*n;
    while (*n && memchr(" \t\r\n", *s, 4))
        s++, --*n;
    return s;
}

/* Finds the texts one behind another, and the tokens that are inside of each. */
static void find(struct documents *d, const struct buf *text, const size_t *end, size_t n)
{
    const json_t *one;
    size_t i, at = 0, k = 0, bytes;
    json_array_foreach(d->texts, i, one)
    {
        const char *s = trimmed(one, &bytes),
                   *there = bytes ? memmem(text->data + at, text->len - at, s, bytes) : NULL;
        if (!there) continue;
        const size_t from = (size_t)(there - text->data), to = from + bytes;
        struct document_span p;
        while (k < n && (k ? end[k - 1] : 0) < from)
            k++;
        p.from = k;
        while (k < n && end[k] <= to)
            k++;
        p.to = MIN(k, n - 1); /* the last token of a prompt is always computed, for its logits */
        if (p.from < p.to) d->span[d->n++] = p;
        at = to;
    }
}

int documents_find(struct documents *d, const kvik_tokenizer *t, const int32_t *ids, size_t n)
{
    struct buf text;
    const size_t most = json_array_size(d->texts);
    if (!most || !n) return 0;
    size_t *end = mem_array(n, sizeof *end);
    d->span = mem_array(most, sizeof *d->span);
    buf_init(&text, SIZE_MAX);
    int e = end && d->span ? decode(t, ids, n, &text, end) : ERR_NOMEM;
    if (e >= 0 && text.len) find(d, &text, end, n);
    buf_done(&text);
    mem_free(end);
    return e;
}

void documents_done(struct documents *d)
{
    json_decref(d->texts);
    mem_free(d->span);
    *d = (struct documents){0};
}
