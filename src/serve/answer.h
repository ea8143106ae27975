/* answer.h - one request's answer while its jobs run. */
#pragma once
#include "serve/protocol.h"

extern const struct job_calls answer_calls;
/* Makes the answer of an ask, whose contents it takes over.  Returns NULL if memory is short; the ask is unchanged
 * then.  The answer frees itself when its last job is over. */
struct answer *answer_open(struct server *s, struct exchange *x, const struct protocol *p,
                           struct ask *k);
