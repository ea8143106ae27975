/* seen.h - which contents of session files a cache knows.  A save replaces only contents that it knows. */
#pragma once
#include "generate/handle.h"
#include "session/session_file.h"

/* Makes room for one more digest, so that session_seen_add cannot fail. */
int session_seen_open(kvik_cache *c);
/* Remembers the digest of a manifest that the cache has loaded or is about to write. */
void session_seen_add(kvik_cache *c, const uint8_t digest[DIGEST_BYTES]);
bool session_seen(const kvik_cache *c, const uint8_t digest[DIGEST_BYTES]);
