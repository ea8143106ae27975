/* fuzz_config.c - any text as config.json and as the index of a sharded checkpoint. */
#include "fmt/fmt_int.h"
#include "fuzz.h"
#include "walk_fmt.h"

#include <math.h>

static void as_config(const char *text, size_t n)
{
    static const char *const keys[] = {"hidden_size", "rope_theta", "tie_word_embeddings",
                                       "model_type", "num_hidden_layers"};
    json_t *j = NULL;
    if (config_parse(text, n, "config.json", &j) < 0) {
        WALK_MUST(j == NULL && err_last()[0]);
        return;
    }
    WALK_MUST(json_is_object(j));
    for (size_t i = 0; i < countof(keys); i++) {
        uint32_t u = 1;
        double d = 0;
        bool b;
        const char *s = "";
        json_get_u32(j, "config.json", keys[i], 1, 1000, &u);
        json_get_f64(j, "config.json", keys[i], &d);
        json_get_bool(j, "config.json", keys[i], &b);
        json_get_str(j, "config.json", keys[i], &s);
        WALK_MUST(u >= 1 && u <= 1000 && isfinite(d) && s != NULL);
    }
    json_decref(j);
}

static void as_index(const char *text, size_t n)
{
    struct shards s = {0};
    if (shards_parse(text, n, "index.json", &s) < 0) {
        WALK_MUST(s.n == 0 && err_last()[0]);
        return;
    }
    WALK_MUST(s.n_files >= 1 && s.n_files <= s.n);
    for (uint32_t i = 0; i < s.n_files; i++)
        WALK_MUST(!strchr(s.file[i], '/') && !strchr(s.file[i], '\\') && s.file[i][0] != '.');
    for (uint32_t i = 0; i < s.n; i++)
        WALK_MUST(s.entry[i].number < s.n_files && s.entry[i].name != NULL &&
                  strcmp(s.file[s.entry[i].number], s.entry[i].file) == 0);
    shards_done(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    as_config((const char *)data, size);
    as_index((const char *)data, size);
    return 0;
}
