/* cors.c - a browser sends the origin of a page with its requests; see cors.h.
 *
 * Any page that a person visits can send requests to a server on their machine.  So a request from a page that is not
 * allowed is refused, and not only its answer hidden. */
#include "serve/cors.h"
#include "base/base.h"

#include <string.h>

/* True if s[0, n) is a host of this machine. */
static bool is_local(const char *s, size_t n)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    for (size_t i = 0; i < countof(names); i++)
        if (strlen(names[i]) == n && !strncasecmp(s, names[i], n)) return true;
    return false;
}

static bool from_here(const char *origin)
{
    const char *host = strstr(origin, "://");
    if (!host) return false;
    host += 3;
    const char *end = strchr(*host == '[' ? host + strcspn(host, "]") : host, ':');
    return is_local(host, end ? (size_t)(end - host) : strlen(host));
}

bool cors_allows(const char *list, const char *origin)
{
    size_t n = strlen(origin);
    while (*list) {
        size_t len = strcspn(list, ",");
        if (len == 1 && *list == '*') return true;
        bool here = len == strlen("localhost") && !strncmp(list, "localhost", len);
        if (here ? from_here(origin) : len == n && !strncasecmp(list, origin, n)) return true;
        list += len + (list[len] == ',');
    }
    return false;
}
