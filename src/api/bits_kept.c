/* bits_kept.c - an entry of the user's cache directory that holds the bits chosen for a model.  base/user_cache.h
 * says who can write it, and what becomes of a damaged entry.
 *
 *     $XDG_CACHE_HOME/kvik/bits/NAME, or ~/.cache/kvik/bits/NAME
 *
 *         kvik bits 2
 *         {"config": "...", "kld": 0.0021, "bits": 4.0}
 *
 * NAME follows from the state of the model's files, the text, the limit, and how the model computes. */
#include "api/bits_kept.h"
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* The number rises when codecs store other levels, because a choice depends on the errors of these levels. */
#define MARK "kvik bits 2\n"
enum { MOST_BYTES = 1 << 16 };

/* The assembler puts the text file here.  tests/cli/bits.sh measures the choice with the same file, whose checksum
 * is in examples/text/SHA256SUMS. */
__asm__(".pushsection .rodata\n"
        ".hidden bits_file, bits_file_end\n"
        ".globl bits_file, bits_file_end\n"
        "bits_file: .incbin \"examples/text/nowhere.txt\"\n"
        "bits_file_end: .byte 0\n"
        ".popsection\n");
extern const char bits_file[], bits_file_end[];

static const struct cache_kind kind = {
    .folder = "bits", .mark = "kvik bits 2", .suffix = "", .least = 0, .most = 256};

const char *bits_text(size_t *n)
{
    *n = (size_t)(bits_file_end - bits_file);
    return bits_file;
}

void bits_kept_done(struct bits_kept *b)
{
    mem_free(b->config);
    b->config = NULL;
}

static void add_files(const struct model *m, struct cache_sources *s, const char *purpose)
{
    cache_sources_begin(s, purpose);
    for (uint32_t i = 0; i < checkpoint_n_files(m->ck); i++) {
        const char *path;
        const struct map *f = checkpoint_file_at(m->ck, i, &path);
        cache_sources_add(s, path, &f->stamp);
    }
}

void bits_source(const struct model *m, enum dev_compute compute, double limit,
                 struct bits_source *out)
{
    char purpose[160], hex[2 * DIGEST_BYTES + 1];
    uint8_t text[DIGEST_BYTES];
    struct timespec now;
    size_t n;
    const char *of = bits_text(&n);
    digest_of(of, n, text);
    digest_hex(text, hex);
    clock_gettime(CLOCK_REALTIME, &now);
    out->begun = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    snprintf(purpose, sizeof purpose, "%s%s %d %.17g", MARK, hex, (int)compute, limit);
    add_files(m, &out->files, purpose);
    cache_sources_end(&out->files, &out->key);
}

/* Reads an entry.  The caller checks the keys as if a user had given them. */
static bool read_entry(const char *text, size_t n, struct bits_kept *out)
{
    json_t *o;
    if (n < sizeof MARK || n > MOST_BYTES || memcmp(text, MARK, sizeof MARK - 1) != 0) return false;
    if (json_parse(text + sizeof MARK - 1, n - (sizeof MARK - 1), "bits", &o) < 0) return false;
    const char *config = json_string_value(json_object_get(o, "config"));
    out->kld = json_number_value(json_object_get(o, "kld"));
    out->bits = json_number_value(json_object_get(o, "bits"));
    out->config = config && isfinite(out->kld) && isfinite(out->bits) ? mem_strdup(config) : NULL;
    json_decref(o);
    return out->config != NULL;
}

bool bits_recall(const struct bits_source *s, struct bits_kept *out)
{
    struct cache_entry e;
    if (!cache_find(&kind, &s->key, &e)) return false;
    bool good = read_entry((const char *)e.map.data, e.size, out);
    cache_entry_close(&e);
    return good;
}

void bits_remember(const struct bits_source *s, const struct bits_kept *b)
{
    struct cache_writer *w;
    char *text = NULL;
    JSON_SCOPE(scope);
    json_t *o = json_pack("{s:s, s:f, s:f}", "config", b->config, "kld", b->kld, "bits", b->bits);
    if (json_whole(&scope) < 0 || json_text(o, &text) < 0) text = NULL;
    json_decref(o);
    if (!text || !cache_sources_settled(&kind, &s->files, s->begun) ||
        cache_write_begin(&kind, &s->key, sizeof MARK + strlen(text), &w) < 0) {
        mem_free(text);
        return;
    }
    bool good =
        cache_write(w, MARK, sizeof MARK - 1) >= 0 && cache_write(w, text, strlen(text)) >= 0;
    if (good)
        (void)cache_write_end(w);
    else
        cache_write_drop(w);
    mem_free(text);
}
