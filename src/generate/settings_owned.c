/* settings_owned.c - the memory that kvik_generation owns: lists of tokens, of texts and of biased sequences, and
 * JSON texts.  One table says where each value lies and how it is freed, so that options can be applied as a whole
 * or not at all. */
#include "base/buf.h"
#include "generate/change.h"
#include "schema/schema.h"

#include <stdlib.h>
#include <string.h>

static const struct owned {
    size_t at, count; /* offsets of the pointer and of its count; NONE: not an array */
    enum { FLAT, STRINGS, BIASES } shape;
} owned[] = {
#define NONE      SIZE_MAX
#define AT(field) offsetof(kvik_generation, field)
    {AT(stop_strings), AT(n_stop_strings), STRINGS},
    {AT(sequence_bias), AT(n_sequence_bias), BIASES},
    {AT(bad_words_ids), AT(n_bad_words_ids), BIASES},
    {AT(suppress_tokens), AT(n_suppress_tokens), FLAT},
    {AT(begin_suppress_tokens), AT(n_begin_suppress_tokens), FLAT},
    {AT(negative_prompt_ids), AT(n_negative_prompt_ids), FLAT},
    {AT(num_assistant_tokens_schedule), NONE, FLAT},
    {AT(compile_config), NONE, FLAT},
    {AT(cache_implementation), NONE, FLAT},
    {AT(cache_config), NONE, FLAT},
    {AT(unmet), NONE, FLAT},
    {AT(cross_cache_implementation), NONE, FLAT},
    {AT(cross_cache_config), NONE, FLAT},
    {AT(json_schema), NONE, FLAT},
};

static void **pointer(kvik_generation *g, const struct owned *o)
{
    return (void **)((char *)g + o->at);
}

static uint32_t *count_of(kvik_generation *g, const struct owned *o)
{
    return o->count == NONE ? NULL : (uint32_t *)((char *)g + o->count);
}

static void biases_drop(kvik_bias *b, uint32_t n)
{
    for (uint32_t i = 0; b && i < n; i++)
        mem_free(b[i].ids);
    mem_free(b);
}

static void strings_drop(char **s, uint32_t n)
{
    for (uint32_t i = 0; s && i < n; i++)
        mem_free(s[i]);
    mem_free(s);
}

static void drop_value(kvik_generation *g, const struct owned *o)
{
    void *p = *pointer(g, o);
    uint32_t *n = count_of(g, o);
    if (o->shape == STRINGS)
        strings_drop(p, *n);
    else if (o->shape == BIASES)
        biases_drop(p, *n);
    else
        mem_free(p);
}

/* Returns a copy of the n elements at `from`, which `o` describes. */
static void *copy_value(const void *from, const struct owned *o, uint32_t n)
{
    if (o->count == NONE) return mem_strdup(from);
    if (o->shape == FLAT) {
        int32_t *ids = mem_array(MAX(n, 1), sizeof *ids);
        if (ids && n) memcpy(ids, from, n * sizeof *ids);
        return ids;
    }
    if (o->shape == STRINGS) {
        char *const *text = from;
        char **s = mem_array(MAX(n, 1), sizeof *s);
        bool all = s != NULL;
        for (uint32_t i = 0; all && i < n; i++)
            all = (s[i] = mem_strdup(text[i])) != NULL;
        if (!all) strings_drop(s, n);
        return all ? s : NULL;
    }
    const kvik_bias *bias = from;
    kvik_bias *b = mem_array(MAX(n, 1), sizeof *b);
    bool all = b != NULL;
    for (uint32_t i = 0; all && i < n; i++) {
        b[i] = bias[i];
        all = (b[i].ids = mem_array(MAX(b[i].n, 1), sizeof *b[i].ids)) != NULL;
        if (all && b[i].n) memcpy(b[i].ids, bias[i].ids, b[i].n * sizeof *b[i].ids);
    }
    if (!all) biases_drop(b, n);
    return all ? b : NULL;
}

int gen_copy(const kvik_generation *from, kvik_generation *to)
{
    kvik_generation source = *from;
    *to = *from;
    for (size_t i = 0; i < countof(owned); i++)
        *pointer(to, &owned[i]) = NULL;
    for (size_t i = 0; i < countof(owned); i++) {
        void *p = *pointer(&source, &owned[i]);
        const uint32_t *n = count_of(&source, &owned[i]);
        if (!p || (*pointer(to, &owned[i]) = copy_value(p, &owned[i], n ? *n : 0))) continue;
        gen_done(to);
        return ERR_NOMEM;
    }
    return 0;
}

