/* states.h - compares an exported sequence with the states and KV rows that the reference stored:
 * tensors <prefix>.N.conv|ssm|delta|keys|values, batch row first. */
#pragma once
#include "fmt/fmt.h"
#include "planes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static size_t n_states; /* the number of compared tensors */

/* Compares row `row` of a stored tensor with n values, within 1e-4 relative. */
static inline const char *state_differs(const struct tensor *t, uint32_t row, const float *ours,
                                        size_t n)
{
    static char why[200];
    double worst = 0;
    if (!t) return NULL;
    if (t->bytes != t->dim[0] * n * sizeof *ours || row >= t->dim[0] || !ours) {
        snprintf(why, sizeof why, "%s has another shape", t->name);
        return why;
    }
    for (size_t i = 0; i < n; i++) {
        float want;
        memcpy(&want, (const char *)t->data + (row * n + i) * sizeof want, sizeof want);
        double d = fabs(ours[i] - want) / (1 + fabs(want));
        if (!(d <= worst)) worst = d;
    }
    n_states++;
    snprintf(why, sizeof why, "%s row %u off by %.2e", t->name, row, worst);
    return worst <= 1e-4 ? NULL : why;
}

/* Returns the first difference, or NULL. rows: compares keys and values, too, which only serves a
 * row without masked columns. */
static inline const char *states_differ(const struct safetensors *s, const char *prefix,
                                        uint32_t row, const kvik_export *p, bool rows)
{
    for (uint32_t i = 0; i < p->n_layers; i++) {
        const kvik_layer_rows *l = &p->layer[i];
        for (uint32_t k = 0; k < l->n_planes; k++) {
            const kvik_plane *q = &l->plane[k];
            char name[80];
            if (!rows && (strcmp(q->name, "keys") == 0 || strcmp(q->name, "values") == 0)) continue;
            snprintf(name, sizeof name, "%s.%u.%s", prefix, i, q->name);
            const char *why =
                state_differs(safetensors_find(s, name), row, q->data, plane_values(q));
            if (why) return why;
        }
    }
    return NULL;
}
