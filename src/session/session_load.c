/* session_load.c - loads sequences from a file, and describes a file. */
#include "session/seen.h"
#include "session/session.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

struct loader {
    struct kv_source source;
    struct session_disk disk;
    const struct session *s;
    struct kv *kv;
    uint32_t at;         /* index of the sequence that is being loaded */
    const kvik_seq *seq; /* the sequences loaded so far */
};

static int missing(const struct loader *v, const struct kv_chunk *c)
{
    return ERR(FORMAT, "%s: the session is damaged (rows %u to %u of group %u are missing)",
               v->disk.io.what, c->row, c->row + c->n, c->group);
}

/* Gives a chunk the rows that it needs of a longer one in the file: the sequence was cut, or has fewer snapshots. */
static int give_rows(struct loader *v, const struct session_part *p, const struct kv_chunk *c,
                     void *data, size_t bytes)
{
    if (bytes % c->n || p->c.n > kv_chunk_most(v->kv, c->group, c->form) ||
        p->bytes != (uint64_t)(bytes / c->n) * p->c.n)
        return missing(v, c);
    void *whole = mem_alloc((size_t)p->bytes);
    int e = whole ? session_part_read(&v->disk.io, p, whole) : ERR_NOMEM;
    if (e >= 0) kv_chunk_cut(v->kv, &p->c, c, whole, data);
    mem_free(whole);
    return e;
}

static int give_chunk(struct kv_source *source, const struct kv_chunk *c, void *data, size_t bytes)
{
    struct loader *v = (struct loader *)source;
    const struct session_part *p = session_find(&v->s->seq[v->at], c);
    if (p && (p->c.n > c->n || p->c.row != c->row)) return give_rows(v, p, c, data, bytes);
    if (!p || p->c.n != c->n || p->bytes != bytes) return missing(v, c);
    return session_part_read(&v->disk.io, p, data);
}

static int give_same(struct kv_source *source, const struct kv_chunk *c, kv_seq *of)
{
    struct loader *v = (struct loader *)source;
    const struct session_part *p = session_find(&v->s->seq[v->at], c);
    for (uint32_t i = 0; p && i < v->at; i++) {
        const struct session_part *q = session_find(&v->s->seq[i], c);
        if (!q || q->at != p->at || q->bytes != p->bytes || q->c.n != p->c.n) continue;
        if (p->c.n != c->n || p->c.row != c->row) return 0;
        *of = v->seq[i];
        return 1;
    }
    return 0;
}

/* Checks what the store cannot check: token ids against the vocabulary, and the salt against the model. */
static int image_check(const kvik_cache *c, const struct kv_image *im, const char *what)
{
    const struct exec *x = c->x;
    uint32_t regime = im->salt.regime, pad = im->salt.pad;
    struct kv_salt known = {.regime = regime, .pad = pad};
    if (im->len > x->max_len)
        return ERR(
            LIMIT,
            "%s: the saved sequence has %u tokens, more than max_cache_len %u; raise max_cache_len",
            what, im->len, x->max_len);
    for (uint32_t i = 0; i < im->len; i++)
        if (im->tok[i] < -1 || (im->tok[i] >= 0 && (uint32_t)im->tok[i] >= x->m->vocab))
            return ERR(FORMAT, "%s: token id %d is outside the vocabulary of %u", what, im->tok[i],
                       x->m->vocab);
    memcpy(known.owner, im->salt.owner, sizeof known.owner);
    if (x->encode && im->cross) memcpy(known.source, im->salt.source, sizeof known.source);
    if (!kv_salt_same(&im->salt, &known))
        return ERR(
            UNSUPPORTED,
            "%s: the rows were computed with an adapter or after an encoder, and this model has "
            "neither",
            what);
    if (im->cross > x->encoder_rows)
        return ERR(LIMIT,
                   "%s: the saved sequence has %u rows of an encoder, and the cache was opened for "
                   "%u; raise max_encoder_len",
                   what, im->cross, x->encoder_rows);
    if (x->encode && im->len && !im->cross)
        return ERR(FORMAT, "%s: a saved sequence has tokens but no rows of the encoder", what);
    if ((regime && regime_of(x->m, regime) != regime) || (pad && !x->m->counts_padding))
        return ERR(
            FORMAT,
            "%s: the rows were computed with rotary frequencies or a padding that this model does not have",
            what);
    if (im->len && regime != regime_of(x->m, im->len) && !x->regime_rows)
        return ERR(
            LIMIT,
            "%s: the %u rows have the rotary frequencies of a longer text; raise max_cache_len "
            "from %u to at least %u",
            what, im->len, x->max_len, regime);
    return 0;
}

static int load_all(kvik_cache *c, struct loader *v, kvik_seq *s)
{
    struct kv *kv = c->x->kv;
    for (v->at = 0; v->at < v->s->n_seqs; v->at++) {
        const struct kv_image *im = &v->s->seq[v->at].im;
        int e = image_check(c, im, v->disk.io.what);
        if (e >= 0) e = kv_load(kv, im, &v->source, &s[v->at]);
        if (e >= 0 && c->x->reserve && (e = kv_reserve(kv, s[v->at], c->x->max_len)) < 0)
            (void)kv_drop(kv, s[v->at]);
        if (e >= 0) continue;
        for (uint32_t i = 0; i < v->at; i++)
            (void)kv_drop(kv, s[i]);
        return e;
    }
    return 0;
}

