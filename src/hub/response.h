/* response.h - the headers of an answer of the hub, and what its status means. */
#pragma once
#include "hub/hub.h"

struct response {
    long status;
    /* From the answer of the hub itself, also if it redirects to another host. */
    char commit[HUB_COMMIT];     /* X-Repo-Commit, or "" */
    char linked[80];             /* X-Linked-Etag without quotes, or "" */
    char code[64], message[256]; /* X-Error-Code, X-Error-Message */
    char next[2048];             /* address of the next page, from Link; or "" */
    uint64_t linked_size;        /* X-Linked-Size */
    bool has_linked_size;
    /* From the newest answer. */
    char type[64];        /* Content-Type */
    uint64_t from, total; /* Content-Range */
    uint64_t length;      /* Content-Length */
    uint32_t wait;        /* Retry-After, seconds; 0: not given */
    bool has_range, has_length, waits;
    bool lost_next; /* there is a next page, but its address is longer than `next` */
};
/* Reads one line of the headers.  A status line begins a new answer and clears the fields of the newest answer; the
 * fields of the hub's own answer stay. */
void response_header(struct response *a, const char *line, size_t n);
/* True if the failure is temporary, so that another try may succeed. */
bool response_is_passing(const struct response *a);
/* Makes the error for a status that is no success.  token: a token was sent. */
int response_refuse(const struct response *a, const struct hub_name *name, const char *endpoint,
                    bool token);
