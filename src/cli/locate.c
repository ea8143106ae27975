/* locate.c - finds the model that the user names: a path, a directory with one .gguf file, a file of kvik's own
 * cache, or a repository id of the local hub cache.  For names of other programs it says what to type in kvik. */
#include "base/file.h"
#include "cli/cli.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define TAKES                                                                                      \
    "kvik takes a Hugging Face directory, a .gguf file, or a name of the hub such as ORG/NAME:Q4_K_M"

static int take_path(const char *path, char out[HUB_PATH])
{
    size_t n = strlen(path);
    if (n >= HUB_PATH)
        return ERR(LIMIT, "%.60s...: the path has %zu bytes, the limit is %d", path, n,
                   HUB_PATH - 1);
    memcpy(out, path, n + 1);
    return 0;
}

static int join_path(const char *dir, const char *name, char out[HUB_PATH])
{
    if (snprintf(out, HUB_PATH, "%s/%s", dir, name) < HUB_PATH) return 0;
    return ERR(LIMIT, "%.60s...: the path is longer than %d bytes", dir, HUB_PATH - 1);
}

static bool holds(const char *dir, const char *name)
{
    char path[HUB_PATH];
    return snprintf(path, sizeof path, "%s/%s", dir, name) < HUB_PATH && path_exists(path);
}

bool locate_is_weights(const char *dir)
{
    static const char *const name[] = {"model.safetensors", "model.safetensors.index.json",
                                       "pytorch_model.bin", "pytorch_model.bin.index.json"};
    for (size_t i = 0; i < countof(name); i++)
        if (holds(dir, name[i])) return true;
    return false;
}

