/* cmd_models.c - kvik models: lists the models in the local caches, that of the Hugging Face hub and kvik's own.
 * Weights are not loaded.  A file that cannot be read is listed with the reason. */
#include "cli/cli.h"
#include "cli/screen.h"

#include <string.h>

struct options {
    struct common common;
    bool names;
};

static const struct arg_option table[] = {
    {"names", ARG_FLAG, offsetof(struct options, names), NULL, NULL,
     "print the names alone, without opening the files"},
    {"json", ARG_FLAG, offsetof(struct options, common.json), NULL, NULL, "print one JSON list"},
};

static const char *text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "-";
}

/* Returns the type of the weights: the file's name for its mix of types, or else the type that takes most bytes. */
static json_t *quantization(const json_t *about)
{
    json_t *v = json_object_get(about, "file_type");
    if (!json_is_string(v)) v = json_object_get(about, "weights");
    return json_is_string(v) ? json_incref(v) : json_null();
}

/* Adds a model to the list.  name: the word for MODEL on kvik's command line. */
static int add_model(json_t *list, const char *cache, const char *name, const char *path)
{
    json_t *o = json_pack("{s:s, s:o, s:o}", "cache", cache, "name", say_json(name, strlen(name)),
                          "path", say_json(path, strlen(path)));
    return json_array_append_new(list, o) < 0 ? ERR(NOMEM, "out of memory") : 0;
}

/* Adds properties from the files to an entry of the list, or the reason why they cannot be read. */
static void describe(json_t *o)
{
    char *said = NULL;
    json_t *about = NULL;
    int e = kvik_model_peek(text(o, "path"), &said);
    if (e >= 0) e = json_parse(said, strlen(said), "description", &about);
    kvik_free(said);
    if (e < 0) {
        const char *why = kvik_last_error();
        json_object_set_new(o, "error", say_json(why, strlen(why)));
        return;
    }
    json_object_set(o, "bytes", json_object_get(about, "bytes"));
    json_object_set(o, "file_bytes", json_object_get(about, "file_bytes"));
    json_object_set(o, "architecture", json_object_get(about, "architecture"));
    json_object_set(o, "supported", json_object_get(about, "supported"));
    json_object_set_new(o, "quantization", quantization(about));
    if (!json_integer_value(json_object_get(about, "bytes")))
        json_object_set_new(o, "error", json_string("no weights here"));
    json_decref(about);
}

/* Adds the models of a directory: one in the layout of Hugging Face, or every .gguf file.  repo: name of the
 * repository; NULL in kvik's own cache, where the names of files are enough. */
static int add_folder(json_t *list, const char *cache, const char *repo, const char *dir)
{
    struct folder f;
    char path[HUB_PATH], name[HUB_PATH];
    if (repo && locate_is_weights(dir)) return add_model(list, cache, repo, dir);
    TRY(hub_ggufs(dir, repo != NULL, &f));
    int e = repo && !f.n ? add_model(list, cache, repo, dir) : 0;
    for (size_t i = 0; e >= 0 && i < f.n; i++) {
        if (repo && f.n > 1)
            snprintf(name, sizeof name, "%.*s:%s%s", (int)strcspn(repo, "@"), repo, f.name[i],
                     repo + strcspn(repo, "@"));
        else
            snprintf(name, sizeof name, "%s", repo ? repo : f.name[i]);
        if (snprintf(path, sizeof path, "%s/%s", dir, f.name[i]) < (int)sizeof path)
            e = add_model(list, cache, name, path);
    }
    folder_done(&f);
    return e;
}

/* Adds the snapshots of a repository: that of main by the name of the repository, others with their revision. */
static int add_repo(json_t *list, const char *folder, const char *repo)
{
    struct folder f;
    char first[HUB_PATH] = "", at[HUB_PATH], name[512];
    size_t before = json_array_size(list);
    int e = 0;
    if (hub_snapshot(folder, "", first)) e = add_folder(list, "hub", repo, first);
    if (e < 0 || snprintf(at, sizeof at, "%s/snapshots", folder) >= HUB_PATH ||
        folder_list(at, "", &f) < 0)
        return e;
    for (size_t i = 0; e >= 0 && i < f.n; i++) {
        if (snprintf(at, sizeof at, "%s/snapshots/%s", folder, f.name[i]) >= HUB_PATH ||
            !hub_is_commit(f.name[i]) || !strcmp(at, first))
            continue;
        snprintf(name, sizeof name, "%.400s@%.12s", repo, f.name[i]);
        e = add_folder(list, "hub", name, at);
    }
    folder_done(&f);
    for (size_t i = before; i < json_array_size(list);
         i++) { /* the directory of a snapshot has the commit as its name */
        json_t *o = json_array_get(list, i);
        const char *commit = strstr(text(o, "path") + strlen(folder), "/snapshots/");
        if (commit)
            json_object_set_new(o, "commit", say_json(commit + 11, strcspn(commit + 11, "/")));
    }
    return e;
}

