/* rendering.h - the inputs of a rendering, as JSON gives them. */
#pragma once
#include "chat/chat.h"

/* rendering_done releases it, also after an error. */
struct rendering {
    json_t *messages, *kwargs;           /* owned; kwargs without the keys that o holds */
    json_t *tools, *documents, *special; /* owned */
    struct jinja_now now;
    struct chat_options o;
};
/* Texts of JSON, and a time; NULL: not given. */
struct rendering_texts {
    const char *kwargs, *special_tokens, *now;
};
/* Takes the reference to messages, also after an error.  Variables of kwargs hide special tokens of the same name. */
int rendering_of(struct rendering *r, json_t *messages, const struct rendering_texts *texts);
void rendering_done(struct rendering *r);
