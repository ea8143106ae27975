/* test_tok.h - the golden tokenizers, encoding into a list, and decoding as a stream, shared by the
 * tokenizer tests. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "tok/tok.h"

#define TOK_DIR "tests/golden/tokenizers/"

/* Returns the unit n times; the caller frees it with mem_free. */
static inline char *repeat(const char *unit, size_t n)
{
    size_t len = strlen(unit);
    char *s = mem_alloc(len * n + 1);
    assert_non_null(s);
    for (size_t i = 0; i < n; i++)
        memcpy(s + i * len, unit, len);
    return s;
}

static inline char *unpack(const char *path, size_t *n)
{
    char cmd[512];
    struct buf b;
    buf_init(&b, (size_t)64 << 20);
    snprintf(cmd, sizeof cmd, "xz -dc '%s'", path);
    FILE *f = popen(cmd, "r");
    assert_non_null(f);
    char tmp[65536];
    for (size_t k; (k = fread(tmp, 1, sizeof tmp, f)) > 0;)
        assert_int_equal(buf_append(&b, tmp, k), 0);
    assert_int_equal(pclose(f), 0);
    *n = b.len;
    return buf_take(&b);
}

static inline struct tok *open_golden(const char *name)
{
    char path[256];
    size_t n, n_config;
    char *config;
    struct tok *t = NULL;
    snprintf(path, sizeof path, TOK_DIR "%s/tokenizer.json.xz", name);
    char *json = unpack(path, &n);
    snprintf(path, sizeof path, TOK_DIR "%s/tokenizer_config.json", name);
    assert_int_equal(file_read(path, 1 << 20, &config, &n_config), 0);
    if (tok_open_json(json, n, config, n_config, &t) < 0) fail_msg("%s: %s", name, err_last());
    mem_free(json);
    mem_free(config);
    return t;
}

/* Decodes all ids as a stream; every piece must be whole characters. */
static inline void stream(const struct tok *t, const struct ids *v, bool skip, struct buf *out)
{
    struct tok_stream *s;
    assert_int_equal(tok_stream_new(t, skip, &s), 0);
    for (size_t i = 0; i < v->n; i++) {
        size_t before = out->len;
        assert_int_equal(tok_stream_put(s, v->id[i], out), 0);
        if (out->len > before) assert_true(utf8_valid(out->data + before, out->len - before));
    }
    assert_int_equal(tok_stream_end(s, out), 0);
    tok_stream_drop(s);
}

static inline struct tok *open_text(const char *json)
{
    struct tok *t = NULL;
    if (tok_open_json(json, strlen(json), NULL, 0, &t) < 0)
        fail_msg("%s: %.200s", err_last(), json);
    return t;
}
