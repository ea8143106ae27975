/* weights_entry.c - keeps the digest of a model's weights in the user's cache directory (base/user_cache.h), so
 * that only the first session of a model reads all of its weights.
 *
 *     $XDG_CACHE_HOME/kvik/digests/NAME, or ~/.cache/kvik/digests/NAME
 *
 *         kvik weights 2
 *         weights  SHA-256 of the weights
 *
 * A small model has no entry, because hashing it is faster than writing one. */
#include "base/user_cache.h"
#include "base/utf8.h"
#include "model/weights_digest.h"

#include <stdio.h>
#include <string.h>

#define MARK "kvik weights 2\n"

enum {
    HEX = 2 * DIGEST_BYTES + 1,
    TEXT_BYTES = (int)sizeof MARK - 1 + 9 + HEX /* MARK, then a line with a word and a digest */
};

static const struct cache_kind digests = {
    .folder = "digests", .mark = MARK, .suffix = "", .least = (size_t)4 << 20, .most = 256};

void weights_files(const struct checkpoint *ck, struct weights_files *out)
{
    struct cache_sources opened, current;
    struct cache_key then, now;
    *out = (struct weights_files){.change = FILES_SAME};
    cache_sources_begin(&opened, MARK);
    cache_sources_begin(&current, MARK);
    for (uint32_t i = 0; i < checkpoint_n_files(ck); i++) {
        const char *path;
        const struct map *m = checkpoint_file_at(ck, i, &path);
        const struct stamp was = m->stamp;
        struct stamp at;
        if (!map_now(m, path, &at)) at = was;
        cache_sources_add(&opened, path, &was);
        cache_sources_add(&current, path, &at);
        if (at.size != was.size || at.mtime != was.mtime)
            out->change = FILES_WRITTEN;
        else if (at.ctime != was.ctime)
            out->change = MAX(out->change, FILES_TOUCHED);
    }
    cache_sources_end(&opened, &then);
    cache_sources_end(&current, &now);
    out->opened = then;
    out->current = current;
    memcpy(out->now, now.state, sizeof out->now);
}

static void write_text(const uint8_t digest[DIGEST_BYTES], char text[TEXT_BYTES + 1])
{
    char hex[HEX];
    digest_hex(digest, hex);
    snprintf(text, TEXT_BYTES + 1, MARK "weights  %s\n", hex);
}

/* Reads the digest from the text of an entry.  The text is accepted only if it is exactly the text that this
 * digest makes. */
static bool read_entry(const char text[TEXT_BYTES], uint8_t out[DIGEST_BYTES])
{
    const char *hex = text + sizeof MARK - 1 + 9;
    char again[TEXT_BYTES + 1];
    uint8_t digest[DIGEST_BYTES];
    for (size_t i = 0; i < DIGEST_BYTES; i++) {
        int hi = hex_digit(hex[2 * i]), lo = hex_digit(hex[2 * i + 1]);
        if (hi < 0 || lo < 0) return false;
        digest[i] = (uint8_t)(hi << 4 | lo);
    }
    write_text(digest, again);
    if (memcmp(text, again, TEXT_BYTES) != 0) return false;
    memcpy(out, digest, DIGEST_BYTES);
    return true;
}

bool weights_recall(const struct weights_files *f, uint8_t out[DIGEST_BYTES])
{
    struct cache_entry e;
    if (!cache_find(&digests, &f->opened, &e)) return false;
    bool good = e.size == TEXT_BYTES && read_entry((const char *)e.map.data, out);
    cache_entry_close(&e);
    return good;
}

void weights_remember(const struct checkpoint *ck, const struct weights_files *f, int64_t begun,
                      const uint8_t digest[DIGEST_BYTES])
{
    char text[TEXT_BYTES + 1];
    struct weights_files after;
    struct cache_writer *w;
    weights_files(ck, &after);
    if (after.change != FILES_SAME || !cache_sources_settled(&digests, &after.current, begun) ||
        cache_write_begin(&digests, &f->opened, TEXT_BYTES, &w) < 0)
        return;
    write_text(digest, text);
    if (cache_write(w, text, TEXT_BYTES) < 0)
        cache_write_drop(w);
    else
        (void)cache_write_end(w);
}

void weights_forget(const struct weights_files *f)
{
    cache_forget(&digests, &f->opened);
}