/* Adds the repositories of the hub cache: "models--org--name" is "org/name". */
static int add_hub(json_t *list, const char *hub)
{
    static const char prefix[] = "models--";
    struct folder f;
    int e = folder_list(hub, "", &f);
    for (size_t i = 0; e >= 0 && i < f.n; i++) {
        char folder[HUB_PATH], repo[512];
        const char *rest = f.name[i] + sizeof prefix - 1, *cut;
        if (strncmp(f.name[i], prefix, sizeof prefix - 1)) continue;
        cut = strstr(rest, "--");
        snprintf(repo, sizeof repo, "%.*s%s%s", (int)(cut ? cut - rest : 255), rest, cut ? "/" : "",
                 cut ? cut + 2 : "");
        if (!hub_is_repo(repo, strlen(repo))) continue; /* nothing could be called by that name */
        if (snprintf(folder, sizeof folder, "%s/%s", hub, f.name[i]) < (int)sizeof folder)
            e = add_repo(list, folder, repo);
    }
    folder_done(&f);
    return e;
}

static void put_padded(const char *s, size_t width)
{
    size_t n = strlen(s);
    for (; *s; s++)
        putchar(screen_one_line(*s));
    for (; n < width + 2; n++)
        putchar(' ');
}

static void put_table(const json_t *list)
{
    static const char *const key[] = {"name", "architecture", "quantization"};
    size_t width[3] = {5, 12, 7}, i;
    char size[16];
    json_t *o;
    json_array_foreach(list, i, o) for (size_t k = 0; k < 3; k++) width[k] =
        MAX(width[k], MIN(strlen(text(o, key[k])), 60));
    put_padded("MODEL", width[0]);
    fputs("      SIZE  ", stdout);
    put_padded("ARCHITECTURE", width[1]);
    put_padded("WEIGHTS", width[2]);
    fputs("COMMIT    ", stdout);
    puts("PATH");
    json_array_foreach(list, i, o)
    {
        uint64_t bytes = (uint64_t)json_integer_value(json_object_get(o, "file_bytes"));
        put_padded(text(o, "name"), width[0]);
        printf("%10s  ", bytes ? bytes_text(bytes, size) : "-");
        put_padded(text(o, "architecture"), width[1]);
        put_padded(text(o, "quantization"), width[2]);
        printf("%-8.8s  ", text(o, "commit"));
        put_padded(text(o, "path"), 0);
        if (json_object_get(o, "error"))
            printf("(%s)", text(o, "error"));
        else if (json_is_false(json_object_get(o, "supported")))
            fputs("(this version does not run the architecture)", stdout);
        putchar('\n');
    }
}

/* Prints the names, one a line.  A name with control characters is left out: it could not be typed. */
static void put_names(const json_t *list)
{
    size_t i;
    json_t *o;
    json_array_foreach(list, i, o)
    {
        const char *s = text(o, "name"), *p = s;
        while (*p && screen_one_line(*p) == *p)
            p++;
        if (!*p) puts(s);
    }
}

static int list_all(const struct options *how)
{
    char hub[HUB_PATH] = "", own[HUB_PATH] = "";
    json_t *list = json_array(), *o;
    size_t i;
    int e = list ? 0 : ERR(NOMEM, "out of memory");
    if (e >= 0 && hub_dir(hub)) e = add_hub(list, hub);
    if (e >= 0 && hub_own_dir(own)) e = add_folder(list, "kvik", NULL, own);
    if (e < 0) {
        json_decref(list);
        return say_error(e);
    }
    json_array_foreach(list, i, o) if (!how->names) describe(o);
    if (how->names)
        put_names(list);
    else if (how->common.json)
        return say_json_line(list);
    else if (json_array_size(list))
        put_table(list);
    else
        fprintf(stderr, "no models in %s or %s; kvik pull ORG/NAME downloads one into the first\n",
                hub, own);
    json_decref(list);
    return 0;
}

static int run_models(const struct command *self, int argc, char **argv)
{
    struct options o = {0};
    struct args a;
    int status = args_parse(self, argc, argv, &o, &a);
    if (status == 0 && a.n)
        status = say_usage("kvik models takes no arguments; kvik inspect MODEL shows one");
    if (status == 0) status = list_all(&o);
    args_done(&a);
    return MAX(status, 0);
}

const struct command command_models = {
    .name = "models",
    .usage = "[--json|--names]",
    .summary = "list the models in the local caches",
    .about =
        "Lists the models in the cache of the Hugging Face hub ($HF_HUB_CACHE, $HF_HOME/hub or ~/.cache/huggingface/hub)\n"
        "and in kvik's own ($XDG_CACHE_HOME/kvik or ~/.cache/kvik). Every command takes the names of the first column as MODEL.",
    .run = run_models,
    .option = table,
    .n_options = countof(table),
};
