/* hash.c - random keys for hash tables, and the keyed hash of a text. */
#include "base/hash.h"
#include "base/base.h"

#include <string.h>
#include <sys/random.h>

struct hash_key hash_key_new(void)
{
    struct hash_key key;
    if (getrandom(&key, sizeof key, GRND_NONBLOCK) == sizeof key) return key;
    /* Early at boot the system has no random bytes yet; the clock and addresses must do then. */
    double now = now_seconds();
    memcpy(&key.k[0], &now, sizeof now);
    key.k[1] = (uint64_t)(uintptr_t)&key ^ (uint64_t)(uintptr_t)hash_key_new << 20;
    return key;
}

static uint64_t rotate_left(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate_left(v[1], 13) ^ v[0];
    v[3] = rotate_left(v[3], 16) ^ v[2];
    v[0] = rotate_left(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate_left(v[1], 17) ^ v[2];
    v[3] = rotate_left(v[3], 21) ^ v[0];
    v[2] = rotate_left(v[2], 32);
}

uint64_t hash_text(const struct hash_key *key, const void *s, size_t n)
{
    uint64_t v[4] = {key->k[0] ^ 0x736F6D6570736575u, key->k[1] ^ 0x646F72616E646F6Du,
                     key->k[0] ^ 0x6C7967656E657261u, key->k[1] ^ 0x7465646279746573u};
    const char *p = s;
    uint64_t w, last = (uint64_t)n << 56;
    size_t left = n;
    for (; left >= 8; left -= 8, p += 8) {
        memcpy(&w, p, 8);
        v[3] ^= w;
        sip_round(v);
        v[0] ^= w;
    }
    for (size_t i = 0; i < left; i++)
        last |= (uint64_t)(uint8_t)p[i] << (8 * i);
    v[3] ^= last;
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xFF;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
