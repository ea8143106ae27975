/* route.c - the table of all paths; see route.h. */
#include "serve/route.h"
#include "base/utf8.h"
#include "serve/desk.h"
#include "serve/keys.h"
#include "serve/protocol.h"

#include <string.h>

extern const struct route_list *const __start_kvik_route[], *const __stop_kvik_route[];

/* Returns the route of a path and one of these methods, or NULL with the methods that the path has, as bits. */
static const struct route *route_of(const char *path, unsigned wanted, unsigned *methods)
{
    *methods = 0;
    for (const struct route_list *const *l = __start_kvik_route; l < __stop_kvik_route; l++)
        for (size_t i = 0; i < (*l)->n; i++) {
            const struct route *r = &(*l)->route[i];
            size_t n = strlen(r->path);
            bool here = r->below ? !strncmp(r->path, path, n) && path[n] : !strcmp(r->path, path);
            if (!here) continue;
            *methods |= r->methods;
            if (r->methods & wanted) return r;
        }
    return NULL;
}

/* Returns the protocol for errors of a path that nobody serves: the protocol of the path that is most like it, slash
 * by slash.  NULL: there is none, or several. */
static const struct protocol *nearest(const char *path)
{
    const struct protocol *found = NULL;
    size_t most = 1; /* each path begins with a slash */
    bool mixed = false;
    for (const struct route_list *const *l = __start_kvik_route; l < __stop_kvik_route; l++)
        for (size_t i = 0; i < (*l)->n; i++) {
            const struct route *r = &(*l)->route[i];
            size_t same = 0, n = 0;
            for (; path[n] && path[n] == r->path[n]; n++)
                if (path[n] == '/') same = n + 1;
            if ((path[n] == '/' || !path[n]) && !r->path[n]) same = n + 1; /* it, or below it */
            if (same < most || same == 1) continue;
            mixed = same == most && (mixed || found->error != r->protocol->error);
            found = r->protocol;
            most = same;
        }
    return mixed ? NULL : found;
}

int route_status(int code)
{
    switch (code) {
    case ERR_ARG:
    case ERR_FORMAT:
    case ERR_UNSUPPORTED:
    case ERR_LIMIT:
        return 400;
    case ERR_NOTFOUND:
        return 404;
    case ERR_FULL:
    case ERR_BUSY:
    case ERR_NOMEM:
    case ERR_CANCELLED:
        return 503;
    default:
        return 500;
    }
}

void route_sentence(char out[ROUTE_SENTENCE], const char *sentence)
{
    size_t at = 0, len;
    snprintf(out, ROUTE_SENTENCE, "%s", sentence);
    for (size_t n = strlen(out); at < n; at += len)
        if (utf8_decode(out + at, n - at, &len) == UTF8_BAD) out[at] = '?';
}

json_t *route_error(const struct protocol *p, int status, const char *sentence)
{
    char text[ROUTE_SENTENCE];
    struct fault f = {.status = status, .sentence = text};
    route_sentence(text, sentence);
    return (p ? p : &protocol_openai)->error(&f);
}

void route_refuse(struct exchange *x, int status, const char *sentence)
{
    exchange_json(x, status, route_error(x->protocol, status, sentence));
    exchange_release(x);
}

void route_answer(struct server *s, struct exchange *x, const struct route *r)
{
    int e = r->answer(s, x);
    if (e < 0)
        route_refuse(x, route_status(e), err_last());
    else
        exchange_release(x);
}

bool route_head(void *server, const char *path, const char *key, const struct protocol **p)
{
    const struct server *s = server;
    unsigned methods;
    const struct route *r = route_of(path, EXCHANGE_GET | EXCHANGE_POST, &methods);
    *p = r ? r->protocol : nearest(path);
    return !s->keys || keys_have(s->keys, key);
}

void route_request(void *server, struct exchange *x)
{
    struct server *s = server;
    char sentence[160];
    unsigned methods;
    const struct route *r = route_of(x->path, x->method, &methods);
    if (!r) {
        x->protocol = nearest(x->path);
        x->allow = !(methods & EXCHANGE_POST)  ? "GET, HEAD, OPTIONS"
                   : !(methods & EXCHANGE_GET) ? "POST, OPTIONS"
                                               : "GET, HEAD, POST, OPTIONS";
        snprintf(sentence, sizeof sentence,
                 methods ? "%.80s is asked with another method: %s" : "there is nothing at %.80s",
                 x->path, x->allow);
        route_refuse(x, methods ? 405 : 404, sentence);
        return;
    }
    x->protocol = r->protocol;
    if (s->keys && !r->open && !keys_have(s->keys, x->key))
        route_refuse(x, 401,
                     x->key ? "this API key is not known"
                            : "an API key is needed: Authorization: Bearer KEY");
    else if (r->light)
        route_answer(s, x, r);
    else
        desk_put(s, x, r);
}
