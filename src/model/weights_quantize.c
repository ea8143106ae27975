/* weights_quantize.c - quantizes the matrices of a float checkpoint to q8_0, q4_0 or q4_k.  The result is made
 * once and kept in the user's cache directory as a GGUF file, which is mapped by later runs.
 *
 * Quantized are the tensors that the architecture binds as matrices of products, and the embedding.  Tensors that
 * are bound as vectors, as arrays or by model_plain stay as the file has them: norms, biases, convolutions,
 * decays, learned positions, and matrices that route tokens to experts.  The matrix of the head, which is the
 * embedding if the two are tied, is always q8_0: llama.cpp also gives it more bits (q6_k).  A row whose length is
 * no multiple of 256 cannot be q4_k and is q8_0; if it is no multiple of 32, the matrix stays as it is.
 *
 * The matrices are taken one after another, in pieces of rows, so PIECE bounds the memory.  If no entry can be
 * kept, the same bytes are made in memory. */
#include "base/buf.h"
#include "base/thread.h"
#include "base/user_cache.h"
#include "model/model.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define MARK "GGUF"
enum { ALIGN = 32, PIECE = 1 << 18 /* values of one piece of a thread */ };

static const struct cache_kind kind = {.folder = "weights",
                                       .mark = MARK,
                                       .suffix = ".gguf",
                                       .least = (size_t)4 << 20,
                                       .most = 16,
                                       .large = true};

/* --- The plan ---------------------------------------------------------------------------------- */

struct matrix {
    const struct tensor *t;
    bool turned; /* the file has it as [cols][rows] */
    enum dtype to;
    uint64_t parts, rows, cols; /* shape as products read it; parts: number of experts */
    uint64_t at, bytes;         /* place in the data of the new file */
};
struct matrix_list {
    struct matrix *v; /* owned */
    uint32_t n, cap, finer, left;
    bool lost; /* an allocation failed, so the list is incomplete */
};

