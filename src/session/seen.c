/* seen.c - the digests of the manifests that a cache has loaded or saved.  A manifest names all live bytes of its
 * session, so its digest stands for the contents of the file.  If the file has a digest that the cache does not
 * know, another chat or program has saved there since, and a save would drop its turns.  Copied and renamed files
 * have the digest of the original; replacing them loses nothing that the cache did not have.  The newest 4096
 * digests are kept. */
#include "session/seen.h"

#include <string.h>

enum { KEPT = 4096 };

struct session_seen {
    uint32_t n, next;
    uint8_t digest[KEPT][DIGEST_BYTES];
};

int session_seen_open(kvik_cache *c)
{
    if (!c->seen) c->seen = mem_alloc(sizeof *c->seen);
    return c->seen ? 0 : ERR_NOMEM;
}

bool session_seen(const kvik_cache *c, const uint8_t digest[DIGEST_BYTES])
{
    for (uint32_t i = 0; c->seen && i < c->seen->n; i++)
        if (memcmp(c->seen->digest[i], digest, DIGEST_BYTES) == 0) return true;
    return false;
}

void session_seen_add(kvik_cache *c, const uint8_t digest[DIGEST_BYTES])
{
    struct session_seen *s = c->seen;
    if (session_seen(c, digest)) return;
    memcpy(s->digest[s->next], digest, DIGEST_BYTES);
    s->next = (s->next + 1) % KEPT;
    s->n = MIN(s->n + 1, (uint32_t)KEPT);
}
