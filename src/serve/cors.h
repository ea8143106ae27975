/* cors.h - which pages may use the server, and under which names of this machine. */
#pragma once
#include <stdbool.h>

/* True if a page of `origin` ("http://localhost:3000") may use the server.  list: "localhost" (pages of this
 * machine, on any port), "*" (all pages), or origins with commas between them. */
bool cors_allows(const char *list, const char *origin);
/* True if a server for this machine alone may answer requests with this Host header: no page can have made that
 * name, or the list has it. */
bool cors_knows(const char *list, const char *host);
/* True if all of these addresses are reached from this machine alone. */
bool cors_is_here(const char *hosts);
