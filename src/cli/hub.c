/* hub.c - the local cache of the Hugging Face hub: $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or
 * ~/.cache/huggingface/hub, as for the hub's own library.  A repository "org/name" is the folder models--org--name there, and
 * its main branch a folder of snapshots, whose name is in refs/main.  Nothing is downloaded. */
#include "base/file.h"
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

static bool place_of(const char *const (*place)[2], size_t n, char out[HUB_PATH])
{
    for (size_t i = 0; i < n; i++) {
        const char *v = getenv(place[i][0]);
        if (v && *v) return snprintf(out, HUB_PATH, "%s%s", v, place[i][1]) < HUB_PATH;
    }
    return false;
}

bool hub_dir(char out[HUB_PATH])
{
    static const char *const place[][2] = {{"HF_HUB_CACHE", ""},
                                           {"HUGGINGFACE_HUB_CACHE", ""},
                                           {"HF_HOME", "/hub"},
                                           {"XDG_CACHE_HOME", "/huggingface/hub"},
                                           {"HOME", "/.cache/huggingface/hub"}};
    return place_of(place, countof(place), out);
}

bool hub_own_dir(char out[HUB_PATH])
{
    static const char *const place[][2] = {{"XDG_CACHE_HOME", "/kvik"}, {"HOME", "/.cache/kvik"}};
    return place_of(place, countof(place), out);
}

bool hub_is_repo(const char *s, size_t n)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t slashes = 0;
    for (size_t i = 0; i < n; i++) {
        bool begins = i == 0 || s[i - 1] == '/';
        if (s[i] == '/') {
            slashes++;
            if (begins || i + 1 == n) return false;
        } else if (!strchr(allowed, s[i]) || (s[i] == '.' && (begins || s[i - 1] == '.'))) {
            return false;
        }
    }
    return n && n <= 200 && slashes <= 1;
}

/* The file refs/main holds the commit, 40 hex digits. */
static bool read_commit(const char *path, char commit[41])
{
    char *text;
    size_t n;
    if (file_read(path, 256, &text, &n) < 0) return false;
    bool good = strspn(text, "0123456789abcdef") == 40 && (!text[40] || text[40] == '\n');
    if (good) memcpy(commit, text, 40);
    commit[40] = 0;
    mem_free(text);
    return good;
}

/* Finds the only snapshot of a repository that has no main branch, as after the download of one revision. */
static bool only_snapshot(const char *folder, char out[HUB_PATH])
{
    struct folder f;
    char path[HUB_PATH];
    bool found = false;
    if (snprintf(path, sizeof path, "%s/snapshots", folder) >= HUB_PATH ||
        folder_list(path, "", &f) < 0)
        return false;
    if (f.n == 1) found = snprintf(out, HUB_PATH, "%s/%s", path, f.name[0]) < HUB_PATH;
    folder_done(&f);
    return found && dir_exists(out);
}

bool hub_snapshot(const char *folder, char out[HUB_PATH])
{
    char ref[HUB_PATH + 16], commit[41];
    snprintf(ref, sizeof ref, "%s/refs/main", folder);
    if (read_commit(ref, commit) &&
        snprintf(out, HUB_PATH, "%s/snapshots/%s", folder, commit) < HUB_PATH && dir_exists(out))
        return true;
    return !path_exists(ref) && only_snapshot(folder, out);
}

bool hub_find(const char *repo, size_t n, char out[HUB_PATH])
{
    char cache[HUB_PATH], name[512], folder[HUB_PATH];
    size_t at = 0;
    if (!hub_is_repo(repo, n) || !hub_dir(cache)) return false;
    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(name + at, sizeof name - at, repo[i] == '/' ? "--" : "%c", repo[i]);
    return snprintf(folder, sizeof folder, "%s/models--%s", cache, name) < HUB_PATH &&
           hub_snapshot(folder, out);
}
