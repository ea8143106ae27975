/* expert_mlp.c - the MLP of one expert, from operations that every device has. */
#include "dev/dev.h"

void dev_expert_mlp(struct dev_queue *d, enum dev_compute mode, const struct dev_experts *a,
                    const struct dev_expert *e, uint32_t n)
{
    struct dev_mm in[] = {{&e->gate, e->bgate, a->gate, a->ffn}, {&e->up, e->bup, a->up, a->ffn}};
    struct dev_mm down = {&e->down, e->bdown, a->y, a->hidden};
    if (a->weigh_input) dev_scale_rows(d, a->in, a->by, n, a->hidden);
    dev_matmul(d, mode, a->in, a->hidden, n, in, 2);
    if (a->clamped)
        dev_swiglu_clamped(d, a->gate, a->up, a->alpha, a->limit, n, a->ffn);
    else
        dev_silu_mul(d, a->gate, a->up, n, a->ffn);
    dev_matmul(d, mode, a->gate, a->ffn, n, &down, 1);
    if (!a->weigh_input) dev_scale_rows(d, a->y, a->by, n, a->hidden);
}
