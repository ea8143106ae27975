/* unpacked.h - opens a tokenizer of tests/golden/tokenizers, which are packed, in a directory of the test. */
#pragma once
#include "base/file.h"
#include "kvik.h"
#include "test_tok.h"

#include <unistd.h>

static char dir[] = "/tmp/kvik-decoder-XXXXXX";

static int need(int64_t e)
{
    if (e < 0) fail_msg("%s", kvik_last_error());
    return (int)e;
}

static void remove_file(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    unlink(path);
}

static int teardown(void **state)
{
    (void)state;
    remove_file("tokenizer.json");
    remove_file("tokenizer_config.json");
    return rmdir(dir);
}

static int setup(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static void copy_file(const char *name, char *data, size_t n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(file_write(path, data, n), 0);
    mem_free(data);
}

static kvik_tokenizer *open_one(const char *name)
{
    char path[256], *data;
    size_t n;
    kvik_tokenizer *t;
    snprintf(path, sizeof path, TOK_DIR "%s/tokenizer.json.xz", name);
    data = unpack(path, &n);
    copy_file("tokenizer.json", data, n);
    snprintf(path, sizeof path, TOK_DIR "%s/tokenizer_config.json", name);
    assert_int_equal(file_read(path, 1 << 20, &data, &n), 0);
    copy_file("tokenizer_config.json", data, n);
    need(kvik_tokenizer_open(dir, &t));
    return t;
}
