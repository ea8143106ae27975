/* fuzz_template.c - a chat template and, after a NUL byte, its variables as JSON. A rendered text
 * must be valid UTF-8, the same twice, within the limits, and must mark the bytes that came from
 * the variables. A failure must leave nothing in the output. */
#include "base/utf8.h"
#include "chat/prompt.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#define MUST(x)                                                                                    \
    do {                                                                                           \
        if (!(x)) abort();                                                                         \
    } while (0)

static void check_ranges(const struct jinja_span *v, size_t n, size_t len)
{
    for (size_t i = 0; i < n; i++) {
        MUST(v[i].from < v[i].to && v[i].to <= len);
        MUST(i == 0 || v[i - 1].to < v[i].from);
    }
}

static int render(const struct jinja *j, const json_t *vars, struct buf *out)
{
    static const struct jinja_now now = {2024, 2, 29, 23, 59, 58, true};
    struct rendered m = {0};
    int e = jinja_run(j, vars, NULL, &now, out, &m);
    if (e < 0) {
        MUST(out->len == 0 && err_last()[0]);
        return e;
    }
    MUST(out->len <= JINJA_MAX_OUTPUT);
    MUST(out->len == 0 || utf8_valid(out->data, out->len));
    check_ranges(m.foreign, m.n_foreign, out->len);
    rendered_done(&m);
    return 0;
}

static json_t *variables(const uint8_t *data, size_t size)
{
    json_t *vars = NULL;
    if (size && json_parse((const char *)data, size, "variables", &vars) == 0 &&
        json_is_object(vars))
        return vars;
    json_decref(vars);
    return json_pack("{s:[{s:s,s:s},{s:s,s:s}],s:b,s:s}", "messages", "role", "user", "content",
                     "a \xC3\xA9<b>", "role", "assistant", "content", "x", "add_generation_prompt",
                     1, "s", "Hello, World");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t n = nul ? (size_t)(nul - data) : size;
    struct jinja *j = NULL;
    if (jinja_compile((const char *)data, n, &j) < 0) {
        MUST(!j && err_last()[0]);
        return 0;
    }
    json_t *vars = variables(nul ? nul + 1 : NULL, nul ? size - n - 1 : 0);
    struct buf a, b;
    buf_init(&a, 2 * JINJA_MAX_OUTPUT);
    buf_init(&b, 2 * JINJA_MAX_OUTPUT);
    int e = render(j, vars, &a);
    MUST(render(j, vars, &b) == e);
    MUST(a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0));
    buf_done(&a);
    buf_done(&b);
    json_decref(vars);
    jinja_drop(j);
    return 0;
}
