/* schema.c - structured output over a vocabulary: the time of the trie, of a compilation, and of each token (the mask, and the
 * step behind the token), as a random valid text goes on.
 *
 *     bench_schema TOKENIZER            times
 *     bench_schema TOKENIZER judge      reads lines {"schema": ..., "texts": [...]}, prints which texts are accepted, or the error
 *     bench_schema TOKENIZER masks      reads lines {"schema": ..., "ids": [...]}, prints the allowed ids before each id
 *
 * TOKENIZER: a directory with tokenizer.json, or a .gguf file. */
#include "schema/schema.h"
#include "base/buf.h"
#include "base/json.h"
#include "fmt/fmt.h"
#include "generate/chain.h"
#include "tok/tok.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 400, WALKS = 20 };

static const struct {
    const char *name, *schema;
} cases[] = {
    {"any object", "\"json_object\""},
    {"any value", "true"},
    {"record",
     "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":80},\"age\":{\"type\":\"integer\",\"minimum\":0,"
     "\"maximum\":150},\"email\":{\"type\":\"string\"},\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\",\"c\"]}},"
     "\"address\":{\"type\":\"object\",\"properties\":{\"street\":{\"type\":\"string\"},\"zip\":{\"type\":\"string\","
     "\"pattern\":\"^[0-9]{5}$\"}},\"required\":[\"street\",\"zip\"],\"additionalProperties\":false}},"
     "\"required\":[\"name\",\"age\",\"address\"],\"additionalProperties\":false}"},
    {"list of records",
     "{\"type\":\"array\",\"minItems\":3,\"items\":{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"integer\"},\"text\":{\"type\":"
     "\"string\",\"minLength\":5,\"maxLength\":200},\"score\":{\"type\":\"number\",\"minimum\":0,\"maximum\":1}},"
     "\"required\":[\"id\",\"text\"],\"additionalProperties\":false}}"},
    {"alternatives",
     "{\"type\":\"array\",\"items\":{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"a\"},\"x\":{\"type\":\"string\"}},"
     "\"required\":[\"kind\",\"x\"]},{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"b\"},\"y\":{\"type\":\"number\"}},"
     "\"required\":[\"kind\",\"y\"]},{\"type\":\"string\",\"pattern\":\"^[a-z]+@[a-z]+[.]com$\"}]},\"minItems\":2}"},
};

static void check(int e)
{
    if (e >= 0) return;
    fprintf(stderr, "bench_schema: %s\n", err_last());
    exit(1);
}

static struct tok *open_tok(const char *path)
{
    struct tok *tok;
    struct gguf *g;
    size_t n = strlen(path);
    if (n > 5 && !strcmp(path + n - 5, ".gguf")) {
        check(gguf_open(path, &g));
        check(tok_open_gguf(g, &tok));
        gguf_close(g);
    } else {
        check(tok_open_dir(path, &tok));
    }
    return tok;
}

static struct schema *compile(const json_t *json)
{
    struct schema *s;
    int e = json_is_string(json) ? schema_compile_text(json_string_value(json), "json_schema", &s)
                                 : schema_compile(json, "json_schema", &s);
    return e < 0 ? NULL : s;
}

static uint32_t draw(uint32_t *seed, uint32_t n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(*seed >> 4) * n >> 28);
}

static int32_t pick(const uint64_t *bits, uint32_t n, uint32_t *seed)
{
    uint32_t at = draw(seed, n);
    for (uint32_t i = 0; i < n; i++, at = at + 1 < n ? at + 1 : 0)
        if (bits[at / 64] >> (at % 64) & 1) return (int32_t)at;
    return -1;
}

