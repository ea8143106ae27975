/* prompt.h - from messages to text, below chat_render: what tests drive without a tokenizer. */
#pragma once
#include "chat/chat.h"

struct rendered {
    struct jinja_span *span;    /* owned: {% generation %} blocks */
    struct jinja_span *foreign; /* owned: bytes that came from vars, not from the template */
    size_t n_span, n_foreign;
};
void rendered_done(struct rendered *m);
/* jinja_render, with variables whose text counts as the template's own, and provenance. */
int jinja_run(const struct jinja *j, const json_t *vars, const json_t *trusted,
              const struct jinja_now *now, struct buf *out, struct rendered *marks);

/* special: an object of the named special tokens' texts, or NULL. */
int prompt_render(const char *template_text, const json_t *special, const json_t *messages,
                  const struct chat_options *o, struct buf *out, struct rendered *marks);
