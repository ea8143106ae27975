/* queue.c - the pages that may leave memory, in the order in which they leave.
 *
 * Which pages.  The queue of a form holds each page exactly once that is in memory, that committed
 * tables name, and that nothing holds in memory.  Leading pages never enter the queue.  The tail of
 * a sequence (its open block, and the blocks of its incomplete tile) stays in memory while the
 * sequence has a reserve or is in a step, because the next step writes there or encodes from there.
 *
 * Order.  Pages of the highest rows leave first, so that the leading rows of every sequence stay.
 * A step reads all rows in order, so a cache of the most recently read rows would have dropped each
 * row before its next use.  Raw rows under a codec leave before sealed rows, because sealing soon
 * replaces them.  Pages that are in the tail of every sequence that holds them leave last, because
 * such pages come back to be written.  Of pages of the same rows, the one that entered the queue
 * first leaves first.
 *
 * Cost.  A queue has one list for each cell of a table and each class of pages.  Finding the next
 * page goes down from the highest list that may have one (`top`), and that list only rises when a
 * page enters above it.  So all searches together pass what the entries rise, and one search at
 * most the lists: 4 bytes for each cell. */
#include "kv/frozen.h"

#include <stdio.h>

int queue_open(struct kv *kv, struct group *g, uint32_t form)
{
    struct queue *q = &g->form[form].queue;
    q->cells = g->stride[form];
    q->first = table_first(g, form);
    TRY(kv_array(kv, &q->head, (size_t)2 * q->cells + 1, sizeof *q->head));
    if (kv->measured) return 0;
    /* metadata.c counts this array with the records of pages */
    q->at = kv_own(kv, g->form[form].n_ids, sizeof *q->at);
    return q->at ? 0 : ERR_NOMEM;
}

/* Returns the key of the list that a page belongs to: 1 + cells + cell for whole pages, 1 + cell for tails; 0: no
 * list. */
static uint32_t key_of(const struct pages *p, uint32_t id)
{
    const struct queue_place *at = &p->queue.at[id];
    const struct page *pg = &p->page[id];
    if (!at->cell || at->stays || !pg->refs || pg->spilled || pg->picked) return 0;
    return at->cell + (at->tails >= pg->refs ? 0 : p->queue.cells);
}

static void insert(struct queue *q, uint32_t id, uint32_t key)
{
    struct queue_place *at = &q->at[id];
    uint32_t head = q->head[key];
    at->key = key;
    at->prev = head ? q->at[head].prev : id;
    at->next = head ? head : id;
    q->at[at->prev].next = q->at[at->next].prev = id;
    if (!head) q->head[key] = id;
    q->top = MAX(q->top, key);
}

static void detach(struct queue *q, uint32_t id)
{
    struct queue_place *at = &q->at[id];
    uint32_t key = at->key;
    q->at[at->prev].next = at->next;
    q->at[at->next].prev = at->prev;
    at->key = 0;
    if (q->head[key] == id) q->head[key] = at->next == id ? 0 : at->next;
}

void queue_update(struct kv *kv, struct pages *p, uint32_t id)
{
    struct queue *q = &p->queue;
    if (!q->at) return;
    uint32_t key = key_of(p, id), was = q->at[id].key;
    if (key != was) {
        if (was) detach(q, id);
        if (key) insert(q, id, key);
        if (!key) kv->stream.queued -= p->bytes;
        if (!was) kv->stream.queued += p->bytes;
    }
    if (!p->page[id].refs) q->at[id] = (struct queue_place){0};
}

void queue_place(struct kv *kv, struct pages *p, uint32_t id, uint32_t cell)
{
    if (!p->queue.at || cell < p->queue.first) return;
    p->queue.at[id].cell = cell + 1;
    queue_update(kv, p, id);
}

/* Returns the largest key with pages; 0: the queue is empty. */
static uint32_t last_key(struct queue *q)
{
    while (q->top && !q->head[q->top])
        q->top--;
    return q->top;
}

struct pages *queue_next(const struct kv *kv, uint32_t *id)
{
    struct pages *best = NULL;
    uint64_t highest = 0;
    for (uint32_t n = 0; n < FORMS * kv->n_groups; n++) {
        struct group *g = &kv->group[n / FORMS];
        uint32_t f = n % FORMS;
        struct queue *q = &g->form[f].queue;
        uint32_t key = g->moves[f] ? last_key(q) : 0;
        if (!key) continue;
        bool whole = key > q->cells;
        uint64_t row = (uint64_t)(whole ? key - q->cells : key) * g->rows[f];
        row |= (uint64_t)whole << 63 | (uint64_t)(f == RAW && g->lossy) << 62;
        if (row <= highest) continue;
        highest = row;
        best = &g->form[f];
        *id = q->head[key];
    }
    return best;
}

/* --- Tails ------------------------------------------------------------------------------------ */

/* Adds to the tail counts of the pages of s in a form, from a cell on. */
static void count_tail(struct kv *kv, const struct seq *s, struct group *g, uint32_t f,
                       uint32_t cell, int tails, int stays)
{
    struct pages *p = &g->form[f];
    const uint32_t *table = seq_table(kv, g, f, s);
    for (uint32_t i = cell; i < table_used(g, f, seq_rows(g, s)); i++) {
        if (!table[i]) continue;
        p->queue.at[table[i]].tails += (uint32_t)tails;
        p->queue.at[table[i]].stays += (uint32_t)stays;
        queue_update(kv, p, table[i]);
    }
}

