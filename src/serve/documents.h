/* documents.h - finds the documents of a request in its prompt.  Rows that another prompt has computed for a document can then
 * be reused, wherever the document stood there.
 *
 * A request marks parts of messages, or of a prompt that is no chat, as documents ("movable": true), and says with
 * "moved_chunks" how many tokens of each are computed again.  A document whose text a template has changed is not found,
 * so all of it is computed.  The command finds the documents of --document with --chat in the same way, so this file is
 * built without libevent, too. */
#pragma once
#include "base/json.h"
#include "kvik_loop.h"

struct document_span {
    size_t from, to; /* tokens */
};
struct documents {
    json_t *texts; /* owned array of texts, in their order; NULL: the request moves nothing */
    uint64_t recompute;
    double fraction;
    struct document_span *span; /* [n] owned, in their order */
    uint32_t n;
};
/* Notes the marked parts of a message's content, and those of the results of tools in it. */
int documents_note(struct documents *d, const json_t *content);
/* Finds the spans of the marked parts in the n tokens of the prompt. */
int documents_find(struct documents *d, const kvik_tokenizer *t, const int32_t *ids, size_t n);
void documents_done(struct documents *d);
