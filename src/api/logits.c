/* logits.c - writes the logits and scores of a result to a file. */
#include "fmt/fmt.h"
#include "generate/handle.h"

KVIK_API int kvik_logits_save(const kvik_result *r, const char *path)
{
    size_t bytes;
    if (!r || !path) return ERR(ARG, "a result and a path are needed");
    if (!r->logits && !r->scores)
        return ERR(ARG, "the result has no logits; generate with output_logits or output_scores");
    if (!ck_mul(r->logit_steps, r->logit_rows, &bytes) || !ck_mul(bytes, r->vocab, &bytes) ||
        !ck_mul(bytes, sizeof *r->logits, &bytes))
        return ERR(
            LIMIT,
            "%s: %llu steps of %llu rows of %llu logits are too many for one file; save parts of the result",
            path, (unsigned long long)r->logit_steps, (unsigned long long)r->logit_rows,
            (unsigned long long)r->vocab);
    struct tensor t[2];
    uint32_t n = 0;
    for (int i = 0; i < 2; i++) {
        const float *data = i ? r->scores : r->logits;
        if (data)
            t[n++] = (struct tensor){.name = i ? "scores" : "logits",
                                     .dtype = DT_F32,
                                     .n_dims = 3,
                                     .dim = {r->logit_steps, r->logit_rows, r->vocab},
                                     .data = data,
                                     .bytes = bytes};
    }
    return safetensors_write(path, t, n);
}
