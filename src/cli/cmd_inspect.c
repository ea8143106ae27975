/* cmd_inspect.c - kvik inspect: prints the library's description of a model.  This file knows no architecture.  A key that
 * the library adds later appears in --json at once, and here under its own name. */
#include "cli/inspect.h"
#include "cli/screen.h"

#include <string.h>

struct options {
    struct common common;
    bool caches, architectures;
};

static const struct arg_option table[] = {
    {"json", ARG_FLAG, offsetof(struct options, common.json), NULL, NULL,
     "print the whole description as JSON"},
    {"caches", ARG_FLAG, offsetof(struct options, caches), NULL, NULL,
     "compare the cache strategies for this model: properties and bytes"},
    {"architectures", ARG_FLAG, offsetof(struct options, architectures), NULL, NULL,
     "list the architectures of this build; takes no MODEL"},
    ARG_QUANTIZE,
    ARG_VERIFY,
};

static void heading(const char *s)
{
    bool bold = say_colour(stdout);
    putchar('\n');
    if (bold) screen_code(stdout, "\033[1m");
    fputs(s, stdout);
    if (bold) screen_code(stdout, "\033[0m");
    putchar('\n');
}

/* Prints a text on one line; at most `max` bytes, cut between characters. */
static void put_short(const char *s, size_t max)
{
    size_t n = strlen(s), cut = MIN(n, max);
    while (cut < n && cut > 0 && ((unsigned char)s[cut] & 0xC0) == 0x80)
        cut--;
    for (size_t i = 0; i < cut; i++)
        putchar(screen_one_line(s[i]));
    if (cut < n) fputs("...", stdout);
}

/* Prints the types of the weights with their shares of the bytes, and the file's name for the mix. */
static void put_weights(const json_t *o)
{
    json_t *types = json_object_get(o, "weight_types"), *v;
    const char *type, *mix = json_string_value(json_object_get(o, "file_type")), *between = "";
    double all = (double)number(o, "bytes");
    printf("  %-18s ", "weights");
    json_object_foreach(types, type, v)
    {
        double share = 100 * (double)json_integer_value(v) / (all > 0 ? all : 1);
        printf("%s%s %.*f%%", between, type, share < 9.95 ? 1 : 0, share);
        between = ", ";
    }
    if (mix) printf("%sfile type %s", *between ? "; " : "", mix);
    putchar('\n');
}

static bool is_head(const char *key)
{
    return !strcmp(key, "attention_heads") || !strcmp(key, "kv_heads") || !strcmp(key, "head_dim");
}

/* Prints scalars and small objects of numbers, one on each line. */
static void put_scalars(const json_t *o)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)o, key, v)
    {
        char size[16];
        if (json_is_null(v) || json_is_array(v) || json_is_object(v) ||
            !strcmp(key, "chat_template") || !strcmp(key, "file_type") || !strcmp(key, "name"))
            continue;
        if (is_head(key) && !json_integer_value(v)) continue; /* the model has no attention */
        if (!strcmp(key, "weights")) {
            put_weights(o);
            continue;
        }
        printf("  %-18s ", strcmp(key, "bytes") ? key : "bytes of weights");
        if (json_is_string(v))
            put_short(json_string_value(v), 200);
        else if (json_is_boolean(v))
            fputs(json_is_true(v) ? "yes" : "no", stdout);
        else if (json_is_real(v))
            printf("%g", json_real_value(v));
        else if (!strcmp(key, "bytes"))
            printf("%s", bytes_text((uint64_t)json_integer_value(v), size));
        else if (!strcmp(key, "parameters"))
            printf("%.1f M", (double)json_integer_value(v) / 1e6);
        else
            printf("%lld", (long long)json_integer_value(v));
        putchar('\n');
    }
}

static bool same_layer(const json_t *a, const json_t *b)
{
    static const char *const key[] = {"kind", "kv_heads", "head_dim", "window", "state_bytes"};
    for (size_t i = 0; i < countof(key); i++)
        if (!json_equal(json_object_get(a, key[i]), json_object_get(b, key[i]))) return false;
    return true;
}

static void put_layer(const char *range, const json_t *l)
{
    char window[32] = "", size[16];
    if (number(l, "window")) snprintf(window, sizeof window, ", window %lld", number(l, "window"));
    if (number(l, "state_bytes"))
        printf("  %-18s %s, %s for a sequence\n", range, text(l, "kind"),
               bytes_text((uint64_t)number(l, "state_bytes"), size));
    else
        printf("  %-18s %s, %lld kv heads of %lld%s\n", range, text(l, "kind"),
               number(l, "kv_heads"), number(l, "head_dim"), window);
}

/* Prints the layers; adjacent layers of the same kind share a line.  A layer of a hybrid model may be in two
 * lines. */
static void put_layers(const json_t *layers)
{
    size_t n = json_array_size(layers);
    if (!n) return;
    heading("layers");
    for (size_t i = 0, j; i < n; i = j) {
        const json_t *l = json_array_get(layers, i);
        long long first = number(l, "layer"), last = first;
        char range[48];
        for (j = i + 1; j < n; j++, last++) {
            const json_t *next = json_array_get(layers, j);
            if (!same_layer(l, next) || number(next, "layer") != last + 1) break;
        }
        snprintf(range, sizeof range, last == first ? "%lld" : "%lld-%lld", first, last);
        put_layer(range, l);
    }
}

