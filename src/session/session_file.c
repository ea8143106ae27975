/* session_file.c - reading a session's head and manifest.  Chunks are checked one by one, when they are read.
 *
 * The file is untrusted.  Counts are compared with the remaining bytes before anything is allocated, ranges with
 * the size of the file, and chunks must ascend.  A damaged slot is accepted only if the file continues behind the
 * state that the other slot names, because an interrupted save leaves such a file.  So a changed byte in a
 * finished file is always an error, and never silently turns the file into an older session. */
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

enum { WINDOW = 64 << 10, PIECE = 1 << 20 };

static uint64_t little(const uint8_t *p, unsigned n)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < n; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

/* Reads a manifest from its first byte to its last, a window at a time, and hashes it on the way. */
struct session_cursor {
    struct session_io *io;
    uint64_t at, left; /* bytes that no window has had */
    struct digest digest;
    uint8_t *window;
    size_t pos, n;
    int e; /* error of the last read */
    bool bad;
};

static bool fill_window(struct session_cursor *c)
{
    size_t n = (size_t)MIN(c->left, (uint64_t)WINDOW);
    if (!n || c->e < 0) return false;
    c->e = c->io->read(c->io, c->at, c->window, n);
    if (c->e < 0) return false;
    digest_add(&c->digest, c->window, n);
    c->at += n;
    c->left -= n;
    c->pos = 0;
    c->n = n;
    return true;
}

/* Returns the next bytes.  Behind the end writes zeros and marks the cursor as bad. */
static void read_bytes(struct session_cursor *c, void *out, size_t n)
{
    uint8_t *to = out;
    while (n) {
        if (!c->bad && c->pos == c->n) c->bad = !fill_window(c);
        if (c->bad) {
            memset(to, 0, n);
            return;
        }
        size_t k = MIN(n, c->n - c->pos);
        memcpy(to, c->window + c->pos, k);
        c->pos += k;
        to += k;
        n -= k;
    }
}

static uint64_t take64(struct session_cursor *c)
{
    uint8_t b[8];
    read_bytes(c, b, sizeof b);
    return little(b, sizeof b);
}

static uint32_t take32(struct session_cursor *c)
{
    uint8_t b[4];
    read_bytes(c, b, sizeof b);
    return (uint32_t)little(b, sizeof b);
}

/* Returns n if it is at most `most` and if n entries of `size` bytes can still follow.  Else marks the cursor as
 * bad. */
static uint32_t take_count(struct session_cursor *c, uint32_t n, uint64_t most, size_t size)
{
    if (n > most || n > (c->left + (c->n - c->pos)) / size) c->bad = true;
    return c->bad ? 0 : n;
}

