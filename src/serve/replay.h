/* replay.h - exact replay: the tokens of earlier answers, by the conversations that they end.
 *
 * A client sends an answer back as text.  Rendered and tokenized again it may become other tokens than those that were
 * chosen: a template drops reasoning or spells tool calls otherwise, a tokenizer cuts a text in another place.  Then the
 * rows of the cache would not fit, and the whole answer would be computed again.  So the tokens are kept beside a digest
 * of the messages, and the next turn continues from them. */
#pragma once
#include "base/digest.h"
#include "serve/protocol.h"

struct replay;
int replay_open(struct replay **out);
void replay_close(struct replay *r);
/* Adds a message to the digest of a conversation: what it says and the calls it makes, not how they are spelled. */
void replay_add(struct digest *d, const json_t *message);
/* Begins a digest: what else the answer depends on, which is the template's variables and who asks. */
void replay_begin(struct digest *d, const json_t *kwargs, uint64_t client);
/* Keeps the n ids that a conversation is.  Where memory is short, nothing is kept. */
void replay_keep(struct replay *r, const struct digest *d, const int32_t *ids, size_t n);
/* Finds the ids of a conversation; *ids is the caller's (mem_free).  False: there are none. */
bool replay_find(struct replay *r, const struct digest *d, int32_t **ids, size_t *n);
/* Encodes the messages of an ask, as ask_render; begins with remembered tokens where there are some.  Fills
 * k->history for the answer. */
int replay_render(struct ask *k, const struct server *s, uint64_t client);
