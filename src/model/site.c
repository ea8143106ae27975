/* site.c - the sites a model declares: where it keeps something of the past, and how many bytes that takes. */
#include "model/model.h"

int model_new_sites(struct model *m, uint32_t n)
{
    mem_free(m->site);
    m->n_sites = 0;
    m->site = mem_array(n, sizeof *m->site);
    if (!m->site) return ERR_NOMEM;
    m->n_sites = n;
    for (uint32_t i = 0; i < n; i++) {
        m->site[i] = kv_site_rows(m->n_kv_heads, m->head_dim, m->head_dim);
        m->site[i].layer = i;
    }
    return 0;
}

size_t model_row_bytes(const struct model *m, enum dtype rows)
{
    size_t sum = 0;
    for (uint32_t i = 0; i < m->n_sites; i++)
        if (m->site[i].kind != KV_STATE) sum += kv_site_bytes(&m->site[i], rows);
    return sum;
}

size_t model_state_bytes(const struct model *m)
{
    size_t sum = 0;
    for (uint32_t i = 0; i < m->n_sites; i++)
        if (m->site[i].kind == KV_STATE) sum += kv_site_bytes(&m->site[i], DT_F32);
    return sum;
}
