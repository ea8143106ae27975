/* chat.h - chat templates: a Jinja engine for what real templates use (no attribute access beyond
 * data, no import, no I/O) and the step from messages to token ids. */
#pragma once
#include "base/base.h"
#include "base/buf.h"
#include "base/json.h"

struct tok;
struct ids;
struct jinja;
#define JINJA_MAX_DEPTH  128u       /* nesting of source and of calls */
#define JINJA_MAX_NAMES  1024u      /* names of variables in one template */
#define JINJA_MAX_STEPS  1000000u   /* evaluated nodes per rendering */
#define JINJA_MAX_OUTPUT (4u << 20) /* bytes */
struct jinja_span {
    size_t from, to;
}; /* bytes of the output */
/* Errors carry the line: "line 12: unknown filter 'foo'".  Settings are the reference's: trim_blocks,
 * lstrip_blocks, loop controls, the generation extension, tojson without HTML escaping. */
int jinja_compile(const char *src, size_t n, struct jinja **out);
void jinja_drop(struct jinja *j);
/* The local time that strftime_now shows; not set, or a NULL pointer: the clock. */
struct jinja_now {
    int year, month, day, hour, minute, second;
    bool set;
};
/* Renders messages as apply_chat_template does: kwargs may hold tools, documents,
 * add_generation_prompt, and any template variable; special tokens of tok become variables
 * (bos_token, ...).  `template` NULL: the tokenizer's own. */
struct chat_options {
    const char *template_text;
    const json_t *tools, *documents, *kwargs;
    bool add_generation_prompt, continue_final_message;
    bool allow_special; /* content may contain control tokens; default false: it stays plain text */
    const struct jinja_now *now;
};
int chat_render(const struct tok *t, const json_t *messages, const struct chat_options *o,
                struct buf *out);
/* Rendering and encoding in one: text of special tokens that comes from message content, tools,
 * documents or kwargs never becomes a control token unless allow_special, not even one whose other
 * half the template wrote.  The text is the same either way.  `text` may be NULL. */
int chat_encode(const struct tok *t, const json_t *messages, const struct chat_options *o,
                struct ids *out, struct buf *text);