static int by_time(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void measure(const struct lexicon *l, uint32_t vocab, const char *name, const char *schema)
{
    json_t *json = NULL;
    struct matcher *m;
    uint32_t seed = 3, n = 0;
    double *time = calloc((size_t)STEPS * WALKS, sizeof *time), sum = 0;
    check(json_parse(schema, strlen(schema), "schema", &json));
    double t0 = now_seconds();
    struct schema *s = compile(json);
    double compiled = now_seconds() - t0;
    if (!s) check(-1);
    check(matcher_new(s, l, &m));
    for (int w = 0; w < WALKS; w++) {
        uint32_t state = matcher_start(m);
        const uint64_t *bits;
        for (int k = 0; k < STEPS; k++) {
            double before = now_seconds();
            check(matcher_mask(m, state, &bits));
            double masked = now_seconds() - before;
            int32_t id = pick(bits, vocab, &seed);
            if (id < 0) break;
            before = now_seconds();
            check(matcher_token(m, state, id, &state));
            time[n++] = masked + now_seconds() - before;
        }
    }
    for (uint32_t i = 0; i < n; i++)
        sum += time[i];
    qsort(time, n, sizeof *time, by_time);
    printf(
        "%-18s compile %7.2f ms  token: mean %7.1f us  median %7.1f  p99 %7.1f  max %7.1f  (%u tokens)\n",
        name, compiled * 1e3, sum / n * 1e6, time[n / 2] * 1e6, time[n * 99 / 100] * 1e6,
        time[n - 1] * 1e6, n);
    matcher_drop(m);
    schema_drop(s);
    json_decref(json);
    free(time);
}

static void print_accepts(struct matcher *m, const json_t *texts)
{
    size_t i;
    const json_t *v;
    printf("{\"accepts\": [");
    json_array_foreach(texts, i, v)
    {
        uint32_t state;
        check(
            matcher_text(m, matcher_start(m), json_string_value(v), json_string_length(v), &state));
        printf("%s%s", i ? ", " : "", matcher_accepts(m, state) ? "true" : "false");
    }
    printf("]}\n");
}

static void print_masks(struct matcher *m, uint32_t vocab, const json_t *ids)
{
    uint32_t state = matcher_start(m);
    const uint64_t *bits;
    printf("{\"masks\": [");
    for (size_t i = 0; i <= json_array_size(ids); i++) {
        bool first = true;
        check(matcher_mask(m, state, &bits));
        printf("%s[", i ? ", " : "");
        for (uint32_t k = 0; k < vocab; k++)
            if (bits[k / 64] >> (k % 64) & 1) {
                printf("%s%u", first ? "" : ",", k);
                first = false;
            }
        printf("]");
        if (i < json_array_size(ids))
            check(matcher_token(m, state, (int32_t)json_integer_value(json_array_get(ids, i)),
                                &state));
    }
    printf("], \"whole\": %s}\n", matcher_accepts(m, state) ? "true" : "false");
}

static void serve(const struct lexicon *l, uint32_t vocab, bool masks)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        json_t *in = json_loadb(line, (size_t)n, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
        struct schema *s = in ? compile(json_object_get(in, "schema")) : NULL;
        struct matcher *m;
        if (!s) {
            json_t *said = json_string(err_last());
            char *text = json_dumps(said, JSON_ENCODE_ANY);
            printf("{\"error\": %s}\n", in ? text : "\"the line is not JSON\"");
            free(text);
            json_decref(said);
        } else {
            check(matcher_new(s, l, &m));
            if (masks)
                print_masks(m, vocab, json_object_get(in, "ids"));
            else
                print_accepts(m, json_object_get(in, "texts"));
            matcher_drop(m);
            schema_drop(s);
        }
        fflush(stdout);
        json_decref(in);
    }
    free(line);
}

int main(int argc, char **argv)
{
    const struct lexicon *l;
    if (argc < 2) {
        fprintf(stderr, "usage: bench_schema TOKENIZER [judge|masks]\n");
        return 2;
    }
    struct tok *tok = open_tok(argv[1]);
    double t0 = now_seconds();
    check(gen_lexicon(tok, &l));
    if (argc > 2) {
        serve(l, tok_size(tok), !strcmp(argv[2], "masks"));
    } else {
        printf("vocabulary %u, trie %.1f ms\n", tok_size(tok), (now_seconds() - t0) * 1e3);
        for (size_t i = 0; i < countof(cases); i++)
            measure(l, tok_size(tok), cases[i].name, cases[i].schema);
    }
    tok_close(tok);
    return 0;
}
