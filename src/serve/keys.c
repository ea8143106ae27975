/* keys.c - API keys as digests, so that comparing takes the same time wherever two keys differ. */
#include "serve/keys.h"
#include "base/digest.h"
#include "base/file.h"

#include <nettle/memops.h>
#include <string.h>

struct keys {
    size_t n;
    uint8_t digest[][DIGEST_BYTES];
};

static size_t lines(const char *s)
{
    size_t n = 1;
    while ((s = strchr(s, '\n')))
        s++, n++;
    return n;
}

int keys_read(const char *path, struct keys **out)
{
    char *text;
    size_t n;
    TRY(file_read(path, 1 << 20, &text, &n));
    struct keys *k = mem_alloc(sizeof *k + lines(text) * DIGEST_BYTES);
    for (char *s = text; k && *s;) {
        size_t len = strcspn(s, "\n"), used = len;
        while (used && strchr(" \t\r", s[used - 1]))
            used--;
        if (used && *s != '#') digest_of(s, used, k->digest[k->n++]);
        s += len + (s[len] == '\n');
    }
    mem_free(text);
    if (!k) return ERR_NOMEM;
    if (!k->n) {
        mem_free(k);
        return ERR(FORMAT, "%s has no API key: each line is one", path);
    }
    *out = k;
    return 0;
}

bool keys_have(const struct keys *k, const char *key)
{
    uint8_t d[DIGEST_BYTES];
    bool found = false;
    if (!key) return false;
    digest_of(key, strlen(key), d);
    for (size_t i = 0; i < k->n; i++)
        found |= memeql_sec(d, k->digest[i], DIGEST_BYTES) != 0;
    return found;
}

const char *keys_sent(const char *authorization, const char *x_api_key)
{
    bool bearer = authorization && !strncasecmp(authorization, "Bearer ", 7);
    return bearer ? authorization + 7 : x_api_key;
}

void keys_salt(const char *key, const char *own, size_t n, char out[KEYS_SALT])
{
    struct digest d;
    uint8_t sum[DIGEST_BYTES];
    *out = 0;
    if (!key && !n) return;
    digest_begin(&d);
    digest_text(&d, "kvik serve");
    digest_text(&d, key ? key : "");
    if (n) digest_add(&d, own, n);
    digest_end(&d, sum);
    digest_hex(sum, out);
}

void keys_free(struct keys *k)
{
    mem_free(k);
}
