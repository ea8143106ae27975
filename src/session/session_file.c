/* session_file.c - reading a session's head and manifest.  Chunks are checked one by one, when they are read.
 *
 * The file is untrusted.  Counts are compared with the remaining bytes before anything is allocated, ranges with the
 * size of the file, and chunks must ascend.  A damaged slot is accepted only if the file continues behind the state that
 * the other slot names, as an interrupted save leaves it.  So a changed byte in a finished file is always refused; it
 * never silently becomes an older session. */
#include "session/session_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART_BYTES 64u

bool session_trust;

static bool same_digest(const uint8_t *a, const uint8_t *b)
{
    return session_trust || memcmp(a, b, DIGEST_BYTES) == 0;
}

/* --- Bytes ---------------------------------------------------------------------------------- */

struct cursor {
    const uint8_t *p, *end;
    bool bad;
};

static uint64_t take(struct cursor *c, unsigned n)
{
    uint64_t v = 0;
    if ((size_t)(c->end - c->p) < n) {
        c->bad = true;
        return 0;
    }
    for (unsigned i = 0; i < n; i++)
        v |= (uint64_t)c->p[i] << 8 * i;
    c->p += n;
    return v;
}

static uint32_t take32(struct cursor *c)
{
    return (uint32_t)take(c, 4);
}

/* Returns the count n if n entries of `size` bytes each can follow; else marks the cursor bad. */
static uint32_t take_count(struct cursor *c, uint32_t n, size_t size)
{
    if (n > (size_t)(c->end - c->p) / size) c->bad = true;
    return c->bad ? 0 : n;
}

static const uint8_t *take_bytes(struct cursor *c, uint64_t n)
{
    const uint8_t *p = c->p;
    if (n > (uint64_t)(c->end - c->p)) {
        c->bad = true;
        return NULL;
    }
    c->p += n;
    return p;
}

/* --- The head ------------------------------------------------------------------------------- */

int session_is(struct session_io *io)
{
    char magic[8];
    if (io->size < sizeof magic) return 0;
    TRY(io->read(io, 0, magic, sizeof magic));
    return memcmp(magic, SESSION_MAGIC, sizeof magic) == 0;
}

static bool all_zero(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i]) return false;
    return true;
}

struct slot {
    uint64_t saves, at, bytes, end;
    uint8_t digest[DIGEST_BYTES];
    bool valid;
};

static struct slot slot_read(const uint8_t *p)
{
    struct cursor c = {p, p + SESSION_SLOT, false};
    uint8_t want[DIGEST_BYTES];
    struct slot s = {.saves = take(&c, 8)};
    s.at = take(&c, 8);
    s.bytes = take(&c, 8);
    s.end = take(&c, 8);
    memcpy(s.digest, take_bytes(&c, DIGEST_BYTES), DIGEST_BYTES);
    digest_of(p, SESSION_SLOT - DIGEST_BYTES, want);
    s.valid = same_digest(want, p + SESSION_SLOT - DIGEST_BYTES) && s.saves;
    return s;
}

static int head_check(const struct session_io *io, const uint8_t *h)
{
    struct cursor c = {h + 8, h + SESSION_SLOT_AT, false};
    size_t gap = SESSION_SLOT_AT + SESSION_SLOT, second = SESSION_SLOT_AT + SESSION_SLOT_STEP;
    uint32_t version = take32(&c);
    if (version > SESSION_VERSION)
        return ERR(
            UNSUPPORTED,
            "%s: session format version %u was written by a newer kvik; this one reads up to %u",
            io->what, version, SESSION_VERSION);
    if (!version || !all_zero(h + 12, SESSION_SLOT_AT - 12) || !all_zero(h + gap, second - gap) ||
        !all_zero(h + second + SESSION_SLOT, SESSION_DATA - second - SESSION_SLOT))
        return ERR(FORMAT, "%s: the session is damaged (its head)", io->what);
    return 0;
}

