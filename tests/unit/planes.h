/* planes.h - planes of an exported layer, for tests. */
#pragma once
#include "kvik_compat.h"

#include <stddef.h>

/* Returns how many values a plane has. */
static inline size_t plane_values(const kvik_plane *p)
{
    size_t n = 1;
    for (uint32_t i = 0; i < p->n_dims; i++)
        n *= p->dim[i];
    return n;
}

/* Returns the plane of this name, to change it. */
static inline kvik_plane *plane_of(const kvik_layer_rows *l, const char *name)
{
    const kvik_plane *p = kvik_layer_plane(l, name);
    return p ? &l->plane[p - l->plane] : NULL;
}