/* A file may have been saved when rows were encoded again because memory was short.  Returns the rung at which this
 * cache has the same rows as the file; 0: there is none. */
static uint32_t session_rung(const kvik_cache *c, json_t *mine, const json_t *theirs)
{
    char text[KV_GROUP_TEXT];
    for (uint32_t r = kv_rung(c->x->kv) + 1; c->x->encodes && r <= KV_RUNGS; r++) {
        JSON_SCOPE(scope);
        json_t *groups = json_array(), *as = json_copy(mine);
        for (uint32_t i = 0; i < kv_n_groups(c->x->kv); i++) {
            kv_group_text_at(c->x->kv, i, r, text);
            json_array_append_new(groups, json_string(text));
        }
        json_object_set_new(as, "groups", groups);
        bool fits = json_whole(&scope) >= 0 && session_agree(as, theirs, "") >= 0;
        json_decref(as);
        if (fits) return r;
    }
    return 0;
}

int session_load(kvik_cache *c, struct durable *f, const struct session *s, uint32_t max,
                 kvik_seq *out, char **note)
{
    json_t *meta;
    struct loader v = {.source = {.chunk = give_chunk, .same = give_same}, .s = s, .kv = c->x->kv};
    session_disk_init(&v.disk, f);
    TRY(session_meta(c, &meta));
    uint32_t rung = session_rung(c, meta, s->meta);
    int e = session_agree(meta, s->meta, v.disk.io.what);
    json_decref(meta);
    if (rung) e = kv_encode(c->x->kv, rung);
    if (e < 0) return rung ? cache_full(c, e) : e;
    if (s->n_groups != kv_n_groups(c->x->kv))
        return ERR(FORMAT, "%s: the file has rows of %u groups, the model has %u", v.disk.io.what,
                   s->n_groups, kv_n_groups(c->x->kv));
    if (s->n_seqs > max)
        return ERR(LIMIT, "%s: the file has %u sequences, there is room for %u", v.disk.io.what,
                   s->n_seqs, max);
    kvik_seq *seq = mem_array(MAX(s->n_seqs, 1), sizeof *seq);
    char *text = note ? mem_strndup(s->note, s->n_note) : NULL;
    v.seq = seq;
    e = seq && (text || !note) ? load_all(c, &v, seq) : ERR_NOMEM;
    if (e >= 0 && s->n_seqs) memcpy(out, seq, s->n_seqs * sizeof *seq);
    if (e >= 0 && note)
        *note = text;
    else
        mem_free(text);
    mem_free(seq);
    return e < 0 ? cache_full(c, e) : (int)s->n_seqs;
}

static void *copy_of(const void *from, size_t n, size_t size)
{
    void *copy = mem_array(MAX(n, (size_t)1), size);
    if (copy && n) memcpy(copy, from, n * size);
    return copy;
}

int session_load_cut(kvik_cache *c, struct durable *f, const struct session *s,
                     const struct session_seq *q, uint32_t len, kvik_seq *out)
{
    uint32_t keeps = s->n_groups, n_turns = q->im.n_turns;
    for (uint32_t i = 0; i < s->n_groups; i++)
        keeps += q->keep[i];
    struct session_seq cut = *q;
    struct session one = *s;
    cut.turn = copy_of(q->turn, n_turns, sizeof *q->turn);
    cut.unseen = copy_of(q->unseen, (size_t)2 * s->n_groups, sizeof *q->unseen);
    cut.keep = copy_of(q->keep, keeps, sizeof *q->keep);
    int e = ERR_NOMEM;
    if (cut.turn && cut.unseen && cut.keep) {
        session_point(s, &cut);
        session_cut(&cut, s->n_groups, len);
        one.seq = &cut;
        one.n_seqs = 1;
        e = session_load(c, f, &one, 1, out, NULL);
    }
    mem_free(cut.turn);
    mem_free(cut.unseen);
    mem_free(cut.keep);
    return e;
}

/* True if a group drops rows that a text of at most `len` rows would need. */
static bool forgets(const struct kv_policy *p, uint32_t len)
{
    return p->kind == KV_STATE || (p->kind == KV_ROWS && kv_reach(p, len, 0).lo > p->sinks);
}

bool session_cuts(const kvik_cache *c, const struct session_seq *q)
{
    bool cuts = kv_indexes(c->x->kv) && !kv_by_turns(c->x->kv) && !q->im.foreign && !q->im.cross &&
                !q->im.salt.pad;
    for (uint32_t i = 0; i < c->x->n_groups; i++)
        cuts &= !forgets(&c->x->group[i].policy, q->im.len);
    return cuts;
}