/* Lists the .gguf files of a directory in an error that asks the user to choose one. */
static int refuse_several(const char *shown, const struct folder *f)
{
    char list[512];
    size_t n = 0;
    for (size_t i = 0; i < f->n && n < sizeof list - 100; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%.80s", i ? ", " : "", f->name[i]);
    if (f->n > 1 && n >= sizeof list - 100) snprintf(list + n, sizeof list - n, ", ...");
    return ERR(ARG, "%s has %zu .gguf files; give one of them: %s/FILE with FILE of %s", shown,
               f->n, shown, list);
}

/* Finds the model in a directory.  shown: what the person has typed. */
static int in_folder(const char *dir, const char *shown, const char *repo, char out[HUB_PATH])
{
    struct folder f;
    char path[HUB_PATH];
    if (locate_is_weights(dir)) return take_path(dir, out);
    TRY(hub_ggufs(dir, repo != NULL, &f));
    int e = f.n > 1 ? refuse_several(shown, &f)
            : f.n   ? join_path(dir, f.name[0], path)
                    : take_path(dir, path);
    if (e >= 0 && f.n && !file_exists(path))
        e = repo ? ERR(NOTFOUND,
                       "%s: the download of %s is not complete; fetch it again: kvik pull %s",
                       shown, f.name[0], repo)
                 : ERR(NOTFOUND, "%s: %s is a broken link, or not a file", shown, f.name[0]);
    folder_done(&f);
    return e < 0 ? e : take_path(path, out);
}

/* Refuses the URL of another host than the hub's, and says how to fetch the model. */
static int refuse_url(const char *url)
{
    return ERR(
        ARG,
        "%.200s is a URL, and kvik downloads from the Hugging Face hub alone; fetch the file with: curl -LO URL, then "
        "give its path (" TAKES ")",
        url);
}

/* Refuses a name of Ollama, "llama3.2:1b". */
static int refuse_tag(const char *name)
{
    return ERR(ARG,
               "%.200s is a name of Ollama; " TAKES
               ". Ollama's own file is a .gguf file too: ollama "
               "show %.200s --modelfile names it after FROM",
               name, name);
}

static bool is_file_name(const char *s)
{
    static const char *const tail[] = {".gguf", ".safetensors", ".bin",
                                       ".json", ".jsonl",       ".session"};
    size_t n = strlen(s);
    for (size_t i = 0; i < countof(tail); i++)
        if (n >= strlen(tail[i]) && !strcmp(s + n - strlen(tail[i]), tail[i])) return true;
    return false;
}

/* Finds NAME or NAME.gguf in kvik's own cache. */
static bool in_own_cache(const char *name, char out[HUB_PATH])
{
    char dir[HUB_PATH];
    if (strchr(name, '/') || !*name || !hub_own_dir(dir) || access(dir, X_OK) < 0) return false;
    return (snprintf(out, HUB_PATH, "%s/%s", dir, name) < HUB_PATH && path_exists(out)) ||
           (snprintf(out, HUB_PATH, "%s/%s.gguf", dir, name) < HUB_PATH && path_exists(out));
}

/* Finds "org/name/FILE" in the hub cache. */
static bool in_snapshot(const char *name, char out[HUB_PATH])
{
    struct hub_name hub = {0};
    char dir[HUB_PATH];
    size_t org = strcspn(name, "/"), n = org + (name[org] ? 1 + strcspn(name + org + 1, "/") : 0);
    if (name[n] != '/' || n >= sizeof hub.repo || !hub_is_repo(name, n)) return false;
    memcpy(hub.repo, name, n);
    return hub_find(&hub, dir) && snprintf(out, HUB_PATH, "%s/%s", dir, name + n + 1) < HUB_PATH &&
           path_exists(out);
}

/* Finds the first model of kvik's own cache whose name contains the typed one, ignoring case. */
static void suggest(const char *name, const char *own, char out[256])
{
    struct folder f = {0};
    if (strlen(name) < 3 || !*own || hub_ggufs(own, false, &f) < 0) return;
    for (size_t i = 0; i < f.n && !*out; i++)
        if (strcasestr(f.name[i], name)) snprintf(out, 256, " did you mean %.200s?", f.name[i]);
    folder_done(&f);
}

static int absent(const char *name)
{
    struct hub_name at;
    char near[256] = "";
    char hub[HUB_PATH] = "(HOME is not set, so there is none)", own[HUB_PATH] = "";
    (void)hub_dir(hub);
    (void)hub_own_dir(own);
    if (hub_name_read(name, &at) >= 0 && hub_check_ref(&at) < 0)
        return ERR(NOTFOUND, "%.200s: %s; kvik pull %.200s mends it", name, err_last(), name);
    if (strchr(name, '/'))
        return ERR(
            NOTFOUND,
            "%.200s: no such file or directory, and no such model in the hub cache %s; "
            "download it with: kvik pull %.200s (or give --pull to a command that runs a model)",
            name, hub, name);
    suggest(name, own, near);
    bool closed = *own && access(own, X_OK) < 0 && errno == EACCES;
    return ERR(
        NOTFOUND,
        "%.200s: no such file or directory, and no model of this name in %s%s or %s;%s kvik models "
        "lists what is there (" TAKES ")",
        name, own, closed ? " (which this user may not read)" : "", hub, near);
}

/* Finds a name of the hub in its cache. */
static int in_hub(const char *typed, const struct hub_name *name, char out[HUB_PATH])
{
    char dir[HUB_PATH];
    if (!hub_find(name, dir)) return absent(typed);
    if (!*name->pick) return in_folder(dir, typed, typed, out);
    int n = hub_picked(dir, name->pick, out);
    if (n < 0 || n == 1) return MIN(n, 0);
    if (n)
        return ERR(ARG,
                   "%.200s: several files of %s are named by %.100s; give the whole name of one",
                   typed, name->repo, name->pick);
    return absent(typed);
}

int model_locate(const char *name, char out[HUB_PATH])
{
    char found[HUB_PATH];
    struct hub_name hub;
    if (file_exists(name)) return take_path(name, out);
    if (dir_exists(name)) return in_folder(name, name, NULL, out);
    if (in_own_cache(name, found) || in_snapshot(name, found)) return take_path(found, out);
    bool named = hub_name_read(name, &hub) >= 0;
    if (named && (strchr(hub.repo, '/') || hub_find(&hub, found)) &&
        (*hub.pick || !is_file_name(name)))
        return in_hub(name, &hub, out);
    if (strstr(name, "://")) return refuse_url(name);
    if (strchr(name, ':') && *name != '/' && *name != '.' && !is_file_name(name))
        return refuse_tag(name);
    if (hub_is_repo(name, strlen(name)) && !is_file_name(name)) return absent(name);
    if (strlen(name) > 255) return ERR(NOTFOUND, "%.60s...: no such file or directory", name);
    return take_path(name, out); /* the library reports that there is no such file */
}
