/* model_config.c - random stores: one to three groups of every kind, budgets from tight to ample. */
#include "../codec/shuffle.h"
#include "model_int.h"

#include <stdio.h>
#include <string.h>

static struct kv_group rows_of(const struct kv_codec *codec, uint32_t rows, enum dtype k,
                               enum dtype v)
{
    return (struct kv_group){
        .policy = {.kind = KV_ROWS},
        .seal = {.tile = codec ? codec->tile : 0},
        .rows = rows,
        .n_sites = 1,
        .n_planes = 2,
        .plane = {{"k", {1, 2, k, KV_STRIPS}, codec}, {"v", {2, 1, v, KV_ROWMAJOR}, codec}}};
}

static uint32_t maybe(struct model *m, uint32_t n)
{
    return model_chance(m, 50) ? 0 : 1 + model_rnd(m, n);
}

static const char *const kinds[] = {"full",  "window", "chunk",  "codec",   "window-codec",
                                    "resid", "state",  "frozen", "tile128", "rungs"};

static struct kv_group draw_group(struct model *m, uint32_t kind)
{
    const struct kv_codec *flip = &flat_codec[model_rnd(m, countof(flat_codec))];
    uint32_t rows = 16u << (model_chance(m, 70) ? 0 : model_rnd(m, 3));
    struct kv_group g = rows_of(NULL, rows, DT_F32, DT_F16);
    switch (kind) {
    case 0:
        g.n_sites = 1 + model_rnd(m, 2);
        break;
    case 1:
    case 4:
        if (kind == 4) g = rows_of(flip, rows, DT_BF16, DT_F32);
        g.policy.window = 1 + model_rnd(m, 100);
        g.policy.sinks = maybe(m, 20);
        g.seal.lead = kind == 4 ? g.policy.sinks + maybe(m, 30) : 0;
        g.policy.slack = maybe(m, 30);
        g.policy.every = maybe(m, 40);
        break;
    case 2:
        g.policy.chunk = 8 + model_rnd(m, 80);
        g.policy.sinks = maybe(m, 20);
        g.policy.slack = maybe(m, 40);
        g.policy.every = maybe(m, 40);
        break;
    case 3:
        g = rows_of(flip, rows, DT_F16, DT_F16);
        g.seal.lead = maybe(m, 40);
        break;
    case 5:
        g = rows_of(flip, rows, DT_F16, DT_F32);
        g.seal.resid = 1 + model_rnd(m, 70);
        g.seal.lead = maybe(m, 30);
        g.policy.window = model_chance(m, 30) ? 1 + model_rnd(m, 120) : 0;
        break;
    case 6:
        g = (struct kv_group){.policy = {.kind = KV_STATE, .every = maybe(m, 40)},
                              .n_sites = 1 + model_rnd(m, 2),
                              .n_planes = 2,
                              .plane = {{"conv", {1, 3, DT_F32, KV_FLAT}, NULL},
                                        {"ssm", {2, 3, DT_F32, KV_FLAT}, NULL}}};
        break;
    case 7:
        g = rows_of(model_chance(m, 50) ? flip : NULL, rows, DT_F16, DT_F16);
        g.policy.kind = KV_FROZEN;
        break;
    case 9:
        g.n_sites = 1 + model_rnd(m, 2);
        g.n_rungs = 1 + model_chance(m, 70);
        for (uint32_t r = 0, t = model_rnd(m, 3), lead = maybe(m, 40); r < g.n_rungs; r++)
            g.rung[r] = (struct kv_rung){{.tile = flat_ledger[0][t].tile, .lead = lead},
                                         {&flat_ledger[r][t], &flat_ledger[r][t]}};
        break;
    default:
        g = rows_of(&kv_codec_shuffle, model_chance(m, 50) ? 16 : 256, DT_F32, DT_F16);
    }
    return g;
}

/* Adds what metadata takes to the budget drawn for rows: the arrays of fixed size, and those of the
 * sequences. Usually every sequence can be long, sometimes metadata is what is short. */
