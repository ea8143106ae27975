/* chat.h - floor 4: chat templates: a Jinja engine for what published templates use, and the step from messages to token
 * ids.  A template reaches its data, nothing else.  Parts of Jinja that no known template uses are refused by
 * name: "line 3: the filter 'groupby' is not supported in chat templates". */
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
/* Compiles a template with the settings of Transformers (Hugging Face): trim_blocks, lstrip_blocks,
 * loop controls, {% generation %}, tojson without HTML escaping.  Errors begin with "line 12: ". */
int jinja_compile(const char *src, size_t n, struct jinja **out);
void jinja_drop(struct jinja *j);
/* The local time that strftime_now shows.  Not set, or no struct given: the time of the clock. */
struct jinja_now {
    int year, month, day, hour, minute, second;
    bool set;
};
/* The arguments of apply_chat_template.  kwargs may hold tools, documents, add_generation_prompt and any template
 * variable.  Special tokens of the tokenizer become variables (bos_token, ...). */
struct chat_options {
    const char *template_text; /* NULL: the template of the tokenizer */
    const json_t *special; /* texts of special tokens in place of those of the tokenizer, or NULL */
    const json_t *tools, *documents, *kwargs;
    bool add_generation_prompt, continue_final_message;
    bool allow_special; /* content may contain control tokens; default false: it stays plain text */
    const struct jinja_now *now;
};
int chat_render(const struct tok *t, const json_t *messages, const struct chat_options *o,
                struct buf *out);
/* Renders messages and encodes the text.  The text of a special token inside messages, tools, documents or kwargs
 * never becomes a control token unless allow_special is set, not even if the template wrote half of it.  The
 * rendered text is the same in both cases.  `text` may be NULL. */
int chat_encode(const struct tok *t, const json_t *messages, const struct chat_options *o,
                struct ids *out, struct buf *text);
/* As chat_encode, with a flag for each id: true if some of its text lies inside a {% generation %} block, where
 * templates put the words of the model.  The caller frees *marked, which is as long as *out. */
int chat_encode_marked(const struct tok *t, const json_t *messages, const struct chat_options *o,
                       struct ids *out, bool **marked);
/* Adds the fields of message i to an object.  more: text of a JSON object with further keys, or NULL.  A key of
 * `more` that is set already is an error. */
int chat_message(json_t *o, size_t i, const char *role, const char *content, const char *more);
