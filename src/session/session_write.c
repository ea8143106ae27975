/* session_write.c - encoding a session's head and manifest. */
#include "session/session_file.h"

#include <string.h>

int session_add_seq(struct session *s, const struct kv_image *im)
{
    struct session_seq *all = mem_grow(s->seq, (size_t)s->n_seqs + 1, sizeof *all);
    if (!all) return ERR_NOMEM;
    s->seq = all;
    struct session_seq *q = &all[s->n_seqs++];
    size_t n_unseen = 2 * (size_t)s->n_groups, n_keeps = 0;
    for (uint32_t i = 0; i < s->n_groups; i++)
        n_keeps += im->n_keeps[i];
    *q = (struct session_seq){.im = *im};
    q->tok = mem_array(MAX(im->len, 1), sizeof *q->tok);
    q->turn = mem_array(MAX(im->n_turns, 1), sizeof *q->turn);
    q->unseen = mem_array(MAX(n_unseen, 1), sizeof *q->unseen);
    q->keep = mem_array(s->n_groups + n_keeps + 1, sizeof *q->keep);
    if (!q->tok || !q->turn || !q->unseen || !q->keep) return ERR_NOMEM;
    memcpy(q->tok, im->tok, im->len * sizeof *q->tok);
    memcpy(q->turn, im->turn, im->n_turns * sizeof *q->turn);
    memcpy(q->unseen, im->unseen, n_unseen * sizeof *q->unseen);
    memcpy(q->keep, im->n_keeps, s->n_groups * sizeof *q->keep);
    memcpy(q->keep + s->n_groups, im->keep, n_keeps * sizeof *q->keep);
    session_point(s, q);
    return 0;
}

int session_add_part(struct session_seq *q, const struct session_part *p)
{
    if (q->n_parts == q->cap_parts) {
        uint32_t cap = MAX(2 * q->cap_parts, 64);
        struct session_part *part = mem_grow(q->part, cap, sizeof *part);
        if (!part) return ERR_NOMEM;
        q->part = part;
        q->cap_parts = cap;
    }
    q->part[q->n_parts++] = *p;
    return 0;
}

static void put_number(uint8_t **at, uint64_t v, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        *(*at)++ = (uint8_t)(v >> 8 * i);
}

static void put_raw(uint8_t **at, const void *data, size_t n)
{
    if (n) memcpy(*at, data, n);
    *at += n;
}

static bool has_digests(const struct kv_image *im)
{
    static const uint8_t none[KV_DIGEST];
    return memcmp(im->salt.adapter, none, KV_DIGEST) != 0 ||
           memcmp(im->salt.source, none, KV_DIGEST) != 0;
}

static bool has_owner(const struct kv_image *im)
{
    static const uint8_t none[KV_DIGEST];
    return memcmp(im->salt.owner, none, KV_DIGEST) != 0;
}

/* Returns the number of snapshots of a sequence, over all groups. */
static uint32_t all_keeps(const struct session *s, const struct session_seq *q)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_groups; i++)
        n += q->keep[i];
    return n;
}

static size_t seq_bytes(const struct session *s, const struct session_seq *q)
{
    size_t digests =
        (has_digests(&q->im) ? 2 * KV_DIGEST : 0) + (has_owner(&q->im) ? KV_DIGEST : 0);
    size_t keeps = all_keeps(s, q);
    if (keeps) digests += 4 * (s->n_groups + keeps);
    return 16 + 8 + digests + 8 * (size_t)s->n_groups + 4 * (size_t)q->im.len +
           8 * (size_t)q->im.n_turns + 4 + 64 * (size_t)q->n_parts;
}

