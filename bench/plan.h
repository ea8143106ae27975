/* plan.h - what rates.c measures of kvik and peers/llama.c of llama.cpp, so that both do the same work.  It is plain C and
 * includes nothing of either.  plan.py reads the numbers here for peers/transformers.py and the scripts. */
#pragma once
#include <stdint.h>
#include <stdio.h>

enum {
    PROMPT = 512,       /* tokens of a prompt whose prefill is timed, and of a step */
    STEPS = 24,         /* tokens that are decoded in a repetition */
    DEPTHS = 3,         /* places where both are timed */
    QUALITY = 2048,     /* tokens before those whose logits are written */
    COUNTED = 64,       /* tokens whose logits are written */
    MOST = 16384,       /* ids that are read */
    MOST_RUNS = 9,      /* repetitions, */
    ENOUGH_SECONDS = 2, /* and when no further one begins */
};
static const uint32_t depths[DEPTHS] = {0, 2048, 7000};
static int32_t ids[MOST];

/* Reads token ids from a text, however they are separated, and returns their number. */
static uint32_t read_ids(const char *path)
{
    FILE *f = fopen(path, "r");
    uint32_t n = 0;
    while (f && n < MOST && fscanf(f, "%d%*[], \n[]", &ids[n]) >= 1)
        n++;
    if (f) fclose(f);
    return n;
}
