/* inspect_cache.c - prints the tables of kvik inspect MODEL --caches and kvik inspect --architectures. */
#include "cli/inspect.h"

#include <string.h>

static bool yes(const json_t *o, const char *key)
{
    return json_is_true(json_object_get(o, key));
}

static const char *mark(bool b)
{
    return b ? "yes" : "no";
}

static uint64_t bytes(const json_t *o, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(o, key));
}

static void put_strategy(const json_t *o)
{
    char token[16], most[16], disk[16];
    const char *name = json_string_value(json_object_get(o, "cache_implementation")),
               *config = json_string_value(json_object_get(o, "cache_config"));
    printf("  %-24s ", name ? name : "?");
    if (!yes(o, "available")) {
        const char *why = json_string_value(json_object_get(o, "reason"));
        printf("not with this model: %s\n", why ? why : "?");
        return;
    }
    printf("%-10s %-8s %-8s %-9s %-8s %-8s %10s %10s %10s%s%s\n", mark(yes(o, "memory_efficient")),
           mark(yes(o, "sliding_layers")), mark(yes(o, "offloading")),
           mark(yes(o, "compiled_decode")), mark(yes(o, "initialization_needed")),
           mark(yes(o, "long_context")),
           bytes(o, "bytes_per_token") ? bytes_text(bytes(o, "bytes_per_token"), token) : "-",
           bytes_text(bytes(o, "max_bytes"), most),
           bytes(o, "max_disk_bytes") ? bytes_text(bytes(o, "max_disk_bytes"), disk) : "-",
           config ? "  with " : "", config ? config : "");
}

static void put_caches(const json_t *o)
{
    json_t *c;
    size_t i;
    char dense[16];
    printf(
        "cache strategies at the whole context of %llu tokens; the KV rows are %s; the whole context takes %s\n\n",
        (unsigned long long)bytes(o, "context"), json_string_value(json_object_get(o, "rows")),
        bytes_text(bytes(o, "dense_bytes"), dense));
    printf("  %-24s %-10s %-8s %-8s %-9s %-8s %-8s %10s %10s %10s\n", "", "memory", "sliding",
           "can be", "compiled", "needs", "for long", "bytes", "memory", "disk");
    printf("  %-24s %-10s %-8s %-8s %-9s %-8s %-8s %10s %10s %10s\n", "cache_implementation",
           "efficient", "layers", "offload.", "decode", "init.", "texts", "a token", "at most",
           "at most");
    json_array_foreach(json_object_get(o, "caches"), i, c) put_strategy(c);
}

static int print_caches(int e, char *text, bool json, void (*put)(const json_t *))
{
    json_t *o;
    if (e < 0) return say_error(e);
    if (json) {
        puts(text);
    } else if ((e = json_parse(text, strlen(text), "description", &o)) >= 0) {
        put(o);
        json_decref(o);
    }
    kvik_free(text);
    return e < 0 ? say_error(e) : 0;
}

int inspect_caches(const kvik_model *m, bool json)
{
    char *text = NULL;
    int e = kvik_model_describe_caches(m, &text);
    return print_caches(e, text, json, put_caches);
}

static void put_architectures(const json_t *o)
{
    json_t *names, *name;
    size_t i, k;
    json_array_foreach(o, i, names)
    {
        json_array_foreach(names, k, name) printf("%s%s", k ? " " : "", json_string_value(name));
        putchar('\n');
    }
}

int inspect_architectures(bool json)
{
    char *text = NULL;
    int e = kvik_architectures(&text);
    return print_caches(e, text, json, put_architectures);
}