uint32_t session_usable(const kvik_cache *c, const struct session_seq *q, uint32_t n)
{
    if (n >= q->im.len) return q->im.len;
    for (uint32_t before = 0; before != n;) {
        const uint32_t *keep = q->im.keep;
        before = n;
        for (uint32_t gi = 0; gi < c->x->n_groups; keep += q->im.n_keeps[gi++]) {
            uint32_t k = q->im.n_keeps[gi];
            if (!forgets(&c->x->group[gi].policy, q->im.len)) continue;
            while (k && keep[k - 1] > n)
                k--;
            n = k ? keep[k - 1] : 0;
        }
    }
    return n;
}

struct session_need session_need(const kvik_cache *c, uint32_t n)
{
    return (struct session_need){.len = c->x->max_len, .seqs = n};
}

/* Opens a file for reading, without a lock.  If the file looks damaged, another process may be appending to it, so
 * reading is repeated while the file grows. */
int session_open_file(int dir, const char *path, const struct session_need *need,
                      bool (*trusted)(void *ctx, const struct durable *f), void *ctx,
                      struct durable *f, struct session *s)
{
    struct session_disk d;
    uint64_t before = UINT64_MAX;
    for (int i = 0;; i++) {
        TRY(durable_open_at(f, dir, path, false));
        session_disk_init(&d, f);
        d.io.need = need;
        int e = trusted && !trusted(ctx, f) ? ERR_ARG : session_read(&d.io, s);
        if (e >= 0) return e;
        bool same = f->size == before;
        before = f->size;
        durable_close(f);
        if (e != ERR_FORMAT || same || i == 8) return e;
    }
}

KVIK_API int kvik_cache_load(kvik_cache *c, const char *path, uint32_t max, kvik_seq *s,
                             char **note)
{
    struct durable f;
    struct session file;
    USE_CACHE(c);
    TRY(exec_idle(c->x));
    if (!path || (max && !s)) return ERR(ARG, "loading needs a path and room for the sequences");
    const struct session_need need = session_need(c, max);
    TRY(session_seen_open(c));
    TRY(session_open_file(AT_FDCWD, path, &need, NULL, NULL, &f, &file));
    int e = session_load(c, &f, &file, max, s, note);
    if (e >= 0) session_seen_add(c, file.digest);
    session_done(&file);
    durable_close(&f);
    return e;
}

/* --- Describing ----------------------------------------------------------------------------- */

static json_t *describe_seq(const struct session_seq *q, uint32_t n_groups)
{
    json_int_t bytes = 0, unknown = 0;
    uint32_t keeps = 0;
    for (uint32_t i = 0; i < n_groups; i++)
        keeps = MAX(keeps, q->keep[i]);
    for (uint32_t i = 0; i < q->n_parts; i++)
        bytes += (json_int_t)q->part[i].bytes;
    for (uint32_t i = 0; i < q->im.len; i++)
        unknown += q->tok[i] < 0;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "tokens", (json_int_t)q->im.len,
                     "unknown_tokens", unknown, "turns", (json_int_t)q->im.n_turns, "snapshots",
                     (json_int_t)keeps, "blocks", (json_int_t)q->n_parts, "bytes", bytes);
}

int session_check(struct durable *f, const struct session *s)
{
    struct session_disk d;
    const struct session_part **all;
    size_t n;
    session_disk_init(&d, f);
    int e = session_blocks(s, &all, &n);
    if (e < 0) return e;
    for (size_t i = 0; e >= 0 && i < n; i++)
        e = session_part_each(&d.io, all[i], NULL, NULL);
    mem_free(all);
    return e;
}

static int describe(struct session_io *io, const struct session *s, char **json)
{
    JSON_SCOPE(scope);
    json_t *seqs = json_array();
    for (uint32_t i = 0; seqs && i < s->n_seqs; i++)
        json_array_append_new(seqs, describe_seq(&s->seq[i], s->n_groups));
    json_t *o =
        json_pack("{s:s, s:i, s:I, s:b, s:I, s:I, s:I, s:I, s:o}", "type", "session", "version",
                  (int)s->version, "saves", (json_int_t)s->saves, "interrupted", s->interrupted,
                  "bytes", (json_int_t)io->size, "live_bytes", (json_int_t)s->live, "blocks",
                  (json_int_t)s->blocks, "note_bytes", (json_int_t)s->n_note, "sequences", seqs);
    int e = o && json_object_update_missing(o, s->meta) == 0 ? 0 : ERR(NOMEM, "out of memory");
    if (e >= 0) e = json_text(o, json);
    json_decref(o);
    return e;
}

KVIK_API int kvik_session_describe(const char *path, char **json)
{
    struct durable f;
    struct session s;
    struct session_disk d;
    if (!path || !json) return ERR(ARG, "describing a session needs its path");
    TRY(session_open_file(AT_FDCWD, path, NULL, NULL, NULL, &f, &s));
    session_disk_init(&d, &f);
    int e = session_check(&f, &s);
    if (e >= 0) e = describe(&d.io, &s, json);
    session_done(&s);
    durable_close(&f);
    return e;
}
