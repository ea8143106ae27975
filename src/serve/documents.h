/* documents.h - the documents of a prompt whose rows may come from another place: where they are in the prompt.
 *
 * A request marks parts of messages, or of a prompt that is no chat ("movable": true), and says with "moved_chunks" how
 * much of each is computed again.  What is found of them in the tokens of the prompt are places; a document that a
 * template has changed is not found, and computed.  The command finds those of --document with --chat in the same way,
 * so this file is built without libevent, too. */
#pragma once
#include "base/json.h"
#include "kvik_loop.h"

struct place {
    size_t from, to; /* tokens */
};
struct documents {
    json_t *texts; /* owned array of texts, in their order; NULL: the request moves nothing */
    uint64_t recompute;
    double fraction;
    struct place *place; /* [n] owned, in their order */
    uint32_t n;
};
/* Notes the marked parts of a message's content, and those of the results of tools in it. */
int documents_note(struct documents *d, const json_t *content);
/* Finds them in the n tokens of the prompt. */
int documents_find(struct documents *d, const kvik_tokenizer *t, const int32_t *ids, size_t n);
void documents_done(struct documents *d);
