/* cors.h - which pages of other hosts a browser lets read the answers. */
#pragma once
#include <stdbool.h>

/* True if a page of `origin` ("http://localhost:3000") may use the server.  list: "localhost" (pages of this machine,
 * whatever their port), "*" (all), or origins with commas between them. */
bool cors_allows(const char *list, const char *origin);
/* True if requests for a host, as the header Host has it, may be answered by a server that is for this machine alone: it is no name
 * that others could have made, or is in the list. */
bool cors_knows(const char *list, const char *host);
/* True if a server that listens at these addresses is for this machine alone. */
bool cors_is_here(const char *hosts);
