/* jinja.c - compiles a template, runs it, and keeps the limits of a run.  A rendering owns one arena for its
 * values.  It appends to the caller's buffer only if it succeeds. */
#include "base/utf8.h"
#include "chat/node.h"
#include "chat/prompt.h"

#include <stdio.h>
#include <string.h>

#define SOURCE_MAX  (1u << 20)
#define COMPILE_MAX (64u << 20)

int render_work(struct render_state *r, size_t steps)
{
    r->steps += steps;
    if (r->steps > JINJA_MAX_STEPS || steps > JINJA_MAX_STEPS)
        return ERR(LIMIT, "the template takes more than %u steps", JINJA_MAX_STEPS);
    return 0;
}

int render_work_bytes(struct render_state *r, size_t bytes)
{
    if (bytes >= (size_t)JINJA_MAX_STEPS * BYTES_PER_STEP)
        return render_work(r, JINJA_MAX_STEPS + 1);
    r->bytes += bytes; /* bytes short of a whole step are kept and count with the next ones */
    size_t steps = r->bytes / BYTES_PER_STEP;
    r->bytes %= BYTES_PER_STEP;
    return render_work(r, steps);
}

int render_enter(struct render_state *r)
{
    if (r->depth >= RENDER_MAX_DEPTH)
        return ERR(LIMIT, "nested deeper than %u levels (maximum recursion depth exceeded)",
                   RENDER_MAX_DEPTH);
    r->depth++;
    return 0;
}

static int compile_source(struct compile *c, const char *src, size_t n)
{
    static const struct str loop = {"loop", 4, 4, NULL};
    TRY(sym_intern(c, &loop, &c->j->sym_loop));
    TRY(lex_all(c, src, n));
    return parse_template(c, &c->j->root);
}

int jinja_compile(const char *src, size_t n, struct jinja **out)
{
    if (n > SOURCE_MAX)
        return ERR(LIMIT, "the template has %zu bytes, the limit is %u", n, SOURCE_MAX);
    for (size_t at = 0, len, line = 1; at < n; at += len) {
        if (utf8_decode(src + at, n - at, &len) == UTF8_BAD)
            return ERR(FORMAT, "line %zu: the template is not UTF-8", line);
        line += src[at] == '\n';
    }
    struct jinja *j = mem_alloc(sizeof *j);
    if (!j) return ERR_NOMEM;
    arena_init(&j->mem, COMPILE_MAX);
    struct compile *c = mem_alloc(sizeof *c);
    int e = c ? 0 : ERR_NOMEM;
    if (c) {
        c->j = j;
        e = compile_source(c, src, n);
        mem_free(c->tok);
        mem_free(c);
    }
    if (e < 0)
        jinja_drop(j);
    else
        *out = j;
    return e;
}

void jinja_drop(struct jinja *j)
{
    if (!j) return;
    arena_done(&j->mem);
    mem_free(j);
}

static int run_root(struct render_state *r)
{
    struct scope *none;
    if (r->j->n_sym) RUN_NEW(r, r->ctx, r->j->n_sym);
    TRY(frame_push(r, NULL, &none));
    for (uint32_t i = 0; i < r->j->n_early; i++) {
        struct val v;
        const struct str *name = r->j->sym[r->j->early[i]];
        TRY(val_undef(r, &v, "'%.*s' is undefined", (int)MIN(name->n, (size_t)200), name->s));
        TRY(frame_set(r, r->j->early[i], v));
    }
    return node_exec(r, r->j->root);
}

/* Copies the ranges, moved by `by` bytes. */
static int copy_ranges(const struct ranges *g, size_t by, struct jinja_span **out, size_t *n)
{
    struct jinja_span *v = mem_array(g->n, sizeof *v);
    if (!v) return ERR_NOMEM;
    for (size_t i = 0; i < g->n; i++)
        v[i] = (struct jinja_span){g->v[i].from + by, g->v[i].to + by};
    *out = v;
    *n = g->n;
    return 0;
}

void rendered_done(struct rendered *m)
{
    mem_free(m->span);
    mem_free(m->foreign);
    *m = (struct rendered){0};
}

int jinja_run(const struct jinja *j, const json_t *vars, const json_t *trusted,
              const struct jinja_now *now, struct buf *out, struct rendered *marks)
{
    struct text_build text;
    struct render_state r = {.key = hash_key_new(),
                             .j = j,
                             .vars = vars,
                             .trusted = trusted,
                             .out = &text,
                             .root_out = &text};
    struct rendered m = {0};
    if (now) r.now = *now;
    r.foreign.all = true;
    text_init(&text, JINJA_MAX_OUTPUT);
    arena_init(&r.mem, RENDER_MAX_MEMORY);
    int e = run_root(&r);
    if (e < 0 && r.err_line) err_prefix(e, "line %d", r.err_line);
    if (e >= 0) e = copy_ranges(&r.spans, out->len, &m.span, &m.n_span);
    if (e >= 0) e = copy_ranges(&text.foreign, out->len, &m.foreign, &m.n_foreign);
    if (e >= 0) e = buf_append(out, text.b.data ? text.b.data : "", text.b.len);
    if (e < 0)
        rendered_done(&m);
    else
        *marks = m;
    arena_done(&r.mem);
    buf_done(&text.b);
    return e < 0 ? e : 0;
}
