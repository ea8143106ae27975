/* outage.h - tells whoever runs the server that the shared store fails, and that it works again: a line when that changes, at most
 * one in a minute.  Clients see nothing of it, since what the store lacks is computed. */
#pragma once
#include "base/json.h"
#include "kvik_shared.h"
#include "serve/serve.h"

struct outage {
    bool fails, told; /* now; and as the last line said */
    double since;     /* when that line was; 0: there was none */
};
/* Looks at what the store did. */
void outage_look(struct outage *w, const kvik_shared_state *now, const struct serve_options *o);
/* True if the last line is not true any more. */
bool outage_untold(const struct outage *w);
/* The same for GET /props. */
json_t *outage_json(const kvik_shared_state *now);
