/* prompt.h - from messages to text, below chat_render: what tests drive without a tokenizer. */
#pragma once
#include "chat/chat.h"

struct rendered {
    struct jinja_span *span;    /* owned: {% generation %} blocks */
    struct jinja_span *foreign; /* owned: bytes that came from vars, not from the template */
    size_t n_span, n_foreign;
};
void rendered_done(struct rendered *m);
/* Renders with vars, an object whose keys become global variables.  trusted (may be NULL): variables
 * whose text counts as written by the template.  marks is the caller's to free. */
int jinja_run(const struct jinja *j, const json_t *vars, const json_t *trusted,
              const struct jinja_now *now, struct buf *out, struct rendered *marks);

/* Renders messages.  special: an object with the texts of the named special tokens, or NULL. */
int prompt_render(const char *template_text, const json_t *special, const json_t *messages,
                  const struct chat_options *o, struct buf *out, struct rendered *marks);
