/* prompt.h - from messages to text, below chat_render: what tests drive without a tokenizer. */
#pragma once
#include "chat/chat.h"

/* special: an object of the named special tokens' texts, or NULL. */
int prompt_render(const char *template_text, const json_t *special, const json_t *messages,
                  const struct chat_options *o, struct buf *out, struct jinja_span **span,
                  size_t *n_span);