static void put_cache(const json_t *o)
{
    const char *key;
    json_t *v;
    size_t i;
    char size[16];
    heading("cache");
    const json_t *most = json_object_get(o, "cache_bytes_at_context");
    json_object_foreach(json_object_get(o, "cache_bytes_per_token"), key, v)
    {
        if (!json_integer_value(v)) { /* the layers have only states, whose values are always f32 */
            printf("  %-18s %s for a text of any length: recurrent states, no KV rows\n", "states",
                   bytes_text((uint64_t)number(most, key), size));
            break;
        }
        printf("  %-18s %lld bytes per token, %s for the whole context\n", key,
               (long long)json_integer_value(v), bytes_text((uint64_t)number(most, key), size));
    }
    const json_t *heard = json_object_get(o, "encoder");
    json_object_foreach(json_object_get(heard, "cache_bytes_per_row"), key, v)
    {
        snprintf(size, sizeof size, "cross %s", key);
        printf("  %-18s %lld bytes per row of the encoder, %lld rows at most\n", size,
               (long long)json_integer_value(v), (long long)number(heard, "rows"));
    }
    printf("  %-18s", "implementations");
    json_array_foreach(json_object_get(o, "cache_implementations"), i, v)
        printf(" %s", json_string_value(v) ? json_string_value(v) : "?");
    putchar('\n');
}

static void put_tokenizer(const json_t *o)
{
    const json_t *t = json_object_get(o, "tokenizer");
    const char *key, *source = json_string_value(json_object_get(o, "chat_template"));
    json_t *v;
    heading("tokenizer");
    if (!json_is_object(t)) {
        puts("  none: prompts are token ids");
    } else {
        put_scalars(t);
        json_object_foreach((json_t *)(uintptr_t)t, key, v)
        {
            if (!json_is_object(v)) continue;
            printf("  %-18s ", key);
            put_short(text(v, "text"), 60);
            printf(" (%lld)\n", number(v, "id"));
        }
    }
    heading("chat template");
    if (!source) {
        puts("  none: texts are completed as they are");
        return;
    }
    printf("  %zu bytes: ", strlen(source));
    put_short(source, 70);
    putchar('\n');
}

static int print(const kvik_model *m, bool json)
{
    char *s;
    json_t *o;
    int e = kvik_model_describe(m, &s);
    if (e < 0) return say_error(e);
    if (json) {
        puts(s);
        kvik_free(s);
        return 0;
    }
    e = json_parse(s, strlen(s), "model description", &o);
    kvik_free(s);
    if (e < 0) return say_error(e);
    if (json_is_string(json_object_get(o, "name"))) {
        printf("  %-18s ", "name");
        put_short(text(o, "name"), 200);
        putchar('\n');
    }
    put_scalars(o);
    if (json_is_object(json_object_get(o, "rope"))) {
        heading("rope");
        put_scalars(json_object_get(o, "rope"));
    }
    if (json_is_object(json_object_get(o, "quantized"))) {
        heading("quantized weights");
        put_scalars(json_object_get(o, "quantized"));
    }
    put_layers(json_object_get(o, "layers"));
    put_cache(o);
    put_tokenizer(o);
    heading("tensors");
    e = inspect_tensors(json_object_get(o, "tensors"));
    json_decref(o);
    return e;
}

static int run_inspect(const struct command *self, int argc, char **argv)
{
    struct options o = {0};
    struct args a;
    kvik_model *m;
    int status = args_parse(self, argc, argv, &o, &a);
    if (status == 0 && o.architectures && (a.n || o.caches))
        status = say_usage("--architectures needs no MODEL and no --caches");
    if (status == 0 && !o.architectures && a.n != 1)
        status = say_usage(a.n ? "kvik inspect takes one MODEL or SESSION"
                               : "kvik inspect needs a MODEL or SESSION");
    if (status == 0 && o.architectures) {
        status = inspect_architectures(o.common.json);
    } else if (status == 0 && inspect_is_session(a.word[0])) {
        status = o.caches ? say_usage("--caches needs a MODEL, this is a saved session")
                          : inspect_session(a.word[0], o.common.json);
    } else if (status == 0) {
        int e =
            engine_model("loading the model", a.word[0], o.common.quantize, o.common.device, &m);
        if (e >= 0 && (e = engine_verify(m, &o.common)) < 0) kvik_model_close(m);
        status = e < 0      ? say_error(e)
                 : o.caches ? inspect_caches(m, o.common.json)
                            : print(m, o.common.json);
        if (e >= 0) kvik_model_close(m);
    }
    args_done(&a);
    return MAX(status, 0);
}

const struct command command_inspect = {
    .name = "inspect",
    .usage = "MODEL [--caches] | SESSION | --architectures",
    .summary = "what a model is and what its cache costs",
    .about =
        "Prints a model's architecture, layers with the kind of their cache, cache bytes per token, tokenizer,\n"
        "chat template and tensors. Reads and checks a whole SESSION, and prints its model, layers and sequences.",
    .run = run_inspect,
    .option = table,
    .n_options = countof(table),
};
