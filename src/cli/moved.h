/* moved.h - documents before a prompt, whose rows come from earlier runs (--document of kvik generate). */
#pragma once
#include "base/buf.h"
#include "cli/cli.h"
#include "kvik_loop.h"

struct moved {
    int32_t *ids; /* [n] owned: the whole prompt */
    size_t n;
    size_t head;       /* tokens before the first document */
    kvik_chunk *chunk; /* [n_chunks] owned: documents, and what is between and behind them */
    uint32_t n_chunks, spliced; /* spliced: up to the last document */
};
/* Reads the files and encodes them and the prompt.  The ids of *out are the caller's. */
int moved_read(struct moved *m, const kvik_tokenizer *t, const struct arg_list *files,
               const struct text *prompt, kvik_source *out);
/* For a chat: reads the files, and makes the message of them and the prompt.  *texts has the documents; the caller releases it. */
int moved_message(const struct arg_list *files, const struct text *prompt, struct buf *message,
                  json_t **texts);
/* Finds the documents in the tokens of the chat with that message.  One that the template has changed is no document. */
int moved_find(struct moved *m, const kvik_tokenizer *t, json_t *texts, const kvik_source *chat);
/* Makes a sequence of the documents: those that the directory lacks are computed by themselves and saved there, and all but `recompute`
 * tokens of each are read where they are. */
int moved_begin(const struct moved *m, struct engine *s, const char *dir, uint32_t recompute,
                kvik_seq *seq);
void moved_done(struct moved *m);
