/* golden_case.h - reads parts of golden cases. */
#pragma once
#include "base/json.h"
#include "fmt/fmt.h"
#include "kvik.h"

#include <stdio.h>

/* Points prompts to the rows of a case's input_features, a tensor [batch][bins][frames] of the file *f, which the caller closes.
 * Returns their number, at most `most`; 0 on failure. */
static inline uint32_t golden_features(const json_t *c, const char *dir, struct safetensors **f,
                                       kvik_prompt *prompt, kvik_source *source, uint32_t most)
{
    char path[600];
    const char *key = json_string_value(json_object_get(c, "input_features"));
    snprintf(path, sizeof path, "%s/%s", dir, json_string_value(json_object_get(c, "tensors")));
    if (safetensors_open(path, f) < 0) return 0;
    const struct tensor *t = safetensors_find(*f, key);
    if (!t || t->n_dims != 3 || t->dim[0] > most || t->dtype != DT_F32) return 0;
    for (uint32_t i = 0; i < t->dim[0]; i++) {
        source[i] = (kvik_source){.size = sizeof(kvik_source),
                                  .features = (const float *)t->data + i * t->dim[1] * t->dim[2],
                                  .n_frames = t->dim[2]};
        prompt[i] = (kvik_prompt){.size = sizeof(kvik_prompt), .source = &source[i]};
    }
    return (uint32_t)t->dim[0];
}

/* Moves the ids of prompts to the input of the model's encoder, if it has one. */
static inline void golden_hear(const kvik_model *m, kvik_prompt *prompt, kvik_source *source,
                               uint32_t n)
{
    kvik_encoder encoder = {.size = sizeof encoder};
    if (kvik_model_encoder(m, &encoder) <= 0) return;
    for (uint32_t i = 0; i < n; i++) {
        if (prompt[i].source) continue;
        source[i] = (kvik_source){.size = sizeof(kvik_source),
                                  .ids = prompt[i].ids,
                                  .n = prompt[i].n,
                                  .attention_mask = prompt[i].attention_mask};
        prompt[i] = (kvik_prompt){.size = sizeof(kvik_prompt), .source = &source[i]};
    }
}
