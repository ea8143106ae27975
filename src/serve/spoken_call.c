/* spoken_call.c - the text of tool calls, in the forms in which models write them; see spoken.h. */
#include "serve/spoken_call.h"
#include "base/buf.h"

#include <string.h>

/* A part of a text, without white space at both ends. */
struct excerpt {
    const char *p;
    size_t n;
};

static struct excerpt trim(const char *p, size_t n)
{
    while (n && strchr(" \n\t\r", *p))
        p++, n--;
    while (n && strchr(" \n\t\r", p[n - 1]))
        n--;
    return (struct excerpt){p, n};
}

static const char *within(struct excerpt t, const char *what)
{
    return memmem(t.p, t.n, what, strlen(what));
}

static bool begins(struct excerpt t, const char *what)
{
    return t.n >= strlen(what) && memcmp(t.p, what, strlen(what)) == 0;
}

static struct excerpt after(struct excerpt t, const char *from)
{
    return trim(from, t.n - (size_t)(from - t.p));
}

const json_t *spoken_function(const json_t *tools, const char *name)
{
    const json_t *tool;
    size_t i;
    json_array_foreach(tools, i, tool)
    {
        const json_t *f = json_object_get(tool, "function");
        const char *own = json_string_value(json_object_get(f ? f : tool, "name"));
        if (own && !strcmp(own, name)) return f ? f : tool;
    }
    return NULL;
}

