/* layers.c - a cache without a model: the caller computes keys and values and gets back the ones
 * that attention must see.
 *     layers [ANYTHING] */
#include <kvik_compat.h>
#include <stdio.h>

enum { HEADS = 2, DIM = 8 };

int main(void)
{
    static const char *const kinds[] = {"full_attention", "sliding_attention"};
    kvik_cache_config config = {
        .size = sizeof config, .cache_config = "{\"sliding_window\": 6}", .max_sequences = 1};
    kvik_layers *cache;
    kvik_rows rows = {.size = sizeof rows};
    float keys[HEADS * 4 * DIM], values[HEADS * 4 * DIM];

    if (kvik_layers_open(&config, 2, kinds, &cache) < 0) {
        fprintf(stderr, "layers: %s\n", kvik_last_error());
        return 1;
    }
    for (int step = 0; step < 4; step++) {
        kvik_shape shape = {
            .size = sizeof shape, .batch = 1, .heads = HEADS, .n = 4, .dim_k = DIM, .dim_v = DIM};
        for (uint32_t layer = 0; layer < 2; layer++) {
            for (int i = 0; i < HEADS * 4 * DIM; i++) {
                keys[i] = (float)(step + i);
                values[i] = (float)(step - i);
            }
            if (kvik_layers_update(cache, layer, keys, values, &shape, &rows) < 0) {
                fprintf(stderr, "layers: %s\n", kvik_last_error());
                kvik_layers_close(cache);
                return 1;
            }
            printf("%-18s sees positions %2d to %2d\n", kinds[layer], (int)rows.position[0],
                   (int)rows.position[rows.rows - 1]);
        }
    }
    kvik_layers_close(cache);
    return 0;
}