static int pick_slot(const struct session_io *io, const uint8_t *h, struct session *s,
                     struct slot *out)
{
    struct slot a[2];
    for (int i = 0; i < 2; i++)
        a[i] = slot_read(h + SESSION_SLOT_AT + (size_t)i * SESSION_SLOT_STEP);
    if (!a[0].valid && !a[1].valid)
        return ERR(FORMAT, "%s: the session is damaged (its head)", io->what);
    s->slot = !a[0].valid || (a[1].valid && a[1].saves > a[0].saves);
    *out = a[s->slot];
    const struct slot *other = &a[!s->slot];
    s->both = other->valid && other->saves == out->saves && other->at == out->at;
    if (out->end > io->size)
        return ERR(FORMAT, "%s: the session is truncated: %llu bytes of %llu", io->what,
                   (unsigned long long)io->size, (unsigned long long)out->end);
    s->interrupted = out->end < io->size;
    if (!other->valid && !s->interrupted)
        return ERR(FORMAT, "%s: the session is damaged (its head)", io->what);
    return 0;
}

/* --- The manifest --------------------------------------------------------------------------- */

static int damaged(const struct session_io *io, const char *what)
{
    return ERR(FORMAT, "%s: the session is damaged (%s)", io->what, what);
}

static int read_part(struct cursor *c, const struct session *s, struct session_part *p)
{
    p->c.group = take32(c);
    p->c.form = take32(c);
    p->c.row = take32(c);
    p->c.n = take32(c);
    p->at = take(c, 8);
    p->bytes = take(c, 8);
    memcpy(p->digest, take_bytes(c, DIGEST_BYTES), DIGEST_BYTES); /* take_count checked the size */
    if (p->c.group >= s->n_groups || p->c.form > KV_CHUNK_SEALED || !p->bytes) return -1;
    return p->at < SESSION_DATA || p->at > s->manifest_at || p->bytes > s->manifest_at - p->at ? -1
                                                                                               : 0;
}

static int order(const struct kv_chunk *a, const struct kv_chunk *b)
{
    if (a->group != b->group) return a->group < b->group ? -1 : 1;
    if (a->form != b->form) return a->form < b->form ? -1 : 1;
    return (a->row > b->row) - (a->row < b->row);
}

static void point(struct session_seq *q)
{
    q->im.tok = q->tok;
    q->im.turn = q->turn;
    q->im.unseen = q->unseen;
}

static int read_seq(struct session_io *io, struct cursor *c, const struct session *s,
                    struct session_seq *q)
{
    struct kv_image *im = &q->im;
    im->len = take32(c);
    im->cross = take32(c);
    im->n_turns = take32(c);
    uint32_t flags = take32(c);
    im->salt.regime = take32(c);
    im->salt.pad = take32(c);
    const uint8_t *digests = flags & SESSION_DIGESTS ? take_bytes(c, 2 * KV_DIGEST) : NULL;
    if (digests) {
        memcpy(im->salt.adapter, digests, KV_DIGEST);
        memcpy(im->salt.source, digests + KV_DIGEST, KV_DIGEST);
    }
    im->turn_open = flags & 1;
    im->foreign = flags >> 1 & 1;
    uint32_t n_unseen = take_count(c, 2 * s->n_groups, 4);
    q->unseen = mem_array(MAX(n_unseen, 1), sizeof *q->unseen);
    for (uint32_t i = 0; q->unseen && i < n_unseen; i++)
        q->unseen[i] = take32(c);
    im->len = take_count(c, im->len, 4);
    q->tok = mem_array(MAX(im->len, 1), sizeof *q->tok);
    for (uint32_t i = 0; q->tok && i < im->len; i++)
        q->tok[i] = (int32_t)take32(c);
    im->n_turns = take_count(c, im->n_turns, 8);
    q->turn = mem_array(MAX(im->n_turns, 1), sizeof *q->turn);
    for (uint32_t i = 0; q->turn && i < im->n_turns; i++) {
        q->turn[i].pos = take32(c);
        q->turn[i].n = take32(c);
    }
    q->n_parts = take_count(c, take32(c), PART_BYTES);
    q->part = mem_array(MAX(q->n_parts, 1), sizeof *q->part);
    if (!q->unseen || !q->tok || !q->turn || !q->part) return ERR_NOMEM;
    q->cap_parts = MAX(q->n_parts, 1);
    for (uint32_t i = 0; i < q->n_parts; i++) {
        if (read_part(c, s, &q->part[i]) < 0)
            return damaged(io, "a block lies outside of the file");
        if (i && order(&q->part[i - 1].c, &q->part[i].c) >= 0)
            return damaged(io, "its blocks do not ascend");
    }
    point(q);
    return c->bad || flags > 7 ? damaged(io, "its manifest") : 0;
}