void settings_drop_others(kvik_generation *g, const kvik_generation *keep)
{
    kvik_generation other = *keep;
    for (size_t i = 0; i < countof(owned); i++)
        if (*pointer(g, &owned[i]) != *pointer(&other, &owned[i])) drop_value(g, &owned[i]);
}

void settings_replace(struct generation_change *c, size_t offset, void *value, uint32_t n)
{
    kvik_generation from = *c->from;
    for (size_t i = 0; i < countof(owned); i++) {
        const struct owned *o = &owned[i];
        if (o->at != offset) continue;
        if (*pointer(&c->to, o) != *pointer(&from, o)) drop_value(&c->to, o);
        *pointer(&c->to, o) = value;
        if (o->count != NONE) *count_of(&c->to, o) = n;
    }
}

enum { MOST = 1 << 20 }; /* entries of a list; no vocabulary has as many tokens */

/* Reads one token id or a list of them.  less: -1 is accepted and left out, because people write -1 for "none". */
static int read_ids(const struct generation_change *c, const kvik_option *o, const json_t *v,
                    bool less, int32_t **out, uint32_t *n_out)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    uint32_t kept = 0;
    if (n > MOST)
        return ERR(LIMIT, "%s: %s has %zu ids, the limit is %d", c->what, o->name, n, MOST);
    int32_t *id = mem_array(MAX(n, 1), sizeof *id);
    if (!id) return ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const json_t *e = json_is_array(v) ? json_array_get(v, i) : v;
        json_int_t k = json_integer_value(e);
        if (!json_is_integer(e) || k < (less ? -1 : 0) || k > INT32_MAX) {
            mem_free(id);
            return settings_bad(c, o, v, "a token id or a list of token ids");
        }
        if (k >= 0) id[kept++] = (int32_t)k;
    }
    *out = id;
    *n_out = kept;
    return 0;
}

int settings_take_ids(struct generation_change *c, const kvik_option *o, const json_t *v,
                      size_t offset)
{
    int32_t *id, *to = (int32_t *)((char *)&c->to + offset);
    uint32_t n, *count = to == c->to.eos_token_id ? &c->to.n_eos : &c->to.n_forced_eos;
    TRY(read_ids(c, o, v, true, &id, &n));
    if (n > KVIK_MAX_EOS) {
        mem_free(id);
        return ERR(LIMIT, "%s: %s has %u ids, the limit is %d", c->what, o->name, n, KVIK_MAX_EOS);
    }
    memset(to, 0, KVIK_MAX_EOS * sizeof *to);
    memcpy(to, id, n * sizeof *id);
    mem_free(id);
    *count = n;
    return 0;
}

/* Returns the only row of a batch of one row; else v itself. */
static const json_t *only_row(const json_t *v)
{
    const json_t *row = json_array_size(v) == 1 ? json_array_get(v, 0) : NULL;
    return json_is_array(row) ? row : v;
}

int settings_take_id_list(struct generation_change *c, const kvik_option *o, const json_t *v,
                          size_t offset)
{
    int32_t *id;
    uint32_t n;
    bool negative = offset == AT(negative_prompt_ids);
    TRY(read_ids(c, o, negative ? only_row(v) : v, !negative, &id, &n));
    c->negative |= negative;
    if (!n) {
        mem_free(id);
        id = NULL;
    }
    settings_replace(c, offset, id, n);
    return 0;
}

int settings_take_mask(struct generation_change *c, const kvik_option *o, const json_t *v)
{
    const json_t *row = only_row(v), *e;
    size_t i;
    if (!json_is_array(row)) return settings_bad(c, o, v, "a list of zeros and ones");
    json_array_foreach(row, i, e)
    {
        json_int_t k = json_integer_value(e);
        if (!json_is_integer(e) || k < 0 || k > 1)
            return settings_bad(c, o, v, "a list of zeros and ones");
    }
    c->mask = row;
    return 0;
}

