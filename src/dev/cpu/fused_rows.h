/* fused_rows.h - the functions of fused.h over affine tiles of one row, stated once for AVX2 and AVX-512: fused_avx2.c and
 * fused_avx512.c include it after `scores` and `sums`, and after ADD_FIRST and ADD_SECOND, the kinds of `sums`, and add_second,
 * which is true for the second. */
#include "dev/cpu/fused_vec.h"

/* Finds the rows of a run.  False: tiles of another form, of which strips are made. */
static bool find_rows(const struct kv_reading *r, const struct kv_piece *at, uint32_t n,
                      uint32_t nq, struct rows *out)
{
    const struct kv_affine *f = r->codec->param;
    const struct kv_shape *s = r->shape;
    if (nq > FUSED_MOST || n > FUSED_STRIPS || r->codec->tile != 1 ||
        (f->bits != 2 && f->bits != 4) || !f->group || s->dtype == DT_F32 || s->dim % 64 ||
        (f->group < s->dim && f->group % 64))
        return false;
    out->strips = n;
    out->numbers = affine_unit_at(f, s, 1, at->head, 0);
    out->codes = out->numbers + (size_t)2 * affine_pairs(f, s->dim) * dtype_size(s->dtype);
    for (uint32_t i = 0; i < n; i++)
        out->base[i] = at[i].tile;
    return true;
}

#define CALL struct rows
#include "dev/cpu/fused_calls.h"

bool VEC(fused_score)(const struct kv_reading *r, const struct kv_piece *at, uint32_t n,
                      struct kv_next *next, const float *q, uint32_t nq, float scale, float *p,
                      size_t ldp)
{
    struct rows rows;
    if (!find_rows(r, at, n, nq, &rows))
        return VEC(fused_score_each)(r, at, n, next, q, nq, scale, p, ldp);
    score_of[r->shape->dtype != DT_F16][nq - 1](r, &rows, next, q, scale, p, ldp);
    return true;
}

bool VEC(fused_add)(const struct kv_reading *r, const struct kv_piece *at, uint32_t n,
                    struct kv_next *next, const float *p, size_t ldp, uint32_t nq, bool fresh,
                    float *o, size_t ldo)
{
    struct rows rows;
    if (!find_rows(r, at, n, nq, &rows))
        return VEC(fused_add_each)(r, at, n, next, p, ldp, nq, fresh, o, ldo);
    const uint32_t last = (n - 1) * KV_STRIP + (at[n - 1].r1 - 1) % KV_STRIP;
    add_of[add_second(r)][nq - 1](r, &rows, next, at->r0 % KV_STRIP, last + 1, p, ldp, fresh, o,
                                  ldo);
    return true;
}
