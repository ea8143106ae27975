/* gemma2.c - Gemma 2 (Gemma Team 2024): layers 0, 2, 4, ... have a window, the others see everything; scores and logits
 * are capped.  The rest is in gemma.h. */
#include "model/gemma.h"

static int gemma2_open(struct model *m)
{
    uint32_t window = 4096;
    m->context = 8192;
    TRY(gemma_read(m, 46, 50, 30));
    TRY(model_read_window(m, &window));
    TRY(model_slide(m, window, 0, 2));
    TRY(model_read_rope(m, 0, NULL));
    TRY(rope_prepare(&m->rope[0]));
    return gemma_bind(m);
}

static const char *const names[] = {"gemma2", NULL};
static const struct arch gemma2_arch = {.names = names, .open = gemma2_open, .graph = gemma_graph};
MODEL_ARCH(gemma2, &gemma2_arch);
