/* model_metadata.c - what the budget must hold for tokens and tables, computed from the sequences that the reference knows.
 *
 * A sequence counts for the rows that it has, may have by its reserve, or gets back by a mark: once, and once for each
 * mark, but at least one. A mark whose sequence was dropped counts for its own rows. */
#include "model_int.h"

static uint32_t rows_of(const struct mseq *s)
{
    return MAX(s->len, s->cross);
}

size_t model_charge(const struct model *m, const struct mseq *s, uint32_t rows)
{
    uint32_t marks = 0, most = MAX(rows, s->reserve);
    for (uint32_t i = 0; i < MARKS; i++) {
        if (m->mark[i].mark.seq != s->handle) continue;
        most = MAX(most, MAX(rows_of(&m->mark[i].s), m->mark[i].s.reserve));
        marks++;
    }
    return (1 + MAX(marks, 1)) * kv_metadata_bytes(&m->cfg, most);
}

static bool lives(const struct model *m, const struct mmark *k)
{
    return m->seq[k->seq].used && m->seq[k->seq].handle == k->mark.seq;
}

void model_metadata(struct model *m)
{
    size_t sum = m->kv->fixed;
    for (uint32_t i = 0; i < SEQS; i++)
        if (m->seq[i].used) sum += model_charge(m, &m->seq[i], rows_of(&m->seq[i]));
    for (uint32_t i = 0; i < MARKS; i++)
        if (m->mark[i].mark.seq && !lives(m, &m->mark[i]))
            sum += kv_metadata_bytes(&m->cfg, rows_of(&m->mark[i].s));
    struct kv_usage u;
    kv_usage(m->kv, &u);
    WANT(u.metadata == sum, "metadata", u.metadata, sum);
    size_t held = u.live + u.states + u.staging + u.reserved + u.index + u.metadata;
    WANT(held <= u.pool && u.free == u.pool - held + u.index, "metadata in the budget", held,
         u.pool);
}