void matrix_note(struct matrix_list *l, const struct tensor *t, bool turned)
{
    for (uint32_t i = 0; i < l->n; i++)
        if (l->v[i].t == t) return; /* layers share the tensor */
    if (l->n == l->cap) {
        uint32_t cap = MAX(2 * l->cap, 256u);
        struct matrix *v = mem_grow(l->v, cap, sizeof *v);
        l->lost |= !v;
        if (!v) return;
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = (struct matrix){.t = t, .turned = turned};
}

static bool is_float(enum dtype t)
{
    return t == DT_F32 || t == DT_F16 || t == DT_BF16;
}

/* Decides how a matrix is quantized.  False: it is not. */
static bool choose_type(const struct model *m, enum dtype to, struct matrix *x)
{
    const struct tensor *t = x->t;
    if (!is_float(t->dtype) || t->n_dims < 2 || t->n_dims > 3) return false;
    uint64_t a = t->dim[t->n_dims - 2], b = t->dim[t->n_dims - 1];
    x->parts = t->n_dims == 3 ? t->dim[0] : 1;
    x->rows = x->turned ? b : a;
    x->cols = x->turned ? a : b;
    bool head = t->data == m->head.data || (m->tied && t->data == m->embed.data);
    x->to = head ? DT_Q8_0 : to;
    if (x->cols % dtype_block(x->to)) x->to = DT_Q8_0;
    return x->cols % dtype_block(x->to) == 0 && x->rows && x->cols && x->cols <= PIECE;
}

/* Finds out which tensors are matrices, by opening the architecture over the same files, and lays out the new
 * file. */
static int make_plan(struct model *m, enum dtype to, struct matrix_list *l)
{
    struct model probe = {.ck = m->ck, .matrices = l};
    uint64_t at = 0;
    uint32_t n = 0;
    pthread_mutex_init(&probe.weights.lock, NULL);
    int e = model_bind(&probe);
    for (uint32_t i = 0; e >= 0 && i < l->n; i++) {
        struct matrix x = l->v[i];
        if (!choose_type(&probe, to, &x)) {
            l->left += is_float(x.t->dtype);
            continue;
        }
        bool head = x.t->data == probe.head.data || x.t->data == probe.embed.data;
        l->finer += x.to != to && !head;
        size_t row = 0;
        (void)dtype_bytes(x.to, x.cols, &row);
        x.bytes = x.parts * x.rows * row;
        x.at = at;
        at += (x.bytes + ALIGN - 1) / ALIGN * ALIGN;
        l->v[n++] = x;
    }
    l->n = n;
    model_done(&probe);
    if (e < 0) return e;
    if (l->lost) return ERR(NOMEM, "out of memory");
    return n ? 0
             : ERR(UNSUPPORTED,
                   "%s: no matrix of f32, f16 or bf16 to quantize; open it without --quantize",
                   checkpoint_path(m->ck));
}

/* --- The file ---------------------------------------------------------------------------------- */

/* Where the bytes of the new file go: to an entry, or to memory. */
struct output {
    struct cache_writer *w; /* NULL: the bytes go to memory */
    unsigned char *memory;
    uint64_t at;
};

static int put_bytes(struct output *s, const void *data, size_t n)
{
    if (s->w) TRY(cache_write(s->w, data, n));
    if (!s->w) memcpy(s->memory + s->at, data, n);
    s->at += n;
    return 0;
}

static int add_u64(struct buf *b, uint64_t v, size_t n)
{
    char byte[8];
    for (size_t i = 0; i < n; i++)
        byte[i] = (char)(v >> (8 * i));
    return buf_append(b, byte, n);
}

static int add_string(struct buf *b, const char *s)
{
    TRY(add_u64(b, strlen(s), 8));
    return buf_puts(b, s);
}

static int add_value(struct buf *b, const char *key, const char *value)
{
    TRY(add_string(b, key));
    TRY(add_u64(b, 8, 4)); /* a string */
    return add_string(b, value);
}

static uint32_t type_number(enum dtype t)
{
    for (uint32_t i = 0; i < 64; i++)
        if (dtype_from_gguf(i) == (int)t) return i;
    return 0;
}

/* Writes everything in front of the data, up to a multiple of the alignment. */
static int make_head(const struct model *m, const struct matrix_list *l, enum dtype to,
                     struct buf *b)
{
    TRY(buf_puts(b, "GGUF"));
    TRY(add_u64(b, 3, 4));
    TRY(add_u64(b, l->n, 8));
    TRY(add_u64(b, 3, 8));
    TRY(add_value(b, "general.architecture", "kvik-quantized"));
    TRY(add_value(b, "kvik.source", checkpoint_path(m->ck)));
    TRY(add_value(b, "kvik.quantize", dtype_name(to)));
    for (uint32_t i = 0; i < l->n; i++) {
        const struct matrix *x = &l->v[i];
        TRY(add_string(b, x->t->name));
        TRY(add_u64(b, x->t->n_dims, 4));
        TRY(add_u64(b, x->cols, 8)); /* innermost first */
        TRY(add_u64(b, x->rows, 8));
        if (x->t->n_dims == 3) TRY(add_u64(b, x->parts, 8));
        TRY(add_u64(b, type_number(x->to), 4));
        TRY(add_u64(b, x->at, 8));
    }
    while (b->len % ALIGN)
        TRY(buf_putc(b, 0));
    return 0;
}

/* --- Quantizing -------------------------------------------------------------------------------- */

struct quantize_round {
    struct pool *pool;
    uint32_t threads, rows; /* rows of a piece */
    float *x;               /* [threads][rows * cols, and rows] owned */
    unsigned char *out;     /* [threads][PIECE * 2] owned */
    /* the piece of this round for each thread: rows of one part of m */
    const struct matrix *m;
    uint64_t part, row;
    bool bad[64];
};

static size_t row_bytes(const struct matrix *m)
{
    size_t n = 0;
    (void)dtype_bytes(m->to, m->cols, &n);
    return n;
}

static void quantize_piece(void *ctx, uint32_t task, uint32_t thread)
{
    struct quantize_round *w = ctx;
    const struct matrix *m = w->m;
    uint64_t first = w->row + (uint64_t)task * w->rows;
    uint64_t n = MIN(w->rows, m->rows - first);
    size_t size = dtype_size(m->t->dtype);
    const unsigned char *from =
        (const unsigned char *)m->t->data + w->part * m->rows * m->cols * size;
    float *x = w->x + (size_t)thread * 2 * PIECE, *column = x + PIECE;
    if (!m->turned) dev_to_f32(m->t->dtype, from + first * m->cols * size, x, n * m->cols);
    for (uint64_t c = 0; m->turned && c < m->cols; c++) {
        dev_to_f32(m->t->dtype, from + (c * m->rows + first) * size, column, n);
        for (uint64_t r = 0; r < n; r++)
            x[r * m->cols + c] = column[r];
    }
    w->bad[task] = !dev_encode(m->to, x, w->out + (size_t)task * 2 * PIECE, n * m->cols);
}

static int quantize_matrix(struct quantize_round *w, const struct matrix *m, struct output *s)
{
    static const char zeros[ALIGN];
    w->m = m;
    w->rows = (uint32_t)(PIECE / m->cols);
    for (w->part = 0; w->part < m->parts; w->part++)
        for (w->row = 0; w->row < m->rows; w->row += (uint64_t)w->threads * w->rows) {
            uint64_t left = (m->rows - w->row + w->rows - 1) / w->rows;
            uint32_t tasks = (uint32_t)MIN(w->threads, left);
            pool_run(w->pool, tasks, quantize_piece, w);
            for (uint32_t i = 0; i < tasks; i++) {
                uint64_t n = MIN(w->rows, m->rows - w->row - (uint64_t)i * w->rows);
                if (w->bad[i])
                    return ERR(FORMAT,
                               "tensor %s has values that are not finite or too large for %s",
                               m->t->name, dtype_name(m->to));
                TRY(put_bytes(s, w->out + (size_t)i * 2 * PIECE, n * row_bytes(m)));
            }
        }
    return m->bytes % ALIGN ? put_bytes(s, zeros, ALIGN - m->bytes % ALIGN) : 0;
}

static int quantize_all(const struct matrix_list *l, const struct buf *head, struct output *s)
{
    struct quantize_round w = {0};
    TRY(pool_open(&w.pool, MIN(cpu_count(), 64u)));
    w.threads = MIN(pool_threads(w.pool), 64u);
    w.x = mem_array((size_t)w.threads * 2 * PIECE, sizeof *w.x);
    w.out = mem_array((size_t)w.threads * 2, PIECE);
    int e = w.x && w.out ? put_bytes(s, head->data, head->len) : ERR_NOMEM;
    for (uint32_t i = 0; e >= 0 && i < l->n; i++) {
        e = quantize_matrix(&w, &l->v[i], s);
        map_forget(l->v[i].t->data, l->v[i].t->bytes);
    }
    mem_free(w.out);
    mem_free(w.x);
    pool_close(w.pool);
    return e;
}

/* --- The whole --------------------------------------------------------------------------------- */

struct conversion {
    struct model *m;
    const struct quantize *q;
    struct matrix_list list;
    struct buf head;
    uint64_t bytes; /* of the new file */
    struct cache_sources sources;
    struct cache_key key;
    int64_t begun;
    bool elsewhere; /* another process is writing the entry now */
};

static int find_key(struct conversion *j)
{
    const struct checkpoint *ck = j->m->ck;
    char purpose[64], *config = NULL;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    j->begun = nanoseconds(&now);
    snprintf(purpose, sizeof purpose, "kvik quantized 1 %s", dtype_name(j->q->to));
    cache_sources_begin(&j->sources, purpose);
    for (uint32_t i = 0; i < checkpoint_n_files(ck); i++) {
        const char *path;
        const struct map *map = checkpoint_file_at(ck, i, &path);
        cache_sources_add(&j->sources, path, &map->stamp);
    }
    /* the configuration says which matrix is the head */
    if (checkpoint_config(ck)) {
        TRY(json_text(checkpoint_config(ck), &config));
        digest_text(&j->sources.state, config);
        mem_free(config);
    }
    cache_sources_end(&j->sources, &j->key);
    return 0;
}

/* Takes the tensors of an entry.  Returns 1, or 0 if there is none that fits. */
static int adopt_kept(struct conversion *j)
{
    struct cache_entry entry;
    if (!cache_find(&kind, &j->key, &entry)) return 0;
    int e = checkpoint_adopt(j->m->ck, &entry, NULL, 0);
    if (e >= 0) return 1;
    cache_entry_close(&entry);
    return e == ERR_NOMEM ? e : 0;
}

static bool is_unchanged(const struct conversion *j)
{
    for (uint32_t i = 0; i < checkpoint_n_files(j->m->ck); i++) {
        const char *path;
        struct stamp now;
        const struct map *map = checkpoint_file_at(j->m->ck, i, &path);
        if (!map_now(map, path, &now) || memcmp(&now, &map->stamp, sizeof now) != 0) return false;
    }
    return true;
}

/* Writes an entry and adopts its tensors.  Returns 1; or 0 with an error sentence if nothing could be kept. */
static int make_kept(struct conversion *j)
{
    struct output s = {0};
    if (!cache_sources_settled(&kind, &j->sources, j->begun)) {
        (void)ERR(IO, "%s",
                  j->sources.bytes < kind.least ? "the model is small"
                                                : "the model's files have just been written");
        return 0;
    }
    int e = cache_write_begin(&kind, &j->key, j->bytes, &s.w);
    j->elsewhere = e == ERR_BUSY;
    if (e < 0) return 0;
    e = quantize_all(&j->list, &j->head, &s);
    if (e >= 0 && !is_unchanged(j))
        e = ERR(IO, "%s: the weights were written to while they were quantized",
                checkpoint_path(j->m->ck));
    if (e < 0) {
        cache_write_drop(s.w);
        return e == ERR_IO ? 0 : e; /* the disk failed, not the weights: go on without an entry */
    }
    if (cache_write_end(s.w) < 0) return 0;
    e = adopt_kept(j);
    if (!e) (void)ERR(IO, "what was written cannot be read again");
    return e;
}

static int make_in_memory(struct conversion *j)
{
    if (j->bytes > SIZE_MAX / 2)
        return ERR(LIMIT, "the quantized weights have %llu bytes, and memory can hold %zu",
                   (unsigned long long)j->bytes, (size_t)SIZE_MAX / 2);
    struct output s = {.memory = mem_aligned((size_t)j->bytes)};
    if (!s.memory) return ERR_NOMEM;
    int e = quantize_all(&j->list, &j->head, &s);
    if (e >= 0) e = checkpoint_adopt(j->m->ck, NULL, s.memory, (size_t)j->bytes);
    if (e < 0) mem_free(s.memory);
    return e;
}

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

static void tell_kept(const struct conversion *j, double seconds, const char *why, size_t before)
{
    char text[1600], rest[160] = "", where[1200];
    const struct cache_entry *entry;
    size_t bytes = checkpoint_adopted(j->m->ck, &entry);
    if (!j->q->on_notice) return;
    size_t n = 0;
    if (j->list.finer)
        n = (size_t)snprintf(rest, sizeof rest,
                             "; %u with rows that are no multiple of 256 are q8_0", j->list.finer);
    if (j->list.left)
        snprintf(rest + n, sizeof rest - n, "; %u with rows that are no multiple of 32 stay",
                 j->list.left);
    if (entry)
        snprintf(where, sizeof where, "kept in %s for later runs, and can be removed at any time",
                 entry->path);
    else if (j->elsewhere)
        snprintf(where, sizeof where,
                 "in memory for this run: another process quantizes the same "
                 "model now and keeps the result for later runs");
    else
        snprintf(where, sizeof where, "in memory, because they could not be kept: %s", why);
    snprintf(text, sizeof text, "quantized %u %s to %s in %.1f s (%.1f to %.1f MiB%s), %s",
             j->list.n, j->list.n == 1 ? "matrix" : "matrices", dtype_name(j->q->to), seconds,
             mib(before), mib(bytes), rest, where);
    j->q->on_notice(j->q->ctx, text);
}

static int make(struct conversion *j)
{
    char why[1024];
    size_t before = 0;
    double begun = now_seconds();
    TRY(make_plan(j->m, j->q->to, &j->list));
    TRY(make_head(j->m, &j->list, j->q->to, &j->head));
    const struct matrix *last = &j->list.v[j->list.n - 1];
    j->bytes = j->head.len + last->at + (last->bytes + ALIGN - 1) / ALIGN * ALIGN;
    for (uint32_t i = 0; i < j->list.n; i++)
        before += j->list.v[i].t->bytes;
    int e = make_kept(j);
    snprintf(why, sizeof why, "%s", err_last());
    if (e == 0) e = make_in_memory(j);
    TRY(e);
    tell_kept(j, now_seconds() - begun, why, before);
    return 0;
}

int weights_quantize(struct model *m, const struct quantize *q)
{
    struct conversion j = {.m = m, .q = q};
    buf_init(&j.head, (size_t)1 << 30);
    int e = find_key(&j);
    if (e >= 0) e = adopt_kept(&j);
    if (e == 0) e = make(&j);
    buf_done(&j.head);
    mem_free(j.list.v);
    return e < 0 ? e : 0;
}
