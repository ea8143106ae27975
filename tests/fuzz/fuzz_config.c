/* fuzz_config.c - any text as config.json by itself, as the configuration of a real small model,
 * and as the index of a sharded checkpoint. The model is then opened. */
#include "fmt/fmt_int.h"
#include "fuzz.h"
#include "model/model.h"
#include "walk_fmt.h"

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

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
    struct rope r = {.rot = 0};
    if (rope_read(&r, j, "config.json", 4096) == 0) {
        r.rot = 16;
        if (rope_prepare(&r) == 0) WALK_MUST(r.inv_freq != NULL);
    }
    rope_done(&r);
    json_decref(j);
}

/* --- Model directories: the weights of a golden model, with config.json rewritten for every input.
 * The input names a family and so chooses the weights, so that its configuration can get as far as
 * binding them. */
static struct place {
    const char *family, *golden;
    char dir[64], config[96], weights[96];
} place[] = {
    {"qwen2", "qwen2", "", "", ""},   {"qwen3", "qwen3", "", "", ""},
    {"gemma2", "gemma2", "", "", ""}, {"gemma3", "gemma3", "", "", ""},
    {"gpt2", "gpt2", "", "", ""},     {"gpt_oss", "gpt-oss", "", "", ""},
    {"phi3", "phi3", "", "", ""},     {"mixtral", "mixtral", "", "", ""},
    {"llama4", "llama4", "", "", ""}, {"", "llama-bf16", "", "", ""},
};

static void remove_dirs(void)
{
    for (size_t i = 0; i < countof(place); i++) {
        if (!place[i].dir[0]) continue;
        unlink(place[i].config);
        unlink(place[i].weights);
        rmdir(place[i].dir);
    }
}

static bool make_dir(struct place *p)
{
    static bool registered;
    char target[4096], path[128];
    if (p->dir[0]) return true;
    snprintf(path, sizeof path, "tests/golden/models/%s/model.safetensors", p->golden);
    if (!realpath(path, target)) return false;
    strcpy(p->dir, "/tmp/kvik-fuzz-XXXXXX");
    if (!mkdtemp(p->dir)) abort();
    snprintf(p->config, sizeof p->config, "%s/config.json", p->dir);
    snprintf(p->weights, sizeof p->weights, "%s/model.safetensors", p->dir);
    if (symlink(target, p->weights) != 0) abort();
    if (!registered) registered = atexit(remove_dirs) == 0;
    return registered;
}

static void as_model(const void *text, size_t n)
{
    struct model *m = NULL;
    struct place *p = place;
    while (p->family[0] && !memmem(text, n, p->family, strlen(p->family)))
        p++;
    if (!make_dir(p)) return; /* the program was not started at the root of the repository */
    int fd = open(p->config, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    WALK_MUST(fd >= 0 && write(fd, text, n) == (ssize_t)n);
    close(fd);
    if (model_open(p->dir, &m) < 0) {
        WALK_MUST(m == NULL && err_last()[0]);
        return;
    }
    WALK_MUST(m->n_layers >= 1 && m->n_heads >= 1 && m->n_kv_heads >= 1 && m->head_dim >= 1);
    WALK_MUST(m->n_heads % m->n_kv_heads == 0 && m->vocab >= 1 && m->hidden >= 1);
    for (uint32_t i = 0; i < m->n_layers; i++)
        WALK_MUST(m->site[i].plane[0].heads == m->n_kv_heads && m->site[i].window <= 1u << 30);
    for (uint32_t i = 0; i < m->n_ropes; i++)
        WALK_MUST(m->rope[i].inv_freq && m->rope[i].rot >= 2 && m->rope[i].rot <= m->head_dim);
    model_close(m);
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
    as_model(data, size);
    as_index((const char *)data, size);
    return 0;
}