static json_t *parse(struct excerpt t, size_t flags)
{
    json_t *v = json_loadb(t.p, t.n, flags | JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    return v;
}

static bool is_object(struct excerpt t)
{
    json_t *v = parse(t, 0);
    bool is = json_is_object(v);
    json_decref(v);
    return is;
}

/* Adds a call to the list; false: this is no call. */
static bool add_named(json_t *list, struct excerpt name, const char *id, struct excerpt arguments)
{
    if (!name.n || name.n > 256 || (arguments.n && !is_object(arguments))) return false;
    if (!arguments.n) arguments = (struct excerpt){"{}", 2};
    json_t *one = json_pack("{s:s%, s:s?, s:s%}", "name", name.p, name.n, "id", id, "arguments",
                            arguments.p, arguments.n);
    return one && json_array_append_new(list, one) == 0;
}

/* --- JSON: {"name": .., "arguments": {..}}, one or several. */

/* Returns the end of the JSON value at t.p; the text is known to be JSON. */
static const char *value_end(const char *p, const char *end)
{
    int depth = 0;
    for (bool quoted = false; p < end; p++) {
        if (quoted && *p == '\\') {
            p++;
            continue;
        }
        if (*p == '"') quoted = !quoted;
        if (quoted) continue;
        if (*p == '{' || *p == '[') depth++;
        if (!depth && (*p == ',' || *p == '}' || *p == ']')) return p;
        if (*p == '}' || *p == ']') depth--;
    }
    return p;
}

/* Finds the text of one member in the text of an object. */
static struct excerpt member(struct excerpt t, const char *key)
{
    const char *p = t.p + 1, *end = t.p + t.n;
    size_t n = strlen(key);
    while (p < end) {
        while (p < end && strchr(" \n\t\r,", *p))
            p++;
        const char *name = p + 1, *close = name;
        while (close < end && *close != '"')
            close += *close == '\\' ? 2 : 1;
        const char *colon = close < end ? memchr(close, ':', (size_t)(end - close)) : NULL;
        if (!colon) break;
        const char *stop = value_end(colon + 1, end);
        if ((size_t)(close - name) == n && !memcmp(name, key, n))
            return trim(colon + 1, (size_t)(stop - colon - 1));
        p = stop + 1;
    }
    return (struct excerpt){0};
}

/* Adds the call of an object.  Models write its arguments under several names, and sometimes as a string. */
static bool add_object(json_t *list, const json_t *v, struct excerpt text)
{
    static const char *const names[] = {"name", "tool_name", "function"}, *const keys[] = {
                                                                              "arguments",
                                                                              "parameters", "input",
                                                                              "args"};
    const json_t *inner = json_object_get(v, "function"), *given = NULL;
    const char *name = NULL, *key = NULL,
               *id = json_string_value(json_object_get(v, "tool_call_id"));
    if (json_is_object(inner)) return add_object(list, inner, member(text, "function"));
    for (size_t i = 0; i < countof(names) && !name; i++)
        name = json_string_value(json_object_get(v, names[i]));
    for (size_t i = 0; i < countof(keys) && !given; i++)
        if ((given = json_object_get(v, keys[i]))) key = keys[i];
    if (!name && json_object_size(v) == 1) { /* {"name": {arguments}} */
        name = json_object_iter_key(json_object_iter((json_t *)(uintptr_t)v));
        given = json_object_get(v, key = name);
    }
    if (!name) return false;
    struct excerpt arguments = {0};
    if (json_is_object(given)) arguments = member(text, key);
    if (json_is_string(given))
        arguments = trim(json_string_value(given), json_string_length(given));
    if (given && !json_is_null(given) && !arguments.n && !json_is_string(given)) return false;
    return add_named(list, (struct excerpt){name, strlen(name)}, id, arguments);
}

/* Adds the values of a text: objects, or (arrays) arrays of objects, one behind another.  An array is parsed again
 * item by item, so arrays inside of arrays could take time without end. */
static bool add_values(json_t *list, struct excerpt t, bool arrays)
{
    while (t.n) {
        json_error_t where;
        json_t *v = json_loadb(t.p, t.n, JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, &where);
        if (!v) return false;
        struct excerpt own = {t.p, (size_t)where.position};
        bool good = false;
        if (json_is_array(v))
            good = arrays && own.n > 1 && add_values(list, trim(own.p + 1, own.n - 2), false);
        else
            good = add_object(list, v, own);
        json_decref(v);
        if (!good) return false;
        t = after(t, t.p + own.n);
        while (t.n && (*t.p == ';' || *t.p == ','))
            t = trim(t.p + 1, t.n - 1);
    }
    return true;
}

/* --- Marks between names and values. */

/* Makes a value without quotes: text if the function's schema wants text, else JSON if it is JSON. */
static json_t *plain_value(const json_t *function, struct excerpt key, struct excerpt text)
{
    const json_t *properties =
        json_object_get(json_object_get(function, "parameters"), "properties");
    char *name = mem_strndup(key.p, key.n);
    const char *type =
        json_string_value(json_object_get(name ? json_object_get(properties, name) : NULL, "type"));
    json_t *v = NULL;
    if (!type || strcmp(type, "string") != 0) v = parse(text, 0);
    mem_free(name);
    return v ? v : json_stringn(text.p, text.n);
}

static bool put_value(json_t *object, const json_t *function, struct excerpt key,
                      struct excerpt value)
{
    char *name = key.n ? mem_strndup(key.p, key.n) : NULL;
    json_t *v = name ? plain_value(function, key, value) : NULL;
    bool good = v && json_object_set_new(object, name, v) == 0;
    mem_free(name);
    return good;
}

/* Cuts a value that stands on lines of its own; only the line ends around it are left out. */
static struct excerpt lines(const char *p, size_t n)
{
    if (n && *p == '\n') p++, n--;
    if (n && p[n - 1] == '\n') n--;
    return (struct excerpt){p, n};
}

static bool add_built(json_t *list, struct excerpt name, json_t *object)
{
    char *text = NULL;
    bool good = object && json_text(object, &text) >= 0 &&
                add_named(list, name, NULL, (struct excerpt){text, strlen(text)});
    mem_free(text);
    json_decref(object);
    return good;
}

static const json_t *tool_named(const json_t *tools, struct excerpt name)
{
    char *text = mem_strndup(name.p, name.n);
    const json_t *f = text ? spoken_function(tools, text) : NULL;
    mem_free(text);
    return f;
}

/* Adds <function=NAME> <parameter=KEY> VALUE </parameter> .. </function>; the part between may also be a JSON
 * object. */
static bool add_tagged(json_t *list, struct excerpt t, const json_t *tools)
{
    static const char open[] = "<function=", close[] = "</function>",
                      value[] = "<parameter=", shut[] = "</parameter>";
    while (begins(t, open)) {
        const char *end = within(t, close), *angle = memchr(t.p, '>', t.n);
        if (!angle) return false;
        if (!end) end = t.p + t.n;
        struct excerpt name =
                           trim(t.p + sizeof open - 1, (size_t)(angle - t.p) - (sizeof open - 1)),
                       inner = trim(angle + 1, end > angle ? (size_t)(end - angle - 1) : 0);
        t = end < t.p + t.n ? after(t, end + sizeof close - 1) : (struct excerpt){0};
        if (!inner.n || *inner.p == '{') {
            if (!add_named(list, name, NULL, inner)) return false;
            continue;
        }
        json_t *object = json_object();
        const json_t *f = tool_named(tools, name);
        bool good = true;
        while (good && begins(inner, value)) {
            const char *gt = memchr(inner.p, '>', inner.n), *stop = within(inner, shut);
            good = gt && stop && gt < stop &&
                   put_value(object, f,
                             trim(inner.p + sizeof value - 1,
                                  (size_t)(gt - inner.p) - (sizeof value - 1)),
                             lines(gt + 1, (size_t)(stop - gt - 1)));
            if (good) inner = after(inner, stop + sizeof shut - 1);
        }
        if (!good || inner.n) {
            json_decref(object);
            return false;
        }
        if (!add_built(list, name, object)) return false;
    }
    return t.n == 0 && json_array_size(list) > 0;
}

/* Adds NAME <arg_key>KEY</arg_key> <arg_value>VALUE</arg_value> .. */
static bool add_pairs(json_t *list, struct excerpt t, const json_t *tools)
{
    const char *at = within(t, "<arg_key>");
    struct excerpt name = trim(t.p, (size_t)(at - t.p));
    const json_t *f = tool_named(tools, name);
    json_t *object = json_object();
    bool good = true;
    for (t = after(t, at); good && begins(t, "<arg_key>");) {
        const char *k = t.p + 9, *kend = within(t, "</arg_key>"), *v = within(t, "<arg_value>"),
                   *vend = within(t, "</arg_value>");
        good = kend && v && vend && kend < v && v < vend &&
               put_value(object, f, trim(k, (size_t)(kend - k)),
                         (struct excerpt){v + 11, (size_t)(vend - v - 11)});
        if (good) t = after(t, vend + 12);
    }
    if (good && !t.n) return add_built(list, name, object);
    json_decref(object);
    return false;
}

/* Cuts the arguments out of a fence of Markdown, if they stand in one. */
static struct excerpt unfence(struct excerpt t)
{
    if (!begins(t, "```")) return t;
    const char *line = memchr(t.p, '\n', t.n);
    if (!line) return t;
    t = after(t, line);
    return t.n >= 3 && !memcmp(t.p + t.n - 3, "```", 3) ? trim(t.p, t.n - 3) : t;
}

/* Reads NAME [ARGS] {..}, with the separators of several models. */
bool spoken_parted(const char *text, size_t n, char *name, size_t name_size, char *id,
                   size_t id_size, size_t *from)
{
    static const char *const marks[] = {"[ARGS]", "<｜tool▁sep｜>", "<|tool_call_argument_begin|>"};
    struct excerpt t = trim(text, n);
    const char *at = NULL;
    size_t i = 0;
    while (i < countof(marks) && !(at = within(t, marks[i])))
        i++;
    if (!at) return false;
    struct excerpt own = trim(t.p, (size_t)(at - t.p)), rest = after(t, at + strlen(marks[i]));
    const char *call = within(own, "[CALL_ID]"), *line, *colon;
    *id = 0;
    if (call) {
        struct excerpt given = after(own, call + 9);
        snprintf(id, id_size, "%.*s", (int)MIN(given.n, 100), given.p);
        own = trim(own.p, (size_t)(call - own.p));
    }
    if (own.n == 8 && begins(own, "function") && (line = memchr(rest.p, '\n', rest.n))) {
        own = trim(rest.p, (size_t)(line - rest.p)); /* DeepSeek-R1 */
        rest = after(rest, line);
    }
    if (begins(own, "functions.") && (colon = memrchr(own.p, ':', own.n))) {
        snprintf(id, id_size, "%.*s", (int)MIN(own.n, 100), own.p); /* Kimi: functions.NAME:0 */
        own = trim(own.p + 10, (size_t)(colon - own.p - 10));
    }
    if (!own.n || own.n >= name_size) return false;
    snprintf(name, name_size, "%.*s", (int)own.n, own.p);
    *from = (size_t)(rest.p - text);
    return true;
}

static bool add_parted(json_t *list, struct excerpt t)
{
    char name[256], id[128];
    size_t from;
    if (!spoken_parted(t.p, t.n, name, sizeof name, id, sizeof id, &from)) return false;
    return add_named(list, (struct excerpt){name, strlen(name)}, *id ? id : NULL,
                     unfence(trim(t.p + from, t.n - from)));
}

static bool read_any(json_t *list, struct excerpt t, const json_t *tools)
{
    t = unfence(t);
    if (!t.n) return false;
    if (begins(t, "<function=")) return add_tagged(list, t, tools);
    if (*t.p == '{' || *t.p == '[') {
        if (add_values(list, t, true)) return true;
        json_array_clear(list);
        return *t.p == '[' && spoken_words(list, t.p, t.n);
    }
    if (begins(t, "call:")) return spoken_words(list, t.p, t.n);
    if (within(t, "<arg_key>")) return add_pairs(list, t, tools);
    return tool_named(tools, t) ? add_named(list, t, NULL, (struct excerpt){0})
                                : add_parted(list, t);
}

json_t *spoken_read(const char *name, const char *text, size_t n, const json_t *tools, bool known)
{
    json_t *list = json_array(), *one;
    struct excerpt t = trim(text, n);
    size_t i;
    if (!list) return NULL;
    bool good = name ? add_named(list, (struct excerpt){name, strlen(name)}, NULL, t)
                     : read_any(list, t, tools) && json_array_size(list);
    json_array_foreach(list, i, one)
    {
        if (known && !spoken_function(tools, json_string_value(json_object_get(one, "name"))))
            good = false;
    }
    if (good) return list;
    json_decref(list);
    return NULL;
}
