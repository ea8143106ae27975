/* cors.h - which pages of other hosts a browser lets read the answers. */
#pragma once
#include <stdbool.h>

/* True if a page of `origin` ("http://localhost:3000") may use the server.  list: "localhost" (pages of this machine,
 * whatever their port), "*" (all), or origins with commas between them. */
bool cors_allows(const char *list, const char *origin);
