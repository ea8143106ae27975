/* safetensors_write.c - writes one safetensors file.  Tensors are laid out by element size, widest first, then by
 * name, and the header is padded to 8 bytes, so every tensor lies aligned in a mapped file.  The data is written
 * from the caller's memory, without a copy of the whole file. */
#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "fmt/fmt_int.h"

#include <stdlib.h>
#include <string.h>

#define MAX_HEADER 100000000u

static int by_layout(const void *a, const void *b)
{
    const struct tensor *s = *(const struct tensor *const *)a;
    const struct tensor *t = *(const struct tensor *const *)b;
    uint32_t p = dtype_size(s->dtype), q = dtype_size(t->dtype);
    return p != q ? (p > q ? -1 : 1) : strcmp(s->name, t->name);
}

static int check_tensor(const char *path, const struct tensor *t)
{
    size_t want;
    if (strcmp(t->name, "__metadata__") == 0)
        return ERR(ARG, "%s: a tensor cannot be called __metadata__", path);
    if (t->n_dims > FMT_MAX_DIMS)
        return ERR(ARG, "%s: tensor \"%.200s\" has %u dimensions, the limit is %u", path, t->name,
                   t->n_dims, FMT_MAX_DIMS);
    if (!dtype_safetensors(t->dtype))
        return ERR(UNSUPPORTED, "%s: tensor \"%.200s\": safetensors has no type %s", path, t->name,
                   dtype_name(t->dtype));
    if (t->bytes && !t->data)
        return ERR(ARG, "%s: tensor \"%.200s\" has no values (NULL)", path, t->name);
    if (!tensor_size(t, &want) || want != t->bytes)
        return ERR(ARG, "%s: tensor \"%.200s\": %zu bytes do not match its shape", path, t->name,
                   t->bytes);
    return 0;
}

static json_t *entry_json(const struct tensor *t, size_t from)
{
    json_t *shape = json_array();
    for (uint32_t i = 0; shape && i < t->n_dims; i++)
        if (json_array_append_new(shape, json_integer((json_int_t)t->dim[i])) < 0) {
            json_decref(shape);
            return NULL;
        }
    /* "o" takes the reference, also when packing fails. */
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype_safetensors(t->dtype), "shape", shape,
                     "data_offsets", (json_int_t)from, (json_int_t)from + (json_int_t)t->bytes);
}

static int header_json(const char *path, const struct tensor *const *at, uint32_t n, json_t *o)
{
    size_t from = 0, to;
    for (uint32_t i = 0; i < n; i++) {
        const struct tensor *t = at[i];
        TRY(check_tensor(path, t));
        if (!ck_add(from, t->bytes, &to) || to > INT64_MAX)
            return ERR(LIMIT, "%s: the tensors have more bytes than the %llu that a file can hold",
                       path, (unsigned long long)INT64_MAX);
        if (json_object_get(o, t->name))
            return ERR(ARG, "%s: tensor \"%.200s\" given twice", path, t->name);
        json_t *entry = entry_json(t, from);
        if (!entry) return ERR(NOMEM, "out of memory: safetensors header");
        if (json_object_set_new(o, t->name, entry) < 0)
            return ERR(ARG, "%s: tensor name \"%.200s\" is not UTF-8", path, t->name);
        from = to;
    }
    return 0;
}

/* jansson reports only that an append failed, and for a key not even that.  So the sink records the error. */
struct text_sink {
    struct buf *text;
    int error;
};

static int append_json(const char *p, size_t n, void *sink)
{
    struct text_sink *s = sink;
    if (s->error == 0) s->error = buf_append(s->text, p, n);
    return s->error;
}

/* Makes the length field and the padded text of the header. */
static int header_text(const char *path, const json_t *o, struct buf *out)
{
    static const char zero[8];
    TRY(buf_append(out, zero, sizeof zero));
    struct text_sink sink = {.text = out};
    int failed = json_dump_callback(o, append_json, &sink, JSON_COMPACT);
    if (sink.error < 0) return sink.error;
    if (failed) return ERR(NOMEM, "out of memory: header of %s", path);
    while (out->len % 8 != 0)
        TRY(buf_putc(out, ' '));
    uint64_t n = out->len - 8;
    for (int i = 0; i < 8; i++)
        out->data[i] = (char)(n >> (8 * i) & 0xFF);
    return 0;
}

static int add_notes(json_t *o, const struct safetensors_note *note, uint32_t n)
{
    json_t *notes = n ? json_object() : NULL;
    bool ok = !n || notes;
    for (uint32_t i = 0; ok && i < n; i++)
        ok = json_object_set_new(notes, note[i].key, json_string(note[i].value)) == 0;
    if (ok && n) return json_object_set_new(o, "__metadata__", notes) < 0 ? ERR_NOMEM : 0;
    json_decref(notes);
    return ok ? 0 : ERR(NOMEM, "out of memory: safetensors metadata");
}

static int write_sorted(const char *path, const struct tensor **at, struct span *span, uint32_t n,
                        const struct safetensors_note *note, uint32_t n_notes)
{
    struct buf text;
    buf_init(&text, MAX_HEADER + 8);
    JSON_SCOPE(scope);
    json_t *o = json_object();
    int e = o ? add_notes(o, note, n_notes) : ERR(NOMEM, "out of memory: safetensors header");
    if (e == 0) e = header_json(path, at, n, o);
    if (e == 0) e = json_whole(&scope);
    if (e == 0) e = header_text(path, o, &text);
    json_decref(o);
    if (e == 0) {
        span[0] = (struct span){text.data, text.len};
        for (uint32_t i = 0; i < n; i++)
            span[i + 1] = (struct span){at[i]->data, at[i]->bytes};
        e = file_write_spans(path, span, (size_t)n + 1);
    }
    buf_done(&text);
    return e;
}

int safetensors_write(const char *path, const struct tensor *t, uint32_t n)
{
    return safetensors_write_noted(path, t, n, NULL, 0);
}

int safetensors_write_noted(const char *path, const struct tensor *t, uint32_t n,
                            const struct safetensors_note *note, uint32_t n_notes)
{
    int e = ERR_NOMEM;
    const struct tensor **at = mem_array(n, sizeof *at);
    struct span *span = mem_array((size_t)n + 1, sizeof *span);
    if (at && span) {
        for (uint32_t i = 0; i < n; i++)
            at[i] = &t[i];
        qsort(at, n, sizeof *at, by_layout);
        e = write_sorted(path, at, span, n, note, n_notes);
    }
    mem_free(at);
    mem_free(span);
    return e;
}