int settings_apply_mask(struct generation_change *c)
{
    uint32_t n = 0, all = c->to.n_negative_prompt_ids;
    if (!c->mask) return 0;
    if (!c->negative)
        return ERR(ARG, "%s: negative_prompt_attention_mask needs negative_prompt_ids", c->what);
    if (json_array_size(c->mask) != all)
        return ERR(ARG, "%s: negative_prompt_attention_mask has %zu numbers for %u tokens", c->what,
                   json_array_size(c->mask), all);
    for (uint32_t i = 0; i < all; i++)
        if (json_integer_value(json_array_get(c->mask, i)))
            c->to.negative_prompt_ids[n++] = c->to.negative_prompt_ids[i];
    if (all && !n) return ERR(ARG, "%s: negative_prompt_attention_mask hides every token", c->what);
    c->to.n_negative_prompt_ids = n;
    return 0;
}

struct bias_ref {
    kvik_bias *b; /* in the list */
};

static int by_ids(const void *a, const void *b)
{
    const kvik_bias *x = ((const struct bias_ref *)a)->b, *y = ((const struct bias_ref *)b)->b;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return memcmp(x->ids, y->ids, x->n * sizeof *x->ids);
}

static int by_ids_and_place(const void *a, const void *b)
{
    const kvik_bias *x = ((const struct bias_ref *)a)->b, *y = ((const struct bias_ref *)b)->b;
    int order = by_ids(a, b);
    return order ? order : x < y ? -1 : x > y;
}

/* Removes the entries of a list whose sequence occurs earlier.  The first entry of a sequence keeps its place and
 * gets the last bias. */
static int drop_twice(kvik_bias *list, uint32_t *n)
{
    uint32_t kept = 0;
    struct bias_ref *at = mem_array(*n, sizeof *at);
    if (!at) return ERR_NOMEM;
    for (uint32_t i = 0; i < *n; i++)
        at[i].b = &list[i];
    qsort(at, *n, sizeof *at, by_ids_and_place);
    for (uint32_t i = 0, first = 0; i < *n; i++) {
        if (i == first || by_ids(&at[first], &at[i]) != 0) {
            first = i;
            continue;
        }
        at[first].b->bias = at[i].b->bias;
        at[i].b->n = 0; /* marks the entry: no real sequence is empty */
    }
    for (uint32_t i = 0; i < *n; i++) {
        if (list[i].n)
            list[kept++] = list[i];
        else
            mem_free(list[i].ids);
    }
    *n = kept;
    mem_free(at);
    return 0;
}

static int bias_ids(const struct generation_change *c, const kvik_option *o, const json_t *v,
                    const json_t *ids, const char *must, kvik_bias *out)
{
    if (!json_is_array(ids) || !json_array_size(ids)) return settings_bad(c, o, v, must);
    return read_ids(c, o, ids, false, &out->ids, &out->n);
}

int settings_take_lists(struct generation_change *c, const kvik_option *o, const json_t *v,
                        size_t offset)
{
    static const char must[] = "a list of lists of token ids, none empty, as [[5], [7, 8]]";
    size_t n = json_array_size(v);
    int e = 0;
    if (!json_is_array(v)) return settings_bad(c, o, v, must);
    if (n > MOST)
        return ERR(LIMIT, "%s: %s has %zu entries, the limit is %d", c->what, o->name, n, MOST);
    kvik_bias *list = n ? mem_array(n, sizeof *list) : NULL;
    if (n && !list) return ERR_NOMEM;
    for (size_t i = 0; e >= 0 && i < n; i++)
        e = bias_ids(c, o, v, json_array_get(v, i), must, &list[i]);
    if (e < 0) {
        biases_drop(list, (uint32_t)n);
        return e;
    }
    settings_replace(c, offset, list, (uint32_t)n);
    return 0;
}

/* Parses a key such as "(7, 8)", "[7, 8]" or "7,8" to a JSON list (json_decref). */
static int key_ids(const char *key, json_t **out)
{
    struct buf text;
    size_t n = strlen(key), last = n ? n - 1 : 0;
    bool wrapped =
        n > 1 && ((key[0] == '(' && key[last] == ')') || (key[0] == '[' && key[last] == ']'));
    size_t from = wrapped, to = n - wrapped;
    while (to > from && (key[to - 1] == ' ' || key[to - 1] == ','))
        to--; /* a tuple with one element is written "(7,)" */
    buf_init(&text, n + 3);
    int e = buf_putc(&text, '[');
    if (e >= 0) e = buf_append(&text, key + from, to - from);
    if (e >= 0) e = buf_putc(&text, ']');
    if (e >= 0) e = json_parse(text.data, text.len, "key", out);
    buf_done(&text);
    return e;
}

