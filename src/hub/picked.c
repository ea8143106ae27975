/* picked.c - lists the .gguf files of a directory, and finds the one that a name picks. */
#include "base/descriptor.h"
#include "base/file.h"
#include "hub/choice.h"
#include "hub/folder.h"
#include "hub/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { DEEPEST = 4, FILES_MOST = 10000 };

static int by_name(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

static bool is_dir(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Adds the files of dir/below, and of the directories there. */
static int add_dir(const char *dir, const char *below, int depth, struct folder *out)
{
    struct folder f;
    char path[HUB_PATH], name[HUB_PATH];
    if (snprintf(path, sizeof path, "%s%s%s", dir, *below ? "/" : "", below) >= HUB_PATH) return 0;
    TRY(folder_list(path, "", &f));
    int e = 0;
    for (size_t i = 0; e >= 0 && i < f.n && out->n < FILES_MOST; i++) {
        if (snprintf(name, sizeof name, "%s%s%s", below, *below ? "/" : "", f.name[i]) >=
                HUB_PATH ||
            snprintf(path, sizeof path, "%s/%s", dir, name) >= HUB_PATH)
            continue;
        if (choice_is_gguf(f.name[i])) {
            char *copy = mem_strdup(name), **grown = mem_grow(out->name, out->n + 1, sizeof *grown);
            if (grown) out->name = grown;
            if (copy && grown)
                out->name[out->n++] = copy;
            else
                mem_free(copy), e = ERR_NOMEM;
        } else if (depth > 1 && is_dir(path)) {
            e = add_dir(dir, name, depth - 1, out);
        }
    }
    folder_done(&f);
    return e;
}

int hub_ggufs(const char *dir, bool deep, struct folder *out)
{
    *out = (struct folder){0};
    int e = add_dir(dir, "", deep ? DEEPEST : 1, out);
    if (e < 0) {
        folder_done(out);
        return e;
    }
    if (out->n) qsort(out->name, out->n, sizeof *out->name, by_name);
    return 0;
}

int hub_picked(const char *snapshot, const char *pick, char out[HUB_PATH])
{
    struct folder f;
    size_t found = 0, at = 0;
    if (hub_is_path(pick) && snprintf(out, HUB_PATH, "%s/%s", snapshot, pick) < HUB_PATH &&
        file_exists(out))
        return 1;
    TRY(hub_ggufs(snapshot, true, &f));
    for (size_t i = 0; i < f.n; i++)
        if (hub_picks(pick, f.name[i])) {
            found++;
            at = i;
        }
    if (found == 1 && snprintf(out, HUB_PATH, "%s/%s", snapshot, f.name[at]) >= HUB_PATH) found = 0;
    folder_done(&f);
    return (int)MIN(found, 2);
}
