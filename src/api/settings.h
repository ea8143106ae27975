/* settings.h - a kvik_cache_config, read and checked. */
#pragma once
#include "generate/handle.h"

/* Reads all of a configuration but what a model decides. */
int settings_read(const kvik_cache_config *c, struct preset_choice *s);
int settings_exec(const struct preset_choice *s, const struct model *m, const kvik_cache_config *c,
                  struct exec_config *out);
/* Tells on_notice what is worth knowing about the choice. */
void settings_hints(const struct preset_choice *s, const kvik_cache_config *c);
