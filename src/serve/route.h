/* route.h - which function answers which path.  A protocol is one file, which registers its routes with ROUTES. */
#pragma once
#include "serve/server.h"

struct route {
    const char *path;
    unsigned methods; /* bits of enum exchange_method */
    /* open: needs no API key.  light: answered by the network thread, so the function must not wait. */
    bool open, light;
    const struct protocol *protocol;
    /* Answers, or returns an error code.  Then the error's sentence is sent in the shape of the protocol. */
    int (*answer)(struct server *s, struct exchange *x);
    bool below; /* the route serves all paths that begin with its path */
};
struct route_list {
    const struct route *route;
    size_t n;
};
/* Registers an array of routes. */
#define ROUTES(array_)                                                                             \
    static const struct route_list list_##array_ = {array_, countof(array_)};                      \
    static const struct route_list *const reg_##array_                                             \
        __attribute__((section("kvik_route"), used)) = &list_##array_

/* Decides whether the body of a request may be long, before the body comes: only with a known key.  *p: the protocol
 * of the path, or NULL. */
bool route_head(void *server, const char *path, const char *key, const struct protocol **p);
/* Finds the route of an exchange, checks the key, and answers or hands it to the desk.  Takes the reference. */
void route_request(void *server, struct exchange *x);
/* Runs the route's function on this thread.  Takes over the caller's reference. */
void route_answer(struct server *s, struct exchange *x, const struct route *r);
/* Sends an error.  Takes over the caller's reference. */
void route_refuse(struct exchange *x, int status, const char *sentence);
/* Makes the JSON of such an error; p NULL: in OpenAI's shape. */
json_t *route_error(const struct protocol *p, int status, const char *sentence);
/* Copies a sentence as UTF-8.  It may quote what a client sent: bytes that are no UTF-8 become question marks. */
enum { ROUTE_SENTENCE = 1024 };
void route_sentence(char out[ROUTE_SENTENCE], const char *sentence);
/* Returns the HTTP status for an error code. */
int route_status(int code);
