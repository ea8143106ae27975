/* cors.c - which pages may use the server: a browser sends the origin of a page with its requests; see cors.h.
 *
 * Any page that a person visits can send requests to a server on that person's machine.  So the server refuses the request of a page
 * that is not allowed; hiding the answer would not be enough.
 *
 * A page can also make its own name lead to this machine.  The browser then takes its requests for requests to the page's own server,
 * and sends no origin with a GET.  But the header Host still has the page's name. */
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

/* Returns the length of the name in a Host header, or behind the "://" of an origin, without its port. */
static size_t name_length(const char *host)
{
    return *host == '[' ? strcspn(host, "]") + (strchr(host, ']') != NULL) : strcspn(host, ":/");
}

/* True if nobody outside of a network can make the name point to this machine: the name is an address, has no dot,
 * or has an ending that is reserved for private machines. */
static bool is_private(const char *s, size_t n)
{
    static const char *const ends[] = {".localhost", ".local", ".internal"};
    bool dots = memchr(s, '.', n) != NULL;
    if (*s == '[' || !dots || strspn(s, "0123456789.") >= n) return true;
    for (size_t i = 0; i < countof(ends); i++) {
        size_t len = strlen(ends[i]);
        if (n > len && !strncasecmp(s + n - len, ends[i], len)) return true;
    }
    return false;
}

bool cors_knows(const char *list, const char *host)
{
    size_t n = name_length(host);
    if (!n || is_private(host, n)) return true;
    while (*list) {
        size_t len = strcspn(list, ",");
        const char *name = memmem(list, len, "://", 3);
        if (len == 1 && *list == '*') return true;
        if (name) name += 3;
        if (name && (size_t)(list + len - name) >= n &&
            MIN(name_length(name), (size_t)(list + len - name)) == n && !strncasecmp(name, host, n))
            return true;
        list += len + (list[len] == ',');
    }
    return false;
}

bool cors_is_here(const char *hosts)
{
    bool any = false;
    while (*hosts) {
        size_t n = strcspn(hosts, ",");
        bool four = n > 4 && !strncmp(hosts, "127.", 4);
        if (n && !four && !is_local(hosts, n) && !(n == 3 && !strncmp(hosts, "::1", 3)))
            return false;
        any |= n > 0;
        hosts += n + (hosts[n] == ',');
    }
    return any;
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
