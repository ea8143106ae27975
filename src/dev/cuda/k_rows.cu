/* k_rows.cu - rows, columns and bytes from place to place, and the choice of experts. */
#include "dev/cuda/k_block.h"
#include "dev/cuda/kernels.h"

KERNEL(k_move)
{
    EACH_VALUE(i, a.n)
    {
        size_t at = i / a.bytes * a.stride + i % a.bytes;
        a.to[at] = a.from[at];
    }
}

KERNEL(k_cut)
{
    EACH_VALUE(i, a.n)
    {
        size_t row = (size_t)a.parts * a.width, token = i / row, part = i % row / a.width;
        a.out[token * a.ldo + i % row] = a.x[token * a.ldx + part * a.stride + i % a.width];
    }
}

KERNEL(k_rows)
{
    EACH_VALUE(d, a.dim)
    {
        for (uint32_t i = 0; i < a.n; i++)
            a.out[(size_t)i * a.dim + d] = a.x[(size_t)a.id[i] * a.dim + d];
    }
}

KERNEL(k_unfold)
{
    EACH_VALUE(i, a.n)
    {
        uint32_t tap = (uint32_t)(i % a.taps), c = (uint32_t)(i / a.taps % a.channels);
        uint32_t at = a.step * (uint32_t)(i / a.taps / a.channels) + tap;
        bool inside = at >= a.taps / 2 && at - a.taps / 2 < a.n_x;
        a.out[i] = inside ? a.x[(size_t)(at - a.taps / 2) * a.channels + c] : 0;
    }
}

KERNEL(k_choose)
{
    EACH_VALUE(token, a.n)
    {
        const float *score = a.score + token * a.n_experts;
        uint32_t *chosen = a.chosen + token * a.top;
        float *weight = a.weight + token * a.top, sum = 0;
        for (uint32_t k = 0; k < a.top; k++) {
            uint32_t best = a.n_experts;
            for (uint32_t e = 0; e < a.n_experts; e++) {
                bool taken = false;
                for (uint32_t j = 0; j < k && !taken; j++)
                    taken = chosen[j] == e;
                if (!taken && (best == a.n_experts || score[e] > score[best])) best = e;
            }
            chosen[k] = best;
            weight[k] = score[best];
        }
        for (uint32_t k = 0; k < a.top; k++)
            sum += weight[k];
        for (uint32_t k = 0; a.share && k < a.top; k++)
            weight[k] /= sum;
    }
}

KERNEL(k_add_rows)
{
    EACH_VALUE(i, a.n) a.out[(size_t)a.row[i / a.dim] * a.dim + i % a.dim] += a.y[i];
}

KERNEL(k_spread)
{
    EACH_VALUE(i, a.n) a.out[i] = a.x[i / a.dim / a.each * a.dim + i % a.dim];
}

KERNEL(k_sum_experts)
{
    EACH_VALUE(i, a.n)
    {
        size_t token = i / a.dim;
        const uint32_t *chosen = a.chosen + token * a.top;
        float sum = 0;
        for (uint32_t k = 0, least = 0; k < a.top; k++) { /* in ascending order of the experts */
            uint32_t best = a.top;
            for (uint32_t j = 0; j < a.top; j++)
                if (chosen[j] >= least && (best == a.top || chosen[j] < chosen[best])) best = j;
            sum += a.y[(token * a.top + best) * a.dim + i % a.dim];
            least = chosen[best] + 1;
        }
        a.out[i] = sum;
    }
}