static int by_place(const void *a, const void *b)
{
    const struct session_part *x = *(const struct session_part *const *)a,
                              *y = *(const struct session_part *const *)b;
    return (x->at > y->at) - (x->at < y->at);
}

int session_blocks(const struct session *s, const struct session_part ***out, size_t *n_out)
{
    size_t n = 0, k = 0;
    for (uint32_t i = 0; i < s->n_seqs; i++)
        n += s->seq[i].n_parts;
    const struct session_part **all = mem_array(MAX(n, 1), sizeof *all);
    if (!all) return ERR_NOMEM;
    for (uint32_t i = 0; i < s->n_seqs; i++)
        for (uint32_t j = 0; j < s->seq[i].n_parts; j++)
            all[k++] = &s->seq[i].part[j];
    qsort(all, n, sizeof *all, by_place);
    for (size_t i = k = 0; i < n; i++) { /* sequences that share a chunk name the same place */
        const struct session_part *a = all[i], *b = k ? all[k - 1] : NULL;
        if (b && a->at == b->at && a->bytes == b->bytes && same_digest(a->digest, b->digest))
            continue;
        if (b && a->at < b->at + b->bytes) {
            mem_free(all);
            return ERR(FORMAT, "the session is damaged (its blocks overlap)");
        }
        all[k++] = a;
    }
    *out = all;
    *n_out = k;
    return 0;
}

/* Counts s->live and s->blocks. */
static int count_live(const struct session_io *io, struct session *s)
{
    const struct session_part **all;
    size_t n;
    int e = session_blocks(s, &all, &n);
    if (e == ERR_FORMAT) return damaged(io, "its blocks overlap");
    if (e < 0) return e;
    s->live = SESSION_DATA + s->manifest_bytes;
    for (size_t i = 0; i < n; i++)
        s->live += all[i]->bytes;
    s->blocks = (uint32_t)n;
    mem_free(all);
    return 0;
}

static int read_manifest(struct session_io *io, const uint8_t *data, struct session *s)
{
    struct cursor c = {data, data + s->manifest_bytes, false};
    uint32_t n = take32(&c);
    const uint8_t *text = take_bytes(&c, n);
    if (!text) return damaged(io, "its manifest");
    TRY(json_parse((const char *)text, n, io->what, &s->meta));
    if (!json_is_object(s->meta)) return damaged(io, "its description");
    s->n_note = take32(&c);
    text = take_bytes(&c, s->n_note);
    if (!text) return damaged(io, "its note");
    if (!(s->note = mem_strndup((const char *)text, s->n_note))) return ERR_NOMEM;
    s->n_groups = take32(&c);
    n = take_count(&c, take32(&c), 28);
    if (c.bad || s->n_groups > 65536) return damaged(io, "its manifest");
    s->seq = mem_array(MAX(n, 1), sizeof *s->seq);
    if (!s->seq) return ERR_NOMEM;
    for (; s->n_seqs < n; s->n_seqs++) {
        int e = read_seq(io, &c, s, &s->seq[s->n_seqs]);
        if (e >= 0) continue;
        s->n_seqs++; /* so that its arrays are freed */
        return e;
    }
    if (c.bad || c.p != c.end) return damaged(io, "its manifest");
    return count_live(io, s);
}

