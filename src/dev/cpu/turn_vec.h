/* turn_vec.h - the step that the kernels of ssm.c and delta.c share on 16 lanes: all rows of a strip's state decay, take up
 * an input and are read.  Included by ssm_vec.h and delta_vec.h after the vec_*.h that gives the vectors. */
#include "dev/cpu/ssm.h"

/* Advances one row: it decays by a, takes up u * k, and adds to p. */
INLINE vf turn_row(float *at, vf a, vf u, float k, float q, vf p)
{
    vf h = vf_fma(vf_load(at), a, vf_mul(u, vf_set1(k)));
    vf_store(at, h);
    return vf_fma(h, vf_set1(q), p);
}

/* Advances all rows of h, and returns their new sum weighted by q.  The four chains have names, because an array
 * with an index would be in memory. */
INLINE vf turn(float *h, uint32_t rows, vf a, vf u, const float *k, const float *q)
{
    vf p0 = vf_zero(), p1 = p0, p2 = p0, p3 = p0;
    uint32_t i = 0;
    for (; i + 4 <= rows; i += 4, h += 4 * SCAN_LANES) {
        p0 = turn_row(h, a, u, k[i], q[i], p0);
        p1 = turn_row(h + SCAN_LANES, a, u, k[i + 1], q[i + 1], p1);
        p2 = turn_row(h + 2 * SCAN_LANES, a, u, k[i + 2], q[i + 2], p2);
        p3 = turn_row(h + 3 * SCAN_LANES, a, u, k[i + 3], q[i + 3], p3);
    }
    if (i < rows) p0 = turn_row(h, a, u, k[i], q[i], p0);
    if (i + 1 < rows) p1 = turn_row(h + SCAN_LANES, a, u, k[i + 1], q[i + 1], p1);
    if (i + 2 < rows) p2 = turn_row(h + 2 * SCAN_LANES, a, u, k[i + 2], q[i + 2], p2);
    return vf_add(vf_add(p0, p2), vf_add(p1, p3));
}
