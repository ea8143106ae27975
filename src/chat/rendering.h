/* rendering.h - reads the inputs of a rendering from JSON. */
#pragma once
#include "chat/chat.h"

/* rendering_done releases it, also after an error. */
struct rendering {
    json_t *messages, *kwargs;           /* owned; kwargs without the keys that o holds */
    json_t *tools, *documents, *special; /* owned */
    struct jinja_now now;
    struct chat_options o;
};
/* JSON texts, and a time.  NULL: not given. */
struct rendering_texts {
    const char *kwargs, *special_tokens, *now;
};
/* Takes over the reference to messages, also after an error.  A variable of kwargs hides a special token of the
 * same name. */
int rendering_of(struct rendering *r, json_t *messages, const struct rendering_texts *texts);
void rendering_done(struct rendering *r);
