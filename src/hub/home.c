/* home.c - reads the hub's settings from the environment, with the names of variables and in the order of the hub's
 * own library. */
#include "base/file.h"
#include "hub/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { PATIENCE = 10, PATIENCE_MOST = 3600 };

/* Writes the value of a variable with `rest` behind it.  A "~" at its beginning is replaced by the home directory,
 * because a variable that no shell has read (from a file of variables) still has it. */
static bool expand(const char *value, const char *rest, char out[HUB_PATH])
{
    const char *home = getenv("HOME");
    bool tilde = value[0] == '~' && (!value[1] || value[1] == '/') && home && *home;
    return snprintf(out, HUB_PATH, "%s%s%s", tilde ? home : "", value + tilde, rest) < HUB_PATH;
}

/* Finds the first variable that is set. */
static bool place_of(const char *const (*place)[2], size_t n, char out[HUB_PATH])
{
    for (size_t i = 0; i < n; i++) {
        const char *v = getenv(place[i][0]);
        if (v && *v) return expand(v, place[i][1], out);
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

bool hub_is_set(const char *variable)
{
    static const char *const yes[] = {"1", "on", "yes", "true"};
    const char *v = getenv(variable);
    for (size_t i = 0; v && i < countof(yes); i++)
        if (!strcasecmp(v, yes[i])) return true;
    return false;
}

bool hub_offline(void)
{
    const char *v = getenv("HF_HUB_OFFLINE");
    return hub_is_set(v && *v ? "HF_HUB_OFFLINE" : "TRANSFORMERS_OFFLINE");
}

/* Copies a token without the white space around it.  A token with other characters than those of a header is an error. */
static int take_token(const char *from, const char *where, char out[512])
{
    from += strspn(from, " \t\r\n");
    size_t n = strcspn(from, " \t\r\n");
    if (from[n + strspn(from + n, " \t\r\n")] || n >= 512)
        return ERR(FORMAT, "%s is no token: it has %s", where,
                   n < 512 ? "spaces" : "over 511 bytes");
    for (size_t i = 0; i < n; i++)
        if (from[i] < '!' || from[i] > '~')
            return ERR(FORMAT, "%s is no token: it has a character that no token has", where);
    memcpy(out, from, n);
    out[n] = 0;
    return 0;
}

/* Reads the token: HF_TOKEN, else the file that `hf auth login` writes. */
static int find_token(char out[512])
{
    static const char *const variable[] = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"};
    static const char *const file[][2] = {{"HF_TOKEN_PATH", ""},
                                          {"HF_HOME", "/token"},
                                          {"XDG_CACHE_HOME", "/huggingface/token"},
                                          {"HOME", "/.cache/huggingface/token"}};
    char path[HUB_PATH], *text;
    size_t n;
    *out = 0;
    if (hub_is_set("HF_HUB_DISABLE_IMPLICIT_TOKEN")) return 0;
    for (size_t i = 0; i < countof(variable); i++) {
        const char *v = getenv(variable[i]);
        if (v) TRY(take_token(v, variable[i], out));
        if (*out) return 0;
    }
    if (!place_of(file, countof(file), path) || !path_exists(path)) return 0;
    TRY(file_read(path, 4096, &text, &n));
    int e = take_token(text, path, out);
    mem_free(text);
    return e;
}

static int find_endpoint(char out[512])
{
    const char *v = getenv("HF_ENDPOINT");
    if (!v || !*v) v = "https://huggingface.co";
    size_t n = strlen(v);
    while (n && v[n - 1] == '/')
        n--;
    bool url = !strncasecmp(v, "https://", 8) || !strncasecmp(v, "http://", 7);
    const char *host = url ? strstr(v, "://") + 3 : v;
    if (memchr(host, '@', strcspn(host, "/?#"))) /* messages show the address */
        return ERR(ARG,
                   "HF_ENDPOINT has a user or a password, which kvik does not send; the place for "
                   "a token is HF_TOKEN");
    for (size_t i = 0; i < n; i++)
        url &= v[i] > ' ' && v[i] <= '~' && !strchr("\"<>\\^`{|}?#", v[i]);
    if (!url || n < 8 || n >= 512)
        return ERR(ARG, "HF_ENDPOINT is \"%.100s\", and not a URL such as https://huggingface.co",
                   v);
    memcpy(out, v, n);
    out[n] = 0;
    return 0;
}

int hub_home(struct hub_home *out)
{
    *out = (struct hub_home){.patience = PATIENCE};
    const char *v = getenv("HF_HUB_DOWNLOAD_TIMEOUT");
    if (v && *v) {
        long seconds = strtol(v, NULL, 10);
        if (seconds > 0) out->patience = (uint32_t)MIN(seconds, PATIENCE_MOST);
    }
    if (!hub_dir(out->cache))
        return ERR(NOTFOUND,
                   "there is no place for models: neither HF_HUB_CACHE, HF_HOME nor HOME is set");
    TRY(find_endpoint(out->endpoint));
    return find_token(out->token);
}
