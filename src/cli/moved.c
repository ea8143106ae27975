/* moved.c - --document of kvik generate: files before the prompt, whose rows an earlier run has saved, at whatever place they
 * stood there.
 *
 * Each document is computed once by itself and saved in the directory of --prefix-cache.  A prompt then reads those rows where it has
 * the document (kvik_cache_splice).  So a document is tokenized by itself, too; in a chat it is what is found of it in the tokens. */
#include "cli/moved.h"
#include "base/file.h"
#include "base/utf8.h"
#include "serve/documents.h"

#include <string.h>

#define BETWEEN "\n\n"
#define LONGEST ((size_t)64 << 20)

static int add_ids(struct moved *m, const int32_t *ids, size_t n, bool exact)
{
    int32_t *all = mem_grow(m->ids, m->n + n + 1, sizeof *all);
    if (!all) return ERR_NOMEM;
    m->ids = all;
    if (!n) return 0;
    memcpy(all + m->n, ids, n * sizeof *ids);
    m->chunk[m->n_chunks++] = (kvik_chunk){.size = sizeof *m->chunk, .n = n, .exact = exact};
    m->n += n;
    return 0;
}

static int add_text(struct moved *m, const kvik_tokenizer *t, const char *text, size_t n,
                    bool begins, bool exact)
{
    int32_t *ids;
    size_t count;
    TRY(kvik_tokenizer_encode(t, text, n, begins, &ids, &count));
    int e = add_ids(m, ids, count, exact);
    kvik_free(ids);
    return e;
}

/* Reads a document, without the ends of lines behind it. */
static int read_document(const char *path, char **text, size_t *size)
{
    TRY(file_read(path, LONGEST, text, size));
    while (*size && ((*text)[*size - 1] == '\n' || (*text)[*size - 1] == '\r'))
        --*size;
    if (*size && utf8_valid(*text, *size)) return 0;
    mem_free(*text);
    return ERR(FORMAT, "%s is no text in UTF-8, or is empty", path);
}

static int add_file(struct moved *m, const kvik_tokenizer *t, const char *path)
{
    char *text;
    size_t n;
    TRY(read_document(path, &text, &n));
    int e = add_text(m, t, text, n, false, false);
    mem_free(text);
    return e < 0 ? e : add_text(m, t, BETWEEN, strlen(BETWEEN), false, true);
}

/* Sets where the tokens of the chunks are. */
static void place(struct moved *m)
{
    for (size_t i = 0, at = 0; i < m->n_chunks; at += m->chunk[i++].n)
        m->chunk[i].ids = m->ids + at;
}

int moved_read(struct moved *m, const kvik_tokenizer *t, const struct arg_list *files,
               const struct text *prompt, kvik_source *out)
{
    if (!t) return ERR(ARG, "the model has no tokenizer, and documents are texts");
    if (!(m->chunk = mem_array(2 * files->n + 2, sizeof *m->chunk))) return ERR_NOMEM;
    TRY(add_text(m, t, "", 0, true, true)); /* what the tokenizer puts before texts */
    m->head = m->n;
    for (size_t i = 0; i < files->n; i++)
        TRY(add_file(m, t, files->item[i]));
    m->spliced = m->n_chunks;
    TRY(add_text(m, t, prompt->s, prompt->n, false, true));
    place(m);
    if (m->n_chunks == m->spliced) return ERR(ARG, "the prompt has no tokens");
    int32_t *ids = mem_array(m->n, sizeof *ids);
    if (!ids) return ERR_NOMEM;
    memcpy(ids, m->ids, m->n * sizeof *ids);
    out->ids = ids;
    out->n = m->n;
    return 0;
}

/* --- In a chat, whose template decides what stands around the documents. */

int moved_message(const struct arg_list *files, const struct text *prompt, struct buf *message,
                  json_t **texts)
{
    char *text;
    size_t n;
    int e = (*texts = json_array()) ? 0 : ERR_NOMEM;
    for (size_t i = 0; e >= 0 && i < files->n; i++) {
        TRY(read_document(files->item[i], &text, &n));
        if (json_array_append_new(*texts, json_stringn(text, n)) < 0) e = ERR_NOMEM;
        if (e >= 0) e = buf_append(message, text, n);
        if (e >= 0) e = buf_puts(message, BETWEEN);
        mem_free(text);
    }
    return e < 0 ? e : buf_append(message, prompt->s, prompt->n);
}

int moved_find(struct moved *m, const kvik_tokenizer *t, json_t *texts, const kvik_source *chat)
{
    struct documents d = {.texts = json_incref(texts)};
    m->chunk = mem_array(2 * json_array_size(texts) + 1, sizeof *m->chunk);
    int e = m->chunk ? documents_find(&d, t, chat->ids, chat->n) : ERR_NOMEM;
    for (uint32_t i = 0; e >= 0 && i < d.n; i++) {
        const struct document_span p = d.span[i];
        if (!i) m->head = p.from;
        e = add_ids(m, chat->ids + m->n, p.from - m->n, true);
        if (e >= 0) e = add_ids(m, chat->ids + p.from, p.to - p.from, false);
        m->spliced = m->n_chunks;
    }
    if (e >= 0) e = add_ids(m, chat->ids + m->n, chat->n - m->n, true);
    place(m);
    documents_done(&d);
    return e;
}

/* Computes a document by itself, but for what the directory has of it, and saves it there. */
static int compute(const struct moved *m, struct engine *s, const char *dir, const kvik_chunk *c)
{
    const size_t n = m->head + c->n;
    kvik_seq seq;
    int32_t *ids = mem_array(n, sizeof *ids);
    if (!ids) return ERR_NOMEM;
    if (m->head) memcpy(ids, m->ids, m->head * sizeof *ids);
    memcpy(ids + m->head, c->ids, c->n * sizeof *ids);
    int64_t have = stored_prefix_load(s->cache, dir, ids, n, &seq), e = have;
    if (!have) e = kvik_cache_new(s->cache, &seq);
    if (e >= 0 && (size_t)have < n) {
        const kvik_span rest = {
            .size = sizeof rest, .seq = seq, .ids = ids + have, .n = (uint32_t)(n - (size_t)have)};
        e = kvik_forward(s->cache, &rest, 1, false, NULL);
        if (e >= 0) e = stored_prefix_save(s->cache, dir, seq);
        if (e < 0) kvik_cache_drop(s->cache, seq);
    }
    mem_free(ids);
    if (e < 0) return (int)e;
    kvik_cache_drop(s->cache, seq); /* its rows stay in the index, where the prompt finds them */
    return 0;
}

int moved_begin(const struct moved *m, struct engine *s, const char *dir, uint32_t recompute,
                kvik_seq *seq)
{
    kvik_splice how = {.size = sizeof how, .recompute = recompute};
    for (uint32_t i = 0; i < m->spliced; i++)
        if (!m->chunk[i].exact) TRY(compute(m, s, dir, &m->chunk[i]));
    TRY(kvik_cache_new(s->cache, seq));
    if (!m->spliced) return say_line("documents: the chat has none of them as it was given"), 0;
    TRY(kvik_cache_splice(s->cache, *seq, m->chunk, m->spliced, &how));
    say_line(
        "documents: %llu tokens were read at another position, %llu were a cached prefix, %llu were computed",
        (unsigned long long)how.moved, (unsigned long long)how.reused,
        (unsigned long long)how.computed);
    return 0;
}

void moved_done(struct moved *m)
{
    mem_free(m->ids);
    mem_free(m->chunk);
    *m = (struct moved){0};
}