static void put_seq(uint8_t **at, const struct session *s, const struct session_seq *q)
{
    const struct kv_image *im = &q->im;
    put_number(at, im->len, 4);
    put_number(at, im->cross, 4);
    put_number(at, im->n_turns, 4);
    uint32_t keeps = all_keeps(s, q);
    put_number(at,
               im->turn_open | im->foreign << 1 | (has_digests(im) ? SESSION_DIGESTS : 0) |
                   (keeps ? SESSION_KEEPS : 0) | (has_owner(im) ? SESSION_OWNER : 0),
               4);
    put_number(at, im->salt.regime, 4);
    put_number(at, im->salt.pad, 4);
    if (has_digests(im)) {
        put_raw(at, im->salt.adapter, KV_DIGEST);
        put_raw(at, im->salt.source, KV_DIGEST);
    }
    if (has_owner(im)) put_raw(at, im->salt.owner, KV_DIGEST);
    for (uint32_t i = 0; i < 2 * s->n_groups; i++)
        put_number(at, q->unseen[i], 4);
    for (uint32_t i = 0; i < im->len; i++)
        put_number(at, (uint32_t)q->tok[i], 4);
    for (uint32_t i = 0; i < im->n_turns; i++) {
        put_number(at, q->turn[i].pos, 4);
        put_number(at, q->turn[i].n, 4);
    }
    for (uint32_t i = 0; keeps && i < s->n_groups + keeps; i++)
        put_number(at, q->keep[i], 4);
    put_number(at, q->n_parts, 4);
    for (uint32_t i = 0; i < q->n_parts; i++) {
        const struct session_part *p = &q->part[i];
        put_number(at, p->c.group, 4);
        put_number(at, p->c.form, 4);
        put_number(at, p->c.row, 4);
        put_number(at, p->c.n, 4);
        put_number(at, p->at, 8);
        put_number(at, p->bytes, 8);
        put_raw(at, p->digest, DIGEST_BYTES);
    }
}

int session_encode(const struct session *s, char **out, size_t *n)
{
    char *meta;
    TRY(json_text(s->meta, &meta));
    size_t n_meta = strlen(meta), bytes = 4 + n_meta + 4 + s->n_note + 8;
    int e =
        n_meta > SESSION_META_MOST
            ? ERR(LIMIT,
                  "the description of the model and cache has %zu bytes, the limit of a session is %u",
                  n_meta, SESSION_META_MOST)
        : s->n_note > SESSION_NOTE_MOST
            ? ERR(LIMIT, "the note has %zu bytes; the note of a session has at most 64 MiB",
                  s->n_note)
            : 0;
    for (uint32_t i = 0; i < s->n_seqs; i++)
        bytes += seq_bytes(s, &s->seq[i]);
    if (e >= 0 && (s->n_seqs > SESSION_SEQS_MOST || bytes > SESSION_MANIFEST_MOST))
        e = ERR(LIMIT,
                "%u sequences with %zu bytes of token ids and lists of blocks: a session "
                "has at most %u with 256 MiB; save them in several files",
                s->n_seqs, bytes, SESSION_SEQS_MOST);
    uint8_t *data = e < 0 ? NULL : mem_alloc(bytes), *at = data;
    if (data) {
        put_number(&at, n_meta, 4);
        put_raw(&at, meta, n_meta);
        put_number(&at, s->n_note, 4);
        put_raw(&at, s->note, s->n_note);
        put_number(&at, s->n_groups, 4);
        put_number(&at, s->n_seqs, 4);
        for (uint32_t i = 0; i < s->n_seqs; i++)
            put_seq(&at, s, &s->seq[i]);
        *out = (char *)data;
        *n = bytes;
    }
    mem_free(meta);
    return e < 0 ? e : data ? 0 : ERR_NOMEM;
}

void session_head(uint8_t out[SESSION_DATA])
{
    uint8_t *at = out + 8;
    memset(out, 0, SESSION_DATA);
    memcpy(out, SESSION_MAGIC, 8);
    put_number(&at, SESSION_VERSION, 4);
}

void session_slot(const struct session *s, const uint8_t digest[DIGEST_BYTES],
                  uint8_t out[SESSION_SLOT])
{
    uint8_t *at = out;
    memset(out, 0, SESSION_SLOT);
    put_number(&at, s->saves, 8);
    put_number(&at, s->manifest_at, 8);
    put_number(&at, s->manifest_bytes, 8);
    put_number(&at, s->end, 8);
    put_raw(&at, digest, DIGEST_BYTES);
    digest_of(out, SESSION_SLOT - DIGEST_BYTES, out + SESSION_SLOT - DIGEST_BYTES);
}
