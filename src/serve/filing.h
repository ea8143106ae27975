/* filing.h - the texts of slots as files. */
#pragma once
#include "serve/server.h"

/* Answers a request to save the text of a slot, or to restore it.  Returns an error code if it did not begin. */
int filing_save(struct server *s, struct exchange *x, uint32_t slot);
int filing_restore(struct server *s, struct exchange *x, uint32_t slot);
