/* reasoning.c - prompts that leave reasoning out; see reasoning.h.
 *
 * Some templates have a variable for that.  Other templates open a block of reasoning in any case; then the prompt closes it at once. */
#include "serve/reasoning.h"

#include <string.h>

static const struct dialect_mark *mark_to(const struct server *s, enum said from, enum said to)
{
    const struct dialect *d = s->dialect.dialect;
    if (!d) return NULL;
    for (const struct dialect_mark *m = d->mark; m < d->mark + countof(d->mark) && m->text; m++)
        if (m->from == from && m->to == to) return m;
    return NULL;
}

static bool ends_with(const char *s, size_t n, const struct dialect_mark *m)
{
    size_t len = strlen(m->text);
    while (n && strchr(" \n", s[n - 1]))
        n--;
    return n >= len && !memcmp(s + n - len, m->text, len);
}

bool reasoning_opens(const struct server *s, const char *end, size_t n)
{
    const struct dialect_mark *m = mark_to(s, SAID_CONTENT, SAID_REASONING);
    return m && ends_with(end, n, m);
}

int reasoning_template(const struct server *s, const kvik_chat *chat, const json_t *kwargs,
                       char **out)
{
    const struct dialect_mark *open = mark_to(s, SAID_CONTENT, SAID_REASONING),
                              *close = mark_to(s, SAID_REASONING, SAID_CONTENT);
    const char *own = kvik_tokenizer_template(s->tokenizer);
    char *text = NULL;
    *out = NULL;
    if (!json_is_false(json_object_get(kwargs, "enable_thinking")) || !open || !close || !own ||
        !json_is_true(json_object_get(kwargs, "add_generation_prompt")) || !strstr(own, open->text))
        return 0;
    TRY(kvik_chat_render(s->tokenizer, chat, &text));
    bool opened = ends_with(text, strlen(text), open);
    kvik_free(text);
    if (!opened) return 0;
    size_t len = strlen(own), size = len + strlen(close->text) + 1;
    if (len && own[len - 1] == '\n') len--; /* Jinja leaves out the last line end of a template */
    if (!(*out = mem_alloc(size))) return ERR_NOMEM;
    snprintf(*out, size, "%.*s%s", (int)len, own, close->text);
    return 0;
}
