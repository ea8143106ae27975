/* prompt.h - from messages to text, without a tokenizer.  chat_render is built on it, and tests call it. */
#pragma once
#include "chat/chat.h"

struct rendered {
    struct jinja_span *span;    /* owned: {% generation %} blocks */
    struct jinja_span *foreign; /* owned: bytes that came from vars and not from the template */
    size_t n_span, n_foreign;
};
void rendered_done(struct rendered *m);
/* Renders with `vars`, an object whose keys become global variables.  trusted: variables whose text counts as the
 * template's own, or NULL.  The caller frees the marks. */
int jinja_run(const struct jinja *j, const json_t *vars, const json_t *trusted,
              const struct jinja_now *now, struct buf *out, struct rendered *marks);

/* Renders messages.  special: object with the texts of named special tokens, or NULL. */
int prompt_render(const char *template_text, const json_t *special, const json_t *messages,
                  const struct chat_options *o, struct buf *out, struct rendered *marks);
