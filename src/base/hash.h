/* hash.h - hashes for tables whose keys come from files or users.  A table draws a random key when it is made, so
 * nobody can choose entries that collide.  The key decides where entries lie in the table.  No result may depend
 * on that order. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct hash_key {
    uint64_t k[2];
};
/* Returns 16 random bytes of the system. */
struct hash_key hash_key_new(void);
/* Returns SipHash-1-3 of s[0..n) (Aumasson and Bernstein 2012). */
uint64_t hash_text(const struct hash_key *key, const void *s, size_t n);
/* Hashes one number with a wide multiplication by a secret.  Every bit of the result is usable. */
static inline uint64_t hash_u64(const struct hash_key *key, uint64_t x)
{
    unsigned __int128 m = (unsigned __int128)(x ^ key->k[0]) * (key->k[1] | 1);
    uint64_t h = (uint64_t)m ^ (uint64_t)(m >> 64);
    return h ^ h >> 32;
}
