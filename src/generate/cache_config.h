/* cache_config.h - reads and checks a kvik_cache_config. */
#pragma once
#include "generate/handle.h"

/* Copies what a program gave (NULL: nothing) into *full, and fills in fields that are not set from its options. */
int settings_take(const kvik_cache_config *given, kvik_cache_config *full);
/* Reads a configuration, except for what depends on the model. */
int settings_read(const kvik_cache_config *c, struct preset_choice *s);
int settings_exec(const struct preset_choice *s, const struct model *m, const kvik_cache_config *c,
                  struct exec_config *out);
/* describe_cache.c: computes the most bytes that a sequence of the whole context takes in a dynamic cache with rows of
 * this type.  Layers with a window keep only the rows that they see. */
int settings_most(const struct model *m, enum dtype rows, size_t *out);
/* Calls on_notice for remarks on the choice that a user should know.  m NULL: a cache without a model. */
void settings_hints(const struct preset_choice *s, const struct model *m,
                    const kvik_cache_config *c);
