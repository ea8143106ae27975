/* bench_host.c - names what was measured: the model without its path, the processor, its threads, and the date. */
#include "base/descriptor.h"
#include "base/thread.h"
#include "cli/bench.h"

#include <string.h>
#include <sys/utsname.h>
#include <time.h>

json_t *bench_describe(const kvik_model *m)
{
    char *s;
    json_t *o = NULL;
    if (kvik_model_describe(m, &s) < 0) return NULL;
    (void)json_parse(s, strlen(s), "model description", &o);
    kvik_free(s);
    return o;
}

uint64_t bench_weight_bytes(const kvik_model *m)
{
    json_t *o = bench_describe(m), *t;
    size_t i;
    uint64_t sum = 0;
    bool tied = json_is_true(json_object_get(o, "tied_head"));
    json_array_foreach(json_object_get(o, "tensors"), i, t)
    {
        const char *name = json_string_value(json_object_get(t, "name"));
        bool embed = name && (strstr(name, "embed_tokens") || strstr(name, "token_embd"));
        if (tied || !embed) sum += (uint64_t)json_integer_value(json_object_get(t, "bytes"));
    }
    json_decref(o);
    return sum;
}

/* Copies the line "model name : X" of /proc/cpuinfo; without one, the kind of machine. */
static void name_cpu(char *out, size_t room)
{
    char line[256];
    struct utsname u;
    FILE *f = fd_stream("/proc/cpuinfo");
    snprintf(out, room, "%s", uname(&u) == 0 ? u.machine : "unknown processor");
    while (f && fgets(line, sizeof line, f)) {
        char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !value) continue;
        value += 1 + strspn(value + 1, " \t");
        value[strcspn(value, "\n")] = 0;
        if (*value) snprintf(out, room, "%s", value);
        break;
    }
    if (f) fclose(f);
}

/* Names the model by the last part of its path, without ".gguf".  In the hub's cache that part is a commit; then the
 * name in the model's own file is used. */
static void name_model(const kvik_model *m, const char *word, char *out, size_t room)
{
    json_t *o = bench_describe(m);
    const char *own = json_string_value(json_object_get(o, "name"));
    size_t n = strlen(word);
    while (n > 1 && word[n - 1] == '/')
        n--;
    const char *from = word;
    for (size_t i = 0; i + 1 < n; i++)
        if (word[i] == '/') from = word + i + 1;
    n -= (size_t)(from - word);
    bool commit = n == 40 && strspn(from, "0123456789abcdef") >= 40;
    if (n > 5 && !memcmp(from + n - 5, ".gguf", 5)) n -= 5;
    if (own && *own && commit)
        snprintf(out, room, "%s", own);
    else
        snprintf(out, room, "%.*s", (int)MIN(n, room), from);
    json_decref(o);
}

void bench_machine_name(const struct engine *s, const char *word, struct bench_machine *out)
{
    time_t t = time(NULL);
    struct tm day;
    *out = (struct bench_machine){.threads = s->common.threads};
    name_model(s->model, word, out->model, sizeof out->model);
    name_cpu(out->cpu, sizeof out->cpu);
    if (!out->threads) out->threads = cpu_count();
    if (gmtime_r(&t, &day)) strftime(out->date, sizeof out->date, "%Y-%m-%d", &day);
}
