/* session.h - what saving and loading of sessions share. */
#pragma once
#include "base/durable.h"
#include "generate/handle.h"
#include "session/session_file.h"

struct session_disk { /* a file to read a session from */
    struct session_io io;
    struct durable *f;
};
void session_disk_init(struct session_disk *d, struct durable *f);
/* What rows mean, as the cache has them: an object to keep in the file. */
int session_meta(kvik_cache *c, json_t **out);
/* Whether rows of `theirs` can live beside those of `mine`; else an error that names both.  what: the file. */
int session_agree(const json_t *mine, const json_t *theirs, const char *what);
/* session_load.c.  A file for reading, and its manifest; the caller closes both. */
int session_open_file(const char *path, struct durable *f, struct session *s);
/* kvik_cache_load of what was opened. */
int session_load(kvik_cache *c, struct durable *f, const struct session *s, uint32_t max,
                 kvik_seq *out, char **note);
