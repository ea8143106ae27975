/* name.c - names of models on the hub, and paths of their files.  Paths come from a server, so every path that could
 * lead out of a directory is refused. */
#include "base/utf8.h"
#include "hub/hub.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    PART = 255,
    PATH_MOST = 1024, /* most bytes of a part of a path, as of file systems, and of a path */
    REPO_PART = 96
};

/* True if s[0, n) is a part of a name. */
static bool is_part(const char *s, size_t n)
{
    static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    if (!n || n > REPO_PART || !strchr(word, s[0]) || !strchr(word, s[n - 1])) return false;
    for (size_t i = 0; i < n; i++) {
        bool sign = s[i] == '-' || s[i] == '.';
        if (!s[i] || (!sign && !strchr(word, s[i]))) return false;
        if (sign && s[i + 1] == s[i])
            return false; /* "--" stands for the slash in names of folders */
    }
    return true;
}

bool hub_is_repo(const char *s, size_t n)
{
    const char *slash = memchr(s, '/', n);
    size_t owner = slash ? (size_t)(slash - s) : 0, rest = slash ? owner + 1 : 0;
    if (n > 4 && !memcmp(s + n - 4, ".git", 4)) return false;
    return (!slash || is_part(s, owner)) && is_part(s + rest, n - rest);
}

bool hub_is_commit(const char *s)
{
    return strspn(s, "0123456789abcdef") == 40 && !s[40];
}

bool hub_is_path(const char *s)
{
    size_t n = strlen(s);
    if (!n || n > PATH_MOST || !utf8_valid(s, n)) return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < ' ' || s[i] == 0x7F || s[i] == '\\') return false;
    while (*s) {
        size_t part = strcspn(s, "/");
        if (!part || part > PART || (*s == '.' && (part == 1 || (part == 2 && s[1] == '.'))))
            return false;
        s += part;
        if (*s == '/' && !*++s) return false;
    }
    return true;
}

/* True if the name of a branch, tag or commit can be a path below refs. */
static bool is_revision(const char *s)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./+";
    return hub_is_path(s) && *s != '-' && !s[strspn(s, allowed)] && strlen(s) < HUB_REVISION;
}

/* Returns the text behind the host of the hub, or NULL if the text names no host. */
static const char *behind_host(const char *s)
{
    static const char *const host[] = {"huggingface.co/", "hf.co/"};
    const char *at = strstr(s, "://");
    at = at ? at + 3 : s;
    for (size_t i = 0; i < countof(host); i++)
        if (!strncasecmp(at, host[i], strlen(host[i]))) return at + strlen(host[i]);
    return NULL;
}

/* Takes s[0, n) as a part of the name. */
static bool copy_word(const char *s, size_t n, char *out, size_t room)
{
    if (!n || n >= room) return false;
    memcpy(out, s, n);
    out[n] = 0;
    return true;
}

/* Reads what stands behind "org/name" in the URL of a page: "/tree/REVISION", "/blob/REVISION/FILE" and nothing else. */
static bool take_page(const char *s, struct hub_name *out)
{
    static const char *const page[] = {"/tree/", "/blob/", "/resolve/"};
    size_t n = strcspn(s, "?#");
    if (!n || (n == 1 && *s == '/')) return true;
    for (size_t i = 0; i < countof(page); i++) {
        size_t k = strlen(page[i]), revision;
        if (strncmp(s, page[i], k)) continue;
        revision = MIN(strcspn(s + k, "/"), n - k);
        if (!copy_word(s + k, revision, out->revision, sizeof out->revision)) return false;
        k += revision + 1;
        return k >= n || (i && copy_word(s + k, n - k, out->pick, sizeof out->pick));
    }
    return false;
}

int hub_name_read(const char *text, struct hub_name *out)
{
    struct hub_name name = {0};
    const char *at = behind_host(text), *s = at ? at : text;
    bool page = at && strstr(text, "://"), good;
    size_t org = strcspn(s, "/:@?#"),
           n = org + (s[org] == '/' ? 1 + strcspn(s + org + 1, "/:@?#") : 0);
    good = copy_word(s, n, name.repo, sizeof name.repo) && hub_is_repo(name.repo, n);
    if (good && strstr(s + n, "://")) good = false;
    if (good && behind_host(name.repo))
        good = false; /* as it is written, it would be read without its owner */
    if (good && page && s[n] && s[n] != ':' && s[n] != '@') {
        good = take_page(s + n, &name);
    } else if (good && s[n]) {
        const char *end = strrchr(s + n, '@');
        if (s[n] == ':')
            good = copy_word(s + n + 1, (end ? (size_t)(end - s) : strlen(s)) - n - 1, name.pick,
                             sizeof name.pick);
        else
            good = s[n] == '@' && end == s + n;
        if (good && end)
            good = copy_word(end + 1, strlen(end + 1), name.revision, sizeof name.revision);
    }
    if (good && *name.pick) good = hub_is_path(name.pick);
    if (good && *name.revision) good = is_revision(name.revision);
    if (!good)
        return ERR(
            ARG,
            "\"%.200s\" is no name of a model on the hub; a name is ORG/NAME, ORG/NAME:QUANTIZATION such as "
            "ORG/NAME:Q4_K_M, ORG/NAME:FILE, and may end with @REVISION",
            text);
    *out = name;
    return 0;
}

void hub_name_text(const struct hub_name *name, char out[1024])
{
    snprintf(out, 1024, "%s%s%s%s%s", name->repo, *name->pick ? ":" : "", name->pick,
             *name->revision ? "@" : "", name->revision);
}

bool hub_picks(const char *pick, const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    size_t n = strlen(base), k = strlen(pick);
    if (!strcmp(pick, path) || !strcmp(pick, base)) return true;
    if (n < 5 || strcasecmp(base + n - 5, ".gguf") || !k) return false;
    n -= 5;
    for (size_t i = 0; i + k <= n; i++)
        if (!strncasecmp(base + i, pick, k) && (!i || base[i - 1] == '-' || base[i - 1] == '.') &&
            (i + k == n || base[i + k] == '-' || base[i + k] == '.'))
            return true;
    return false;
}