static void tail_count(struct kv *kv, const struct seq *s, int tails, int stays)
{
    for (struct group *g = kv->group; g < kv->group + kv->n_groups; g++)
        if (g->moves[RAW]) count_tail(kv, s, g, RAW, seq_tail(g, s), tails, stays);
}

/* True if the tail of s stays in memory for a reserve. */
static bool tail_reserved(const struct kv *kv, const struct seq *s)
{
    return seq_reserve(kv, s) > s->len;
}

void tail_add(struct kv *kv, struct seq *s)
{
    s->stays = tail_reserved(kv, s);
    tail_count(kv, s, 1, s->stays);
}

void tail_drop(struct kv *kv, struct seq *s)
{
    tail_count(kv, s, -1, -s->stays);
    s->stays = false;
}

void tail_settle(struct kv *kv, struct seq *s)
{
    if (s->busy || s->stays == tail_reserved(kv, s)) return;
    s->stays = !s->stays;
    tail_count(kv, s, 0, s->stays ? 1 : -1);
}

void pin_from(struct kv *kv, const struct seq *s, uint32_t len, bool whole, bool pin)
{
    for (uint32_t n = 0; n < FORMS * kv->n_groups; n++) {
        struct group *g = &kv->group[n / FORMS];
        uint32_t f = n % FORMS, cell = f == RAW ? tail_first(g, len) : table_used(g, f, len);
        if (g->moves[f] && (whole || g->c.policy.kind != KV_FROZEN))
            count_tail(kv, s, g, f, whole ? 0 : cell, 0, pin ? 1 : -1);
    }
}

/* --- Checks ----------------------------------------------------------------------------------- */

/* Counts in `seen` the tails that each page belongs to; or (stays) those held for reserves.  Tails of sequences in
 * the open step are not in the counts. */
static void count_tails(const struct kv *kv, const struct group *g, bool stays)
{
    for (const struct seq *s = NULL; (s = seq_each(kv, s));) {
        const uint32_t *table = seq_table(kv, g, RAW, s);
        if (s->busy || (stays && !tail_reserved(kv, s))) continue;
        for (uint32_t i = seq_tail(g, s); i < table_used(g, RAW, seq_rows(g, s)); i++)
            g->form[RAW].seen[table[i]] += table[i] != 0;
    }
}

static bool check_tails(const struct kv *kv, const struct group *g)
{
    const struct pages *p = &g->form[RAW];
    bool ok = true;
    for (int stays = 0; stays < 2; stays++) {
        count_tails(kv, g, stays);
        for (uint32_t id = 0; id < p->n_ids; id++) {
            const struct queue_place *at = &p->queue.at[id];
            if (ok && p->seen[id] != (stays ? at->stays : at->tails))
                ok = wrong(stays ? "reserved tails" : "tails", id, p->seen[id]);
            p->seen[id] = 0;
        }
    }
    return ok;
}

/* True if the queue knows the cell of every page that committed tables name. */
static bool check_places(const struct kv *kv, const struct group *g, uint32_t form)
{
    for (const struct seq *s = NULL; (s = seq_each(kv, s));) {
        const uint32_t *table = seq_table(kv, g, form, s);
        for (uint32_t i = 0; !s->busy && i < table_used(g, form, seq_rows(g, s)); i++)
            if (table[i] &&
                g->form[form].queue.at[table[i]].cell != (i < table_first(g, form) ? 0 : i + 1))
                return wrong("place of a page", table[i], i);
    }
    return true;
}

/* True if the lists have exactly the pages that may leave memory.  Adds up their bytes. */
static bool check_lists(const struct pages *p, size_t *sum)
{
    const struct queue *q = &p->queue;
    uint32_t listed = 0, queued = 0;
    for (uint32_t key = 0; key <= 2 * q->cells; key++) {
        uint32_t head = q->head[key], id = head;
        if (!head) continue;
        if (key > q->top) return wrong("pages above the top of a queue", key, q->top);
        do {
            if (q->at[id].key != key || q->at[q->at[id].next].prev != id)
                return wrong("queue", id, key);
            if (++listed > p->n_ids) return wrong("queue loops", id, key);
            id = q->at[id].next;
        } while (id != head);
    }
    for (uint32_t id = 1; id < p->n_ids; id++) {
        if (q->at[id].key != key_of(p, id)) return wrong("queued", id, q->at[id].key);
        queued += q->at[id].key != 0;
    }
    *sum += queued * p->bytes;
    return queued == listed ? true : wrong("pages queued", queued, listed);
}

bool queue_check(const struct kv *kv)
{
    size_t sum = 0;
    for (uint32_t n = 0; n < FORMS * kv->n_groups; n++) {
        const struct group *g = &kv->group[n / FORMS];
        uint32_t f = n % FORMS;
        if (!g->moves[f]) continue;
        if (f == RAW && !check_tails(kv, g)) return false;
        if (!check_places(kv, g, f) || !check_lists(&g->form[f], &sum)) return false;
    }
    if (kv->stream.doomed) return wrong("doomed bytes", (uint32_t)kv->stream.doomed, 0);
    return sum == kv->stream.queued
               ? true
               : wrong("bytes that may leave", (uint32_t)sum, (uint32_t)kv->stream.queued);
}
