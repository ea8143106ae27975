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
/* Takes the reference to messages, also after an error; kwargs NULL: none. */
int rendering_parse(struct rendering *r, json_t *messages, const char *kwargs);
/* Reads an object that has messages, kwargs, special_tokens and the time that strftime_now gives.  Variables of kwargs
 * hide special tokens of the same name. */
int rendering_of(struct rendering *r, const json_t *o);
void rendering_done(struct rendering *r);
