/* outage.h - tells the operator when the shared store begins to fail, and when it works again: a line for each change, at most one a
 * minute.  Clients notice nothing, since rows that the store does not give are computed. */
#pragma once
#include "base/json.h"
#include "kvik_shared.h"
#include "serve/serve.h"

enum { OUTAGE_ERROR = 256 }; /* most bytes of an error */
struct outage {
    bool fails, told; /* now; and according to the last line */
    double since;     /* when the last line was written; 0: never */
};
/* Looks at the store's state, and writes a line if one is due. */
void outage_look(struct outage *w, const kvik_shared_state *now, const struct serve_options *o);
/* Does the same for the directory of saved prompts; error "": it works. */
void outage_dir_look(struct outage *w, const char *error, const struct serve_options *o);
/* True if the last line no longer holds. */
bool outage_untold(const struct outage *w);
/* Makes the same report for GET /props. */
json_t *outage_json(const kvik_shared_state *now);
json_t *outage_dir_json(const char *error);
