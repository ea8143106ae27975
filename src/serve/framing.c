/* framing.c - checks the headers that say how long the body of a request is; see framing.h.
 *
 * libevent takes the first of two lengths, and accepts a length beside Transfer-Encoding.  A proxy in front may decide otherwise; then a
 * client could slip text into the request of another client.  So headers that are not plain are refused, and the connection is closed. */
#include "serve/framing.h"
#include "base/base.h"

#include <string.h>

/* True if s is a token of HTTP, as names of headers are. */
static bool is_token(const char *s)
{
    size_t n = strspn(s, "!#$%&'*+-.^_`|~0123456789"
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
    return n && !s[n];
}

static bool is_length(const char *s)
{
    size_t n = strspn(s, "0123456789");
    return n && !s[n];
}

const char *framing_fault(const struct evkeyvalq *headers, bool bodiless)
{
    uint32_t lengths = 0, codings = 0;
    for (const struct evkeyval *h = headers->tqh_first; h; h = h->next.tqe_next) {
        if (!is_token(h->key)) return "the name of a header has a character that names do not have";
        if (!strcasecmp(h->key, "Content-Length")) {
            lengths++;
            if (!is_length(h->value)) return "header Content-Length must be a number";
            if (bodiless && h->value[strspn(h->value, "0")])
                return "a request with this method has no body";
        }
        if (!strcasecmp(h->key, "Transfer-Encoding")) {
            codings++;
            if (bodiless) return "a request with this method has no body";
            if (strcasecmp(h->value, "chunked") != 0)
                return "header Transfer-Encoding: only \"chunked\" is supported";
        }
    }
    return lengths + codings > 1
               ? "headers Content-Length and Transfer-Encoding say more than once how long the body is"
               : NULL;
}
