/* rendering.c - reads the inputs of a rendering.  As in apply_chat_template, kwargs is split into arguments
 * (tools, documents, flags of the prompt) and variables of the template. */
#include "chat/rendering.h"

#include <string.h>

void rendering_done(struct rendering *r)
{
    json_decref(r->messages);
    json_decref(r->kwargs);
    json_decref(r->tools);
    json_decref(r->documents);
    json_decref(r->special);
}

/* Removes a boolean argument from the kwargs; null is false. */
static int take_flag(json_t *kwargs, const char *key, bool *out)
{
    const json_t *v = json_object_get(kwargs, key);
    if (!v) return 0;
    if (!json_is_boolean(v) && !json_is_null(v))
        return ERR(ARG, "kwargs: \"%s\" must be true or false", key);
    *out = json_is_true(v);
    json_object_del(kwargs, key);
    return 0;
}

static int take_list(json_t *kwargs, const char *key, json_t **out)
{
    json_t *v = json_object_get(kwargs, key);
    if (!v) return 0;
    if (!json_is_array(v) && !json_is_null(v))
        return ERR(ARG, "kwargs: \"%s\" must be a list", key);
    if (json_is_array(v)) *out = json_incref(v);
    json_object_del(kwargs, key);
    return 0;
}

/* Splits kwargs, which may be NULL or a JSON null.  kwargs itself is not changed. */
static int rendering_init(struct rendering *r, const json_t *kwargs)
{
    JSON_SCOPE(scope);
    if (!json_is_array(r->messages))
        return ERR(ARG, "messages must be a JSON list of {\"role\", \"content\"}");
    r->kwargs = json_is_object(kwargs) ? json_copy((json_t *)(uintptr_t)kwargs) : json_object();
    if (!r->kwargs) return ERR(NOMEM, "out of memory");
    TRY(json_whole(&scope));
    TRY(take_flag(r->kwargs, "add_generation_prompt", &r->o.add_generation_prompt));
    TRY(take_flag(r->kwargs, "continue_final_message", &r->o.continue_final_message));
    TRY(take_flag(r->kwargs, "allow_special_tokens", &r->o.allow_special));
    TRY(take_list(r->kwargs, "tools", &r->tools));
    TRY(take_list(r->kwargs, "documents", &r->documents));
    if (r->o.add_generation_prompt && r->o.continue_final_message)
        return ERR(ARG, "add_generation_prompt and continue_final_message exclude each other");
    r->o.tools = r->tools;
    r->o.documents = r->documents;
    r->o.kwargs = r->kwargs;
    return 0;
}

/* Reads exactly `digits` digits at *s, then the character `after` (0: none).  False if the text has others. */
static bool field(const char **s, int digits, const char *after, int lo, int hi, int *out)
{
    int v = 0;
    for (int i = 0; i < digits; i++, (*s)++) {
        if (**s < '0' || **s > '9') return false;
        v = v * 10 + (**s - '0');
    }
    if (*after && (!**s || !strchr(after, *(*s)++))) return false;
    *out = v;
    return v >= lo && v <= hi;
}

/* Reads ISO 8601 as Python writes it: a date, or a date and a time.  Fractions and zones are ignored. */
static int parse_now(const char *text, struct jinja_now *now)
{
    const char *s = text;
    struct jinja_now t = {.set = true};
    bool date = field(&s, 4, "-", 1, 9999, &t.year) && field(&s, 2, "-", 1, 12, &t.month) &&
                field(&s, 2, "", 1, 31, &t.day);
    bool only_date = date && !*s;
    bool time = date && (*s == 'T' || *s == ' ') && s++ && field(&s, 2, ":", 0, 23, &t.hour) &&
                field(&s, 2, ":", 0, 59, &t.minute) && field(&s, 2, "", 0, 60, &t.second) &&
                (!*s || strchr(".+-Z", *s));
    if (!only_date && !time)
        return ERR(ARG, "\"now\" must be a time such as \"2025-03-07T14:05:09\", not \"%.40s\"",
                   text);
    *now = t;
    return 0;
}

/* Reads an object of JSON text; null is none. */
static int read_object(const char *text, const char *what, json_t **out)
{
    if (!text) return 0;
    TRY(json_parse(text, strlen(text), what, out));
    if (json_is_object(*out) || json_is_null(*out)) return 0;
    return ERR(ARG, "%s must be a JSON object", what);
}

int rendering_of(struct rendering *r, json_t *messages, const struct rendering_texts *texts)
{
    json_t *kwargs = NULL, *special = NULL;
    *r = (struct rendering){.messages = messages};
    int e = read_object(texts->kwargs, "kwargs", &kwargs);
    if (e >= 0) e = rendering_init(r, kwargs);
    if (e >= 0) e = read_object(texts->special_tokens, "special_tokens", &special);
    if (e >= 0 && texts->now) e = parse_now(texts->now, &r->now);
    json_decref(kwargs);
    r->special = special;
    if (e < 0) return e;
    if (json_is_object(special)) r->o.special = special;
    if (texts->now) r->o.now = &r->now;
    return 0;
}