/* Takes a text and the length before it, and adds a NUL (mem_free). */
static char *read_text(struct session_cursor *c, uint32_t most, size_t *n)
{
    *n = take_count(c, take32(c), most, 1);
    char *text = mem_alloc(*n + 1);
    if (text) read_bytes(c, text, *n);
    return text;
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

struct root_slot {
    uint64_t saves, at, bytes, end;
    uint8_t digest[DIGEST_BYTES];
    bool valid;
};

static struct root_slot slot_read(const uint8_t *p)
{
    uint8_t want[DIGEST_BYTES];
    struct root_slot s = {.saves = little(p, 8),
                          .at = little(p + 8, 8),
                          .bytes = little(p + 16, 8),
                          .end = little(p + 24, 8)};
    memcpy(s.digest, p + 32, DIGEST_BYTES);
    digest_of(p, SESSION_SLOT - DIGEST_BYTES, want);
    s.valid = same_digest(want, p + SESSION_SLOT - DIGEST_BYTES) && s.saves;
    return s;
}

static int head_check(const struct session_io *io, const uint8_t *h, struct session *s)
{
    size_t gap = SESSION_SLOT_AT + SESSION_SLOT, second = SESSION_SLOT_AT + SESSION_SLOT_STEP;
    uint32_t version = s->version = (uint32_t)little(h + 8, 4);
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
                     struct root_slot *out)
{
    struct root_slot a[2];
    for (int i = 0; i < 2; i++)
        a[i] = slot_read(h + SESSION_SLOT_AT + (size_t)i * SESSION_SLOT_STEP);
    if (!a[0].valid && !a[1].valid)
        return ERR(FORMAT, "%s: the session is damaged (its head)", io->what);
    s->slot = !a[0].valid || (a[1].valid && a[1].saves > a[0].saves);
    *out = a[s->slot];
    const struct root_slot *other = &a[!s->slot];
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

static int read_part(struct session_cursor *c, const struct session *s, struct session_part *p)
{
    p->c.group = take32(c);
    p->c.form = take32(c);
    p->c.row = take32(c);
    p->c.n = take32(c);
    p->at = take64(c);
    p->bytes = take64(c);
    read_bytes(c, p->digest, DIGEST_BYTES);
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

/* Refuses a sequence that the reader cannot use, before its arrays are read. */
static int check_len(const struct session_io *io, uint32_t len)
{
    if (!io->need || len <= io->need->len) return 0;
    return ERR(
        LIMIT,
        "%s: the saved sequence has %u tokens, more than max_cache_len %u; raise max_cache_len",
        io->what, len, io->need->len);
}

static int read_seq_head(struct session_io *io, struct session_cursor *c, struct kv_image *im,
                         uint32_t *flags)
{
    im->len = take32(c);
    im->cross = take32(c);
    im->n_turns = take32(c);
    *flags = take32(c);
    im->salt.regime = take32(c);
    im->salt.pad = take32(c);
    if (*flags & SESSION_DIGESTS) {
        read_bytes(c, im->salt.adapter, KV_DIGEST);
        read_bytes(c, im->salt.source, KV_DIGEST);
    }
    if (*flags & SESSION_OWNER) read_bytes(c, im->salt.owner, KV_DIGEST);
    im->turn_open = *flags & 1;
    im->foreign = *flags >> 1 & 1;
    return check_len(io, im->len);
}

/* Returns how many chunks a sequence can have at most.  In each group a raw chunk has 16 rows, a quantized one at
 * least as many. */
static uint64_t most_parts(const struct session *s, const struct session_seq *q)
{
    uint64_t sum = (uint64_t)s->n_groups * 2 * (MAX(q->im.len, q->im.cross) / 16u + 2);
    for (uint32_t i = 0; i < s->n_groups; i++)
        sum += 2 * (uint64_t)q->keep[i];
    return sum;
}

/* Reads the snapshots of each group: their numbers, then their lengths. */
static int read_keeps(struct session_cursor *c, const struct session *s, struct session_seq *q,
                      bool any)
{
    uint32_t n = 0, groups = take_count(c, s->n_groups, UINT32_MAX, 1), *number;
    if (!(number = mem_array(MAX(groups, 1), sizeof *number))) return ERR_NOMEM;
    for (uint32_t i = 0; any && i < groups; i++) {
        number[i] = take_count(c, take32(c), KV_KEEPS, 1);
        n += number[i];
    }
    n = take_count(c, n, UINT32_MAX, 4);
    q->keep = mem_array((size_t)s->n_groups + n + 1, sizeof *q->keep);
    if (q->keep && !c->bad) memcpy(q->keep, number, groups * sizeof *number);
    for (uint32_t i = 0; q->keep && i < n; i++)
        q->keep[s->n_groups + i] = take32(c);
    mem_free(number);
    return q->keep ? 0 : ERR_NOMEM;
}

static int read_parts(struct session_io *io, struct session_cursor *c, const struct session *s,
                      struct session_seq *q)
{
    q->n_parts = take_count(c, take32(c), most_parts(s, q), PART_BYTES);
    q->part = mem_array(MAX(q->n_parts, 1), sizeof *q->part);
    if (!q->part) return ERR_NOMEM;
    q->cap_parts = MAX(q->n_parts, 1);
    for (uint32_t i = 0; i < q->n_parts; i++) {
        if (read_part(c, s, &q->part[i]) < 0)
            return damaged(io, "a block lies outside of the file");
        if (i && order(&q->part[i - 1].c, &q->part[i].c) >= 0)
            return damaged(io, "its blocks do not ascend");
    }
    return 0;
}

static int read_seq(struct session_io *io, struct session_cursor *c, const struct session *s,
                    struct session_seq *q)
{
    struct kv_image *im = &q->im;
    uint32_t flags, most = s->version > 1 ? 31 : 7;
    TRY(read_seq_head(io, c, im, &flags));
    uint32_t n_unseen = take_count(c, 2 * s->n_groups, UINT32_MAX, 4);
    q->unseen = mem_array(MAX(n_unseen, 1), sizeof *q->unseen);
    for (uint32_t i = 0; q->unseen && i < n_unseen; i++)
        q->unseen[i] = take32(c);
    im->len = take_count(c, im->len, UINT32_MAX, 4);
    q->tok = mem_array(MAX(im->len, 1), sizeof *q->tok);
    for (uint32_t i = 0; q->tok && i < im->len; i++)
        q->tok[i] = (int32_t)take32(c);
    im->n_turns = take_count(c, im->n_turns, im->len, 8);
    q->turn = mem_array(MAX(im->n_turns, 1), sizeof *q->turn);
    for (uint32_t i = 0; q->turn && i < im->n_turns; i++) {
        q->turn[i].pos = take32(c);
        q->turn[i].n = take32(c);
    }
    if (!q->unseen || !q->tok || !q->turn) return ERR_NOMEM;
    TRY(read_keeps(c, s, q, flags & SESSION_KEEPS));
    TRY(read_parts(io, c, s, q));
    session_point(s, q);
    return c->bad || flags > most ? damaged(io, "its manifest") : 0;
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
    /* sequences that share a chunk name the same place in the file */
    for (size_t i = k = 0; i < n; i++) {
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

/* Sets s->live and s->blocks. */
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

static int read_sequences(struct session_io *io, struct session_cursor *c, struct session *s)
{
    uint32_t n = take32(c);
    if (!c->bad && io->need && n > io->need->seqs)
        return ERR(LIMIT, "%s: the file has %u sequences, there is room for %u", io->what, n,
                   io->need->seqs);
    n = take_count(c, n, SESSION_SEQS_MOST, 28);
    if (c->bad || s->n_groups > 65536) return damaged(io, "its manifest");
    s->seq = mem_array(MAX(n, 1), sizeof *s->seq);
    if (!s->seq) return ERR_NOMEM;
    /* n_seqs counts first, so that the arrays of a sequence that fails are freed */
    while (s->n_seqs < n)
        TRY(read_seq(io, c, s, &s->seq[s->n_seqs++]));
    return c->bad || c->left || c->pos < c->n ? damaged(io, "its manifest") : 0;
}

static int read_contents(struct session_io *io, struct session_cursor *c, struct session *s)
{
    size_t n;
    char *text = read_text(c, SESSION_META_MOST, &n);
    if (!text) return ERR_NOMEM;
    int e = c->bad ? damaged(io, "its description") : json_parse(text, n, io->what, &s->meta);
    mem_free(text);
    if (e < 0) return e;
    if (!json_is_object(s->meta)) return damaged(io, "its description");
    s->note = read_text(c, SESSION_NOTE_MOST, &s->n_note);
    if (!s->note) return ERR_NOMEM;
    s->n_groups = take32(c);
    return c->bad ? damaged(io, "its note") : read_sequences(io, c, s);
}

/* Reads a manifest.  Its contents are read before the digest is known, so nothing is believed: every count is
 * compared with the bytes that follow and with what a session can have.  After an error the rest is hashed, to
 * tell a damaged file from a wrong one. */
static int read_manifest(struct session_io *io, const uint8_t want[DIGEST_BYTES], struct session *s)
{
    struct session_cursor c = {.io = io, .at = s->manifest_at, .left = s->manifest_bytes};
    if (!(c.window = mem_alloc(WINDOW))) return ERR_NOMEM;
    digest_begin(&c.digest);
    int e = read_contents(io, &c, s);
    if (c.e < 0) e = c.e;
    bool whole = e >= 0 || ((e == ERR_FORMAT || e == ERR_LIMIT) && c.left <= PIECE);
    while (whole && c.left && c.e >= 0)
        (void)fill_window(&c);
    mem_free(c.window);
    digest_end(&c.digest, s->digest);
    if (whole && !c.left && !same_digest(s->digest, want))
        e = damaged(io, "the checksum of its manifest is wrong");
    return e < 0 ? e : count_live(io, s);
}

/* Refuses a manifest that is mostly a hole of the file.  A hole of 256 MiB costs its writer nothing, but the
 * reader as many bytes of memory. */
static int check_manifest(struct session_io *io, const struct session *s)
{
    const uint64_t n = s->manifest_bytes;
    if (n > SESSION_MANIFEST_MOST)
        return ERR(FORMAT, "%s: the session is damaged (a manifest of %llu bytes)", io->what,
                   (unsigned long long)n);
    if (n <= SESSION_SPARSE_FREE || !io->held) return 0;
    const uint64_t held = io->held(io, s->manifest_at, n);
    if (held >= n / SESSION_SPARSE) return 0;
    return ERR(FORMAT,
               "%s: the session is damaged (of a manifest of %llu bytes %llu are on the disk, the "
               "rest is a hole)",
               io->what, (unsigned long long)n, (unsigned long long)held);
}

int session_read(struct session_io *io, struct session *out)
{
    uint8_t head[SESSION_DATA];
    struct session s = {0};
    struct root_slot slot;
    int is = session_is(io);
    if (is < 0) return is;
    if (!is && io->size >= 8) return ERR(FORMAT, "%s: not a kvik session", io->what);
    if (io->size < sizeof head)
        return ERR(FORMAT, "%s: not a kvik session, or a truncated one (%llu bytes)", io->what,
                   (unsigned long long)io->size);
    TRY(io->read(io, 0, head, sizeof head));
    TRY(head_check(io, head, &s));
    TRY(pick_slot(io, head, &s, &slot));
    s.saves = slot.saves;
    s.manifest_at = slot.at;
    s.manifest_bytes = slot.bytes;
    s.end = slot.end;
    if (s.manifest_at < SESSION_DATA || s.manifest_at > s.end ||
        s.manifest_bytes != s.end - s.manifest_at)
        return damaged(io, "its head");
    TRY(check_manifest(io, &s));
    int e = read_manifest(io, slot.digest, &s);
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
    mem_free(q->keep);
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
    const struct kv_chunk *p = lo ? &s->part[lo - 1].c : NULL;
    bool within = p && c->form == KV_CHUNK_SEALED && p->form == c->form && p->group == c->group &&
                  (uint64_t)p->row + p->n >= (uint64_t)c->row + c->n;
    return within ? &s->part[lo - 1] : NULL;
}

static int part_damaged(const struct session_io *io, const struct session_part *p)
{
    return ERR(FORMAT,
               "%s: the session is damaged (the checksum of rows %u to %u of group %u is wrong)",
               io->what, p->c.row, p->c.row + p->c.n, p->c.group);
}

int session_part_read(struct session_io *io, const struct session_part *p, void *data)
{
    uint8_t digest[DIGEST_BYTES];
    TRY(io->read(io, p->at, data, (size_t)p->bytes));
    digest_of(data, (size_t)p->bytes, digest);
    return same_digest(digest, p->digest) ? 0 : part_damaged(io, p);
}

int session_part_each(struct session_io *io, const struct session_part *p,
                      int (*fn)(void *ctx, uint64_t at, const void *data, size_t n), void *ctx)
{
    uint8_t digest[DIGEST_BYTES];
    struct digest d;
    char *data = mem_alloc((size_t)MIN(p->bytes, (uint64_t)PIECE));
    int e = data ? 0 : ERR_NOMEM;
    digest_begin(&d);
    for (uint64_t at = 0; e >= 0 && at < p->bytes; at += PIECE) {
        size_t n = (size_t)MIN(p->bytes - at, (uint64_t)PIECE);
        e = io->read(io, p->at + at, data, n);
        if (e >= 0) digest_add(&d, data, n);
        if (e >= 0 && fn) e = fn(ctx, at, data, n);
    }
    mem_free(data);
    if (e < 0) return e;
    digest_end(&d, digest);
    return same_digest(digest, p->digest) ? 0 : part_damaged(io, p);
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
    const uint32_t *from = q->keep + n_groups;
    uint32_t *to = q->keep + n_groups;
    for (uint32_t gi = 0; gi < n_groups; gi++) { /* drops snapshots behind the new end */
        uint32_t n = q->keep[gi];
        q->keep[gi] = 0;
        for (; n > 0; n--, from++)
            if (*from <= len) {
                *to++ = *from;
                q->keep[gi]++;
            }
    }
}
