/* cache_config.h - a kvik_cache_config, read and checked. */
#pragma once
#include "generate/handle.h"

/* Reads all of a configuration but what a model decides. */
int settings_read(const kvik_cache_config *c, struct preset_choice *s);
int settings_exec(const struct preset_choice *s, const struct model *m, const kvik_cache_config *c,
                  struct exec_config *out);
/* describe_cache.c: computes the most bytes that a sequence of the whole context takes in a dynamic cache with rows of
 * this type.  Layers with a window keep only the rows that they see. */
int settings_most(const struct model *m, enum dtype rows, size_t *out);
/* Tells on_notice what is worth knowing about the choice.  m NULL: a cache without a model. */
void settings_hints(const struct preset_choice *s, const struct model *m,
                    const kvik_cache_config *c);
