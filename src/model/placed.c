/* placed.c - a model's weights in memory of its device.  If the device's memory is that of the host, weights stay
 * where the checkpoint has them.  On any other device, opening a cache copies the weights that no earlier cache has
 * copied.  The copies live as long as the model. */
#include "model/model.h"

#include <string.h>

struct copied { /* n bytes of weights at `host` */
    const void *host;
    size_t n;
    void *at;
};
struct placed {
    pthread_mutex_t lock; /* several threads may open caches at the same time */
    struct copied *place; /* [n_places] owned; sorted by address and size */
    uint32_t n_places, room;
};

int placed_open(struct model *m, const char *device)
{
    if (!(m->placed = mem_alloc(sizeof *m->placed))) return ERR_NOMEM;
    pthread_mutex_init(&m->placed->lock, NULL);
    return dev_open(device, &m->dev);
}

void placed_close(struct model *m)
{
    if (m->dev) dev_close(m->dev);
    if (!m->placed) return;
    pthread_mutex_destroy(&m->placed->lock);
    mem_free(m->placed->place);
    mem_free(m->placed);
}

/* Returns the index of the first place that is not before n bytes at `host`. */
static uint32_t index_of(const struct placed *p, const void *host, size_t n)
{
    uint32_t lo = 0, hi = p->n_places;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        const struct copied *at = &p->place[mid];
        bool before = at->host == host ? at->n < n : (uintptr_t)at->host < (uintptr_t)host;
        *(before ? &lo : &hi) = before ? mid + 1 : mid;
    }
    return lo;
}

static void *place_weights(struct placed *p, struct dev *dev, const void *host, size_t n)
{
    uint32_t i = index_of(p, host, n);
    if (i < p->n_places && p->place[i].host == host && p->place[i].n == n) return p->place[i].at;
    if (p->n_places == p->room) {
        uint32_t room = MAX(2 * p->room, 64u);
        struct copied *all = mem_grow(p->place, room, sizeof *all);
        if (!all) return NULL;
        p->place = all;
        p->room = room;
    }
    void *at = dev_weights(dev, host, n);
    if (!at) return NULL;
    memmove(&p->place[i + 1], &p->place[i], (p->n_places++ - i) * sizeof *p->place);
    p->place[i] = (struct copied){host, n, at};
    return at;
}

void *model_placed(const struct model *m, const void *host, size_t n)
{
    if (m->dev->kind->is_host) return dev_weights(m->dev, host, n);
    pthread_mutex_lock(&m->placed->lock);
    void *at = place_weights(m->placed, m->dev, host, n);
    pthread_mutex_unlock(&m->placed->lock);
    return at;
}
