/* test_arch.h - opens a tiny golden model with a changed config.json and checks the refusal or the
 * logits. */
#pragma once
#include "base/file.h"
#include "fmt/fmt_int.h"
#include "kvik.h"
#include "model/model.h"
#include "testing.h"

#include <dirent.h>

static char dir[64] = "/tmp/kvik-arch-XXXXXX", source[256];

static inline void clear(void)
{
    char path[512];
    struct dirent *d;
    DIR *f = opendir(dir);
    while ((d = readdir(f)))
        if (d->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s", dir, d->d_name);
            unlink(path);
        }
    closedir(f);
}

/* Returns the model's configuration with `change` merged in and the keys in `drop` (separated by
 * spaces) removed. */
static inline json_t *changed(const char *model, const char *change, const char *drop)
{
    char path[300], word[64], *text;
    size_t size;
    json_t *c = NULL, *with;
    snprintf(source, sizeof source, "tests/golden/models/%s", model);
    snprintf(path, sizeof path, "%s/config.json", source);
    assert_int_equal(file_read(path, 1 << 20, &text, &size), 0);
    assert_int_equal(config_parse(text, size, path, &c), 0);
    mem_free(text);
    for (int n; drop && sscanf(drop, " %63s%n", word, &n) == 1; drop += n)
        assert_int_equal(json_object_del(c, word), 0);
    if (change && *change) {
        if (json_parse(change, strlen(change), change, &with) < 0) fail_msg("%s", err_last());
        assert_int_equal(json_object_update(c, with), 0);
        json_decref(with);
    }
    return c;
}

/* Makes a directory with this configuration (takes ownership) and links to the weights. */
static inline void make(json_t *config)
{
    char from[4200], path[512], *text, *full = realpath(source, NULL);
    clear();
    struct dirent *d;
    DIR *f = opendir(source);
    while ((d = readdir(f)))
        if (strncmp(d->d_name, "model", 5) == 0) {
            snprintf(from, sizeof from, "%s/%s", full, d->d_name);
            snprintf(path, sizeof path, "%s/%s", dir, d->d_name);
            assert_int_equal(symlink(from, path), 0);
        }
    closedir(f);
    free(full);
    assert_int_equal(json_text(config, &text), 0);
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_int_equal(file_write(path, text, strlen(text)), 0);
    mem_free(text);
    json_decref(config);
}

static inline void must_refuse(const char *model, const char *change, const char *drop,
                               const char *word)
{
    struct model *m = NULL;
    make(changed(model, change, drop));
    if (model_open(dir, &m) >= 0) fail_msg("%s %s: accepted", model, change);
    if (!strstr(err_last(), word))
        fail_msg("%s %s: \"%s\" does not say \"%s\"", model, change, err_last(), word);
    assert_null(m);
}

/* --- The same model in another spelling, or a different model. */
enum { VALUES = 384 }; /* logits that are compared; models with fewer tokens have zeros */

static inline float *logits(const char *path, const char *what, uint32_t from)
{
    static int32_t ids[60];
    kvik_model *m;
    kvik_cache *c;
    kvik_seq s;
    kvik_cache_config config = {
        .size = sizeof config, .max_sequences = 1, .max_cache_len = 64, .compute = "exact"};
    if (kvik_model_open(path, &m) < 0 || kvik_cache_open(m, &config, &c) < 0 ||
        kvik_cache_new(c, &s) < 0)
        fail_msg("%s: %s", what, kvik_last_error());
    for (uint32_t i = 0; i < countof(ids); i++)
        ids[i] = (int32_t)((3 + i * 37 % 300) % kvik_model_vocab(m));
    float *out = calloc(MAX(kvik_model_vocab(m), VALUES), sizeof *out);
    kvik_span span = {.size = sizeof span, .seq = s, .ids = ids + from, .n = countof(ids) - from};
    if (kvik_forward(c, &span, 1, false, out) < 0) fail_msg("%s: %s", what, kvik_last_error());
    kvik_cache_close(c);
    kvik_model_close(m);
    return out;
}

static inline void compare(const char *model, const char *what, bool want)
{
    char path[300];
    snprintf(path, sizeof path, "tests/golden/models/%s", model);
    float *a = logits(path, model, 0), *b = logits(dir, what, 0);
    bool same = memcmp(a, b, VALUES * sizeof *a) == 0;
    if (same != want) fail_msg("%s %s: logits %s", model, what, same ? "are equal" : "differ");
    free(a);
    free(b);
}

static inline int start(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static inline int stop(void **state)
{
    (void)state;
    clear();
    return rmdir(dir);
}
