/* ignored.c - fields of other servers that have no effect here; see ignored.h.
 *
 * Clients of llama-server send all options of their user interface with every request, so an error would lock these
 * clients out.  A field that would change the text of llama-server is named in the log, once. */
#include "serve/ignored.h"

#include <stdatomic.h>
#include <string.h>

static const char *const names[] = {
    "mirostat",
    "mirostat_tau",
    "mirostat_eta",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "dynatemp_range",
    "dynatemp_exponent",
    "samplers",
    "repeat_last_n",
    "n_keep",
    "n_discard",
    "n_indent",
    "adaptive_target",
    "adaptive_decay",
    "cache_prompt",
    "lora",
    "backend_sampling",
    "n_cache_reuse",
};

static atomic_ullong told; /* one bit for each name that the log has had */

/* True if the value switches the field off, as many clients send it. */
static bool is_off(const char *name, const json_t *v)
{
    if (!strcmp(name, "cache_prompt")) return json_is_true(v);
    return json_is_null(v) || json_is_false(v) ||
           (json_is_number(v) && json_number_value(v) <= 0) ||
           (json_is_array(v) && !json_array_size(v));
}

void ignored_note(const struct serve_options *o, const json_t *body)
{
    char line[128];
    _Static_assert(countof(names) <= 64, "a bit for each name");
    for (size_t i = 0; o->on_log && i < countof(names); i++) {
        const json_t *v = json_object_get(body, names[i]);
        uint64_t bit = UINT64_C(1) << i;
        if (!v || is_off(names[i], v) || (atomic_fetch_or(&told, bit) & bit)) continue;
        snprintf(line, sizeof line, "{\"ignored\": \"%s\", \"note\": \"this field has no effect\"}",
                 names[i]);
        o->on_log(o->ctx, line);
    }
}
