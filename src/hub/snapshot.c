/* snapshot.c - finds models in the hub's cache on this machine, without network. */
#include "base/file.h"
#include "hub/folder.h"
#include "hub/hub.h"

#include <stdio.h>
#include <string.h>

bool hub_folder(const char *cache, const char *repo, char out[HUB_PATH])
{
    size_t at = (size_t)snprintf(out, HUB_PATH, "%s/models--", cache);
    for (; *repo && at < HUB_PATH - 2; repo++)
        at += (size_t)snprintf(out + at, HUB_PATH - at, *repo == '/' ? "--" : "%c", *repo);
    return !*repo && at < HUB_PATH;
}

/* Reads a file of refs, which holds a commit, 40 hex digits. */
static int read_commit(const char *path, char commit[HUB_COMMIT])
{
    char *text;
    size_t n;
    TRY(file_read(path, 256, &text, &n));
    bool good = strspn(text, "0123456789abcdef") == 40 && (!text[40] || text[40] == '\n');
    if (good) memcpy(commit, text, 40);
    commit[40] = 0;
    mem_free(text);
    return good ? 0 : ERR(FORMAT, "%s holds no commit (40 hex digits)", path);
}

/* Finds the only snapshot whose name begins with `digits`. */
static bool only_snapshot(const char *folder, const char *digits, char out[HUB_PATH])
{
    struct folder f;
    char path[HUB_PATH];
    size_t found = 0, at = 0;
    if (snprintf(path, sizeof path, "%s/snapshots", folder) >= HUB_PATH ||
        folder_list(path, "", &f) < 0)
        return false;
    for (size_t i = 0; i < f.n; i++)
        if (!strncmp(f.name[i], digits, strlen(digits))) {
            found++;
            at = i;
        }
    bool good = found == 1 && snprintf(out, HUB_PATH, "%s/%s", path, f.name[at]) < HUB_PATH;
    folder_done(&f);
    return good && dir_exists(out);
}

bool hub_snapshot(const char *folder, const char *revision, char out[HUB_PATH])
{
    char ref[HUB_PATH + HUB_REVISION + 8], commit[HUB_COMMIT];
    size_t n = strlen(revision);
    snprintf(ref, sizeof ref, "%s/refs/%s", folder, n ? revision : "main");
    bool known = read_commit(ref, commit) >= 0,
         hex = n >= 6 && strspn(revision, "0123456789abcdef") == n;
    if (!known && hub_is_commit(revision)) {
        memcpy(commit, revision, sizeof commit);
        known = true;
    }
    if (known && snprintf(out, HUB_PATH, "%s/snapshots/%s", folder, commit) < HUB_PATH &&
        dir_exists(out))
        return true;
    if (known || path_exists(ref)) return false;
    return (!n || hex) && only_snapshot(folder, revision, out);
}

bool hub_find(const struct hub_name *name, char out[HUB_PATH])
{
    char cache[HUB_PATH], folder[HUB_PATH];
    return hub_dir(cache) && hub_folder(cache, name->repo, folder) &&
           hub_snapshot(folder, name->revision, out);
}

int hub_check_ref(const struct hub_name *name)
{
    char cache[HUB_PATH], folder[HUB_PATH], at[HUB_PATH], commit[HUB_COMMIT];
    char ref[HUB_PATH + HUB_REVISION + 8];
    if (!hub_dir(cache) || !hub_folder(cache, name->repo, folder)) return 0;
    snprintf(ref, sizeof ref, "%s/refs/%s", folder, *name->revision ? name->revision : "main");
    if (!path_exists(ref) || hub_snapshot(folder, name->revision, at)) return 0;
    TRY(read_commit(ref, commit));
    return ERR(NOTFOUND, "%s names the commit %s, which is not in %s/snapshots", ref, commit,
               folder);
}
