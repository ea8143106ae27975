/* settings.h - a kvik_cache_config, read and checked. */
#pragma once
#include "api/api.h"

struct settings {
    const struct kv_preset *preset;
    struct kv_keys keys;
    uint32_t max_cache_len; /* 0: not given */
    enum kv_streaming streaming;
};
int settings_read(const kvik_cache_config *c,
                  struct settings *s); /* all but what a model decides */
int settings_exec(const struct settings *s, const struct model *m, const kvik_cache_config *c,
                  struct exec_config *out);
void settings_hints(const struct settings *s, const kvik_cache_config *c); /* to on_notice */
