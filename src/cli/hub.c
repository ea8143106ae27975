/* hub.c - finds a repository id such as "org/name" in the local cache of the Hugging Face hub: the snapshot of its main
 * branch.  The cache is $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub, as for
 * the hub's own library.  Nothing is downloaded. */
#include "base/map.h"
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

static bool cache_dir(char out[HUB_PATH])
{
    static const struct {
        const char *variable, *below;
    } place[] = {{"HF_HUB_CACHE", ""},
                 {"HF_HOME", "/hub"},
                 {"XDG_CACHE_HOME", "/huggingface/hub"},
                 {"HOME", "/.cache/huggingface/hub"}};
    for (size_t i = 0; i < countof(place); i++) {
        const char *v = getenv(place[i].variable);
        if (v && *v) return snprintf(out, HUB_PATH, "%s%s", v, place[i].below) < HUB_PATH;
    }
    return false;
}

/* True for "org/name" or "name" in the characters that the hub allows; false for a path. */
static bool is_repo(const char *s)
{
    size_t slashes = 0;
    for (const char *p = s; *p; p++) {
        if (*p == '/') {
            slashes++;
            if (p == s || !p[1]) return false;
        } else if (*p == '.' && (p == s || p[-1] == '/' || p[1] == '.')) {
            return false;
        } else if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.",
                           *p)) {
            return false;
        }
    }
    return *s && slashes <= 1;
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

const char *hub_find(const char *model, char out[HUB_PATH])
{
    char cache[HUB_PATH], folder[512], commit[41], ref[HUB_PATH + 600];
    if (dir_exists(model) || file_exists(model) || !is_repo(model) || strlen(model) > 200 ||
        !cache_dir(cache))
        return model;
    size_t n = (size_t)snprintf(folder, sizeof folder, "models--");
    for (const char *p = model; *p; p++)
        n += (size_t)snprintf(folder + n, sizeof folder - n, *p == '/' ? "--" : "%c", *p);
    snprintf(ref, sizeof ref, "%s/%s/refs/main", cache, folder);
    if (!read_commit(ref, commit)) return model;
    if (snprintf(out, HUB_PATH, "%s/%s/snapshots/%s", cache, folder, commit) >= HUB_PATH ||
        !dir_exists(out))
        return model;
    return out;
}