static void add_metadata(struct model *m)
{
    size_t staging = kv_staging_bytes(&m->cfg), rows = m->cfg.pool_bytes;
    uint32_t len = model_chance(m, 70) ? m->cfg.max_len : 1 + model_rnd(m, m->cfg.max_len);
    if (m->tier) len = MIN(len, m->cfg.max_len / 2);
    rows -= m->cfg.stage_bytes ? MIN(staging, rows) : 0;
    rows += kv_metadata_bytes(&m->cfg, len) * 2 * (m->cfg.max_seqs - model_rnd(m, 2));
    m->cfg.pool_bytes = kv_pool_bytes(&m->cfg, rows);
}

void model_config(struct model *m)
{
    static char name[64];
    const char *only = m->opt->only;
    uint32_t site = 0, n = 1 + model_rnd(m, GROUPS);
    bool streams = false, rungs = false, frozen = only && strcmp(only, kinds[7]) == 0;
    size_t block = 0;
    name[0] = 0;
    if (frozen) n = MAX(n, 2);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t kind = model_rnd(m, countof(kinds) - 1); /* rungs only if they are asked for */
        for (uint32_t k = 0; only && k < countof(kinds); k++)
            if (i == frozen && strcmp(kinds[k], only) == 0) kind = k;
        if (i == 0 && kind == 7) kind = 0; /* one group must count the rows */
        m->group[i] = draw_group(m, kind);
        m->group[i].stream = m->group[i].policy.kind != KV_STATE && model_chance(m, 75);
        rungs |= m->group[i].n_rungs > 0;
        streams = !rungs && (streams || m->group[i].stream);
        m->group[i].site0 = site;
        site += m->group[i].n_sites;
        block += 2 * 64 * m->group[i].n_sites * MAX(m->group[i].rows, 16) / 8;
        snprintf(name + strlen(name), sizeof name - strlen(name), "%s%s", i ? "+" : "",
                 kinds[kind]);
    }
    m->config = name;
    m->cfg = (struct kv_config){.group = m->group,
                                .n_groups = n,
                                .max_seqs = 2 + model_rnd(m, SEQS - 1),
                                .max_tokens = 8 + model_rnd(m, 200),
                                .max_len = 100 + model_rnd(m, 300)};
    if (m->group[0].plane[0].codec == &kv_codec_shuffle) m->cfg.max_len += 240;
    m->cfg.pool_bytes = m->cfg.max_seqs * block * (2 + model_rnd(m, model_chance(m, 50) ? 4 : 24));
    m->cfg.marks = MARKS;
    m->unreserved = rungs && model_chance(m, 70);
    if (m->unreserved && model_chance(m, 70)) m->cfg.max_len = LEN;
    m->cfg.index = model_chance(m, 70);
    m->cfg.turns = model_chance(m, 15);
    m->tier = NULL;
    if (!streams || !(m->opt->stream || model_chance(m, 50))) {
        add_metadata(m);
        return;
    }
    m->cfg.streaming = model_chance(m, 50) ? KV_STREAM : KV_STREAM_ON_FULL;
    m->tier = tier_mem_open();
    m->cfg.tier = &m->tier->tier;
    m->cfg.stage_bytes = model_chance(m, 30) ? 0 : 8192u * (1 + model_rnd(m, 3));
    m->cfg.pool_bytes = m->cfg.max_seqs * block * (1 + model_rnd(m, 6)) + m->cfg.stage_bytes;
    if (model_chance(m, 70)) m->cfg.max_len = LEN;
    if (model_chance(m, 70)) m->cfg.max_seqs = 2;
    if (model_chance(m, 85)) /* wide rows: few rows fit into a piece, and most bytes are rows */
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t k = 0; k < 2 && m->group[i].stream; k++)
                m->group[i].plane[k].shape.dim *= 8;
    for (uint32_t i = 0; i < site; i++) /* shuffle the order of sites */
        m->order[i] = i;
    for (uint32_t i = site; i > 1; i--) {
        uint32_t j = model_rnd(m, i), t = m->order[j];
        m->order[j] = m->order[i - 1];
        m->order[i - 1] = t;
    }
    m->cfg.order = m->order;
    add_metadata(m);
}
