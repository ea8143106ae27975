/* response.h - the headers of an answer of the hub, and what its status means. */
#pragma once
#include "hub/hub.h"

struct answer {
    long status;
    /* Of the hub's own answer, also if it sends on to another host. */
    char commit[HUB_COMMIT];     /* X-Repo-Commit, or "" */
    char linked[80];             /* X-Linked-Etag without quotes, or "" */
    char code[64], message[256]; /* X-Error-Code, X-Error-Message */
    char next[2048];             /* the page behind this one, of Link; or "" */
    uint64_t linked_size;        /* X-Linked-Size */
    bool has_linked_size;
    /* Of the newest answer. */
    char type[64];        /* Content-Type */
    uint64_t from, total; /* Content-Range */
    uint64_t length;      /* Content-Length */
    uint32_t wait;        /* Retry-After, seconds; 0: not given */
    bool has_range, has_length, waits;
    bool lost_next; /* there is a next page, but its address is too long */
};
/* Takes a line of the headers.  The line with the status begins an answer: only what the hub itself has said stays. */
void answer_header(struct answer *a, const char *line, size_t n);
/* True if another try may succeed. */
bool answer_is_passing(const struct answer *a);
/* Makes an error of a status that is no success.  token: one was sent. */
int answer_refuse(const struct answer *a, const struct hub_name *name, const char *endpoint,
                  bool token);