int session_read(struct session_io *io, struct session *out)
{
    uint8_t head[SESSION_DATA], digest[DIGEST_BYTES];
    struct session s = {0};
    struct slot slot;
    int is = session_is(io);
    if (is < 0) return is;
    if (!is && io->size >= 8) return ERR(FORMAT, "%s: not a kvik session", io->what);
    if (io->size < sizeof head)
        return ERR(FORMAT, "%s: not a kvik session, or a truncated one (%llu bytes)", io->what,
                   (unsigned long long)io->size);
    TRY(io->read(io, 0, head, sizeof head));
    TRY(head_check(io, head));
    TRY(pick_slot(io, head, &s, &slot));
    s.saves = slot.saves;
    s.manifest_at = slot.at;
    s.manifest_bytes = slot.bytes;
    s.end = slot.end;
    if (s.manifest_at < SESSION_DATA || s.manifest_at > s.end ||
        s.manifest_bytes != s.end - s.manifest_at)
        return damaged(io, "its head");
    if (s.manifest_bytes > SIZE_MAX / 2) return damaged(io, "its head");
    uint8_t *data = mem_alloc((size_t)s.manifest_bytes + 1);
    int e = data ? io->read(io, s.manifest_at, data, (size_t)s.manifest_bytes) : ERR_NOMEM;
    if (e >= 0) digest_of(data, (size_t)s.manifest_bytes, digest);
    if (e >= 0 && !same_digest(digest, slot.digest))
        e = damaged(io, "the checksum of its manifest is wrong");
    if (e >= 0) e = read_manifest(io, data, &s);
    mem_free(data);
    if (e < 0)
        session_done(&s);
    else
        *out = s;
    return e;
}

void session_drop_seq(struct session *s)
{
    struct session_seq *q = &s->seq[--s->n_seqs];
    mem_free(q->tok);
    mem_free(q->turn);
    mem_free(q->unseen);
    mem_free(q->part);
}

void session_done(struct session *s)
{
    while (s->seq && s->n_seqs)
        session_drop_seq(s);
    mem_free(s->seq);
    mem_free(s->note);
    json_decref(s->meta);
    *s = (struct session){0};
}

const struct session_part *session_find(const struct session_seq *s, const struct kv_chunk *c)
{
    uint32_t lo = 0, hi = s->n_parts;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        int k = order(&s->part[mid].c, c);
        if (k == 0) return &s->part[mid];
        if (k < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

int session_part_read(struct session_io *io, const struct session_part *p, void *data)
{
    uint8_t digest[DIGEST_BYTES];
    TRY(io->read(io, p->at, data, (size_t)p->bytes));
    digest_of(data, (size_t)p->bytes, digest);
    if (same_digest(digest, p->digest)) return 0;
    return ERR(FORMAT,
               "%s: the session is damaged (the checksum of rows %u to %u of group %u is wrong)",
               io->what, p->c.row, p->c.row + p->c.n, p->c.group);
}

void session_cut(struct session_seq *q, uint32_t n_groups, uint32_t len)
{
    struct kv_image *im = &q->im;
    if (len >= im->len) return;
    im->len = len;
    im->turn_open = false;
    while (im->n_turns && q->turn[im->n_turns - 1].pos >= len)
        im->n_turns--;
    struct kv_turn *t = im->n_turns ? &q->turn[im->n_turns - 1] : NULL;
    if (t && t->n > len - t->pos) t->n = len - t->pos;
    if (t && t->n == 1) im->n_turns--;
    for (uint32_t i = 0; i < 2 * n_groups; i++)
        q->unseen[i] = MIN(q->unseen[i], len);
}
