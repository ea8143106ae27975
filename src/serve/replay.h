/* replay.h - exact replay: remembers the tokens of answers, by the conversations that they end.
 *
 * A client sends an answer back as text.  If that text is rendered and tokenized again, it can become other tokens than the model chose: a
 * template drops reasoning or spells tool calls otherwise, and a tokenizer cuts the text at other places.  Then the rows of the cache would
 * not fit, and the whole answer would be computed again.  So the server keeps the tokens beside a digest of the messages, and the next turn
 * continues from them. */
#pragma once
#include "base/digest.h"
#include "serve/protocol.h"

struct replay;
int replay_open(struct replay **out);
void replay_close(struct replay *r);
/* Adds a message to the digest of a conversation: its text and its calls, however they are spelled. */
void replay_add(struct digest *d, const json_t *message);
/* Begins a digest with the other things that an answer depends on: the template's variables and the client. */
void replay_begin(struct digest *d, const json_t *kwargs, uint64_t client);
/* Keeps the n ids of a conversation.  If memory is short it keeps nothing. */
void replay_keep(struct replay *r, const struct digest *d, const int32_t *ids, size_t n);
/* Finds the ids of a conversation; *ids is the caller's (mem_free).  False: there are none. */
bool replay_find(struct replay *r, const struct digest *d, int32_t **ids, size_t *n);
/* Encodes the messages of an ask, as ask_render does, but begins with remembered tokens if there are some.  Fills
 * k->history for the answer. */
int replay_render(struct ask *k, const struct server *s, uint64_t client);