static int read_bias(const struct generation_change *c, const kvik_option *o, const json_t *v,
                     const json_t *ids, const json_t *bias, kvik_bias *out)
{
    static const char must[] =
        "a list of token sequences with a number each, as [[[5], -2.0], [[7, 8], 1.5]]";
    out->bias = json_number_value(bias);
    if (!json_is_number(bias)) return settings_bad(c, o, v, must);
    return bias_ids(c, o, v, ids, must, out);
}

int settings_take_biases(struct generation_change *c, const kvik_option *o, const json_t *v,
                         size_t offset)
{
    bool object = json_is_object(v);
    size_t n = object ? json_object_size(v) : json_array_size(v);
    uint32_t used = 0;
    int e = 0;
    if (n > MOST)
        return ERR(LIMIT, "%s: %s has %zu entries, the limit is %d", c->what, o->name, n, MOST);
    if (!object && !json_is_array(v)) return read_bias(c, o, v, NULL, NULL, &(kvik_bias){0});
    kvik_bias *list = n ? mem_array(n, sizeof *list) : NULL;
    if (n && !list) return ERR_NOMEM;
    void *at = object ? json_object_iter((json_t *)(uintptr_t)v) : NULL;
    for (size_t i = 0; e >= 0 && i < n; i++) {
        kvik_bias b = {0};
        json_t *ids = NULL;
        if (object) {
            if (key_ids(json_object_iter_key(at), &ids) == ERR_NOMEM) e = ERR_NOMEM;
            if (e >= 0) e = read_bias(c, o, v, ids, json_object_iter_value(at), &b);
            json_decref(ids);
            at = json_object_iter_next((json_t *)(uintptr_t)v, at);
        } else {
            const json_t *pair = json_array_get(v, i);
            e = read_bias(c, o, v, json_array_get(pair, 0),
                          json_array_size(pair) == 2 ? json_array_get(pair, 1) : NULL, &b);
        }
        if (e >= 0) list[used++] = b;
    }
    if (e >= 0 && used) e = drop_twice(list, &used);
    if (e < 0) {
        biases_drop(list, used);
        return e;
    }
    settings_replace(c, offset, list, used);
    return 0;
}

int settings_take_strings(struct generation_change *c, const kvik_option *o, const json_t *v,
                          size_t offset)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (n > 256) return ERR(LIMIT, "%s: %s has %zu texts, the limit is 256", c->what, o->name, n);
    char **s = n ? mem_array(n, sizeof *s) : NULL;
    if (n && !s) return ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const json_t *e = json_is_array(v) ? json_array_get(v, i) : v;
        size_t len = json_string_length(e);
        int err = 0;
        if (!json_is_string(e))
            err = settings_bad(c, o, v, "a text or a list of texts");
        else if (!len)
            err = ERR(ARG, "%s: %s has an empty text, which would stop at once", c->what, o->name);
        else if (strlen(json_string_value(e)) != len)
            err = ERR(ARG, "%s: %s has a text with a zero byte", c->what, o->name);
        else if (!(s[i] = mem_strndup(json_string_value(e), len)))
            err = ERR_NOMEM;
        if (err) {
            strings_drop(s, (uint32_t)n);
            return err;
        }
    }
    settings_replace(c, offset, s, (uint32_t)n);
    return 0;
}

int settings_take_object(struct generation_change *c, const kvik_option *o, const json_t *v,
                         size_t offset)
{
    char *text;
    if (!json_is_object(v)) return settings_bad(c, o, v, "a JSON object");
    TRY(json_text(v, &text));
    settings_replace(c, offset, text, 0);
    return 0;
}

int settings_take_schema(struct generation_change *c, const kvik_option *o, const json_t *v,
                         size_t offset)
{
    struct schema *schema;
    char *text = NULL;
    if (!json_is_object(v) && !json_is_boolean(v) && !json_is_string(v))
        return settings_bad(c, o, v, "a JSON schema, or \"json_object\"");
    if (!json_is_string(v))
        TRY(json_text(v, &text));
    else if (!(text = mem_strdup(json_string_value(v))))
        return ERR_NOMEM;
    int e = schema_of(text, o->name, &schema); /* refuses a wrong schema before a model is loaded */
    if (e < 0) {
        mem_free(text);
        return e;
    }
    schema_drop(schema);
    settings_replace(c, offset, text, 0);
    return 0;
}
