/* site.c - sites: the places where a model keeps something of the past, as the model declares them. */
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
