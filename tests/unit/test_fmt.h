/* test_fmt.h - small model files made in memory, and the two attacks every parser must survive:
 * truncation at every length and every header byte flipped. */
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fuzz/walk_fmt.h"
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX_BYTES 262144
/* A file under construction. Values are little-endian. */
struct file {
    uint8_t b[FILE_MAX_BYTES];
    size_t n;
};

static inline void put(struct file *f, const void *p, size_t n)
{
    assert_true(f->n + n <= sizeof f->b);
    if (n) memcpy(f->b + f->n, p, n);
    f->n += n;
}

static inline void put_le(struct file *f, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t b = (uint8_t)(v >> (8 * i));
        put(f, &b, 1);
    }
}

static inline void put_u32(struct file *f, uint32_t v)
{
    put_le(f, v, 4);
}

static inline void put_u64(struct file *f, uint64_t v)
{
    put_le(f, v, 8);
}

static inline void put_str(struct file *f, const char *s)
{
    put_u64(f, strlen(s));
    put(f, s, strlen(s));
}

static inline void put_fill(struct file *f, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t b = (uint8_t)(f->n * 7 + 1);
        put(f, &b, 1);
    }
}

static inline void put_pad(struct file *f, size_t align)
{
    while (f->n % align)
        put(f, "", 1);
}

/* Copies n bytes into a block of exactly that size, so that the sanitizer sees a read of the first
 * byte past the end. */
static inline uint8_t *exact(const void *p, size_t n)
{
    uint8_t *q = malloc(n ? n : 1);
    assert_non_null(q);
    if (n) memcpy(q, p, n);
    return q;
}

/* Parses a file and walks the accepted contents. Returns 0 or the error. */
typedef int (*parse_fn)(const uint8_t *data, size_t n);

static inline int parse_safetensors(const uint8_t *data, size_t n)
{
    struct safetensors *s = (void *)16;
    uint8_t *q = exact(data, n);
    int e = safetensors_parse(q, n, "t.safetensors", &s);
    if (e == 0) {
        walk_safetensors(s, q, n);
        safetensors_close(s);
    } else {
        assert_ptr_equal(s, (void *)16); /* a failure leaves the results untouched */
    }
    free(q);
    return e;
}

static inline int parse_gguf(const uint8_t *data, size_t n)
{
    struct gguf *g = (void *)16;
    uint8_t *q = exact(data, n);
    int e = gguf_parse(q, n, "t.gguf", &g);
    if (e == 0) {
        walk_gguf(g, q, n);
        gguf_close(g);
    } else {
        assert_ptr_equal(g, (void *)16);
    }
    free(q);
    return e;
}

static inline void assert_error(int got, int want, const char *part, const char *name)
{
    if (got != want || !strstr(err_last(), part)) {
        print_error("%s: got %s \"%s\", want %s with \"%s\"\n", name, err_name(got),
                    got < 0 ? err_last() : "", err_name(want), part);
        fail();
    }
}

/* Checks that every prefix of the file is refused with a message. */
static inline void attack_truncate(parse_fn parse, const struct file *f)
{
    assert_int_equal(parse(f->b, f->n), 0);
    for (size_t n = 0; n < f->n; n++) {
        int e = parse(f->b, n);
        if (e != ERR_FORMAT) {
            print_error("cut to %zu of %zu bytes: %s\n", n, f->n, err_name(e));
            fail();
        }
        assert_true(err_last()[0]);
    }
}

/* Flips every byte of [0, header) with three masks: the file is refused, or accepted as a
 * consistent file. */
static inline void attack_flip(parse_fn parse, const struct file *f, size_t header)
{
    static const uint8_t masks[] = {0x01, 0x80, 0xFF};
    uint32_t refused = 0, accepted = 0;
    struct file *g = malloc(sizeof *g);
    assert_non_null(g);
    *g = *f;
    for (size_t i = 0; i < header; i++)
        for (size_t m = 0; m < countof(masks); m++) {
            g->b[i] ^= masks[m];
            int e = parse(g->b, g->n);
            assert_true(e == 0 || e == ERR_FORMAT || e == ERR_UNSUPPORTED || e == ERR_LIMIT);
            e < 0 ? refused++ : accepted++;
            g->b[i] ^= masks[m];
        }
    free(g);
    print_message("%zu header bytes, 3 masks: %u refused, %u accepted as another valid file\n",
                  header, refused, accepted);
    assert_true(refused > 0);
}

/* --- A directory of files, removed when the test ends. */
struct dir {
    char path[256];
    char file[512]; /* the last path made by dir_file */
};

static inline void dir_make(struct dir *d)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(d->path, sizeof d->path, "%s/kvik-fmt-XXXXXX", tmp && tmp[0] ? tmp : "/tmp");
    assert_non_null(mkdtemp(d->path));
}

static inline const char *dir_file(struct dir *d, const char *name)
{
    snprintf(d->file, sizeof d->file, "%s/%s", d->path, name);
    return d->file;
}

static inline void dir_write(struct dir *d, const char *name, const void *p, size_t n)
{
    assert_int_equal(file_write(dir_file(d, name), p, n), 0);
}

static inline void dir_text(struct dir *d, const char *name, const char *text)
{
    dir_write(d, name, text, strlen(text));
}

static inline void dir_remove(struct dir *d)
{
    char cmd[512];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", d->path);
    assert_int_equal(system(cmd), 0);
}
