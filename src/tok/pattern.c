/* pattern.c - regular expressions by PCRE2, and literal search.  Patterns come from model files and are not
 * trusted: length, nesting, match steps, heap and CPU time are bounded.
 *
 * PCRE2 limits the steps from each start position, and one step may read the rest of the text.  So a search takes
 * a window of start positions with few steps first.  If these are not enough, it tries again with twice as many.
 * The thread's CPU clock is read after each window, before each repetition and after every few matches.  So no
 * pattern costs more than a few times the budget of its text. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "base/utf8.h"
#include "tok/oniguruma.h"
#include "tok/tok_int.h"

#include <pcre2.h>
#include <string.h>
#include <time.h>

/* Most steps of a search, and 8 more for each byte of text; real patterns take about one for each byte. */
#define MATCH_STEPS   400000u
#define FIRST_STEPS   64u    /* steps of the first try; few matches need more */
#define MATCH_HEAP    65536u /* KiB */
#define WINDOW        64u    /* start positions between two readings of the clock */
#define FOUND         16u    /* matches between two readings of the clock */
#define BUDGET_BASE   250000000
#define BUDGET_BYTE   2000 /* nanoseconds: 40 times the interpreter's usual cost */
#define JIT_MAX_BYTES 65536u

struct pattern {
    pcre2_code *code; /* owned; NULL: a literal */
    bool jit;
    char *text; /* owned */
    size_t n;
};

static void *pcre_alloc(size_t n, void *data)
{
    (void)data;
    return mem_alloc(n);
}

static void pcre_free(void *p, void *data)
{
    (void)data;
    mem_free(p);
}

static int compile_pcre(struct pattern *p, const char *pcre, size_t n)
{
    pcre2_general_context *g = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    pcre2_compile_context *c = g ? pcre2_compile_context_create(g) : NULL;
    int code = 0, e = ERR_NOMEM;
    PCRE2_SIZE at = 0;
    if (!c) goto out;
    pcre2_set_newline(c, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(c, 100);
    p->code = pcre2_compile((PCRE2_SPTR)pcre, n,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_AUTO_CAPTURE |
                                PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT,
                            &code, &at, c);
    if (!p->code) {
        PCRE2_UCHAR why[128] = "";
        pcre2_get_error_message(code, why, sizeof why);
        e = code == PCRE2_ERROR_HEAP_FAILED
                ? ERR_NOMEM
                : ERR(FORMAT, "tokenizer: regular expression \"%.*s\": %s", (int)MIN(p->n, 80),
                      p->text, (char *)why);
        goto out;
    }
    size_t size = 0;
    pcre2_pattern_info(p->code, PCRE2_INFO_SIZE, &size);
    p->jit = size <= JIT_MAX_BYTES && pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE) == 0;
    e = 0;
out:
    pcre2_compile_context_free(c);
    pcre2_general_context_free(g);
    return e;
}

int pattern_new(const char *s, size_t n, bool regex, struct pattern **out)
{
    if (n > TOK_MAX_PATTERN)
        return ERR(LIMIT, "tokenizer: a pattern of %zu bytes; at most %u", n, TOK_MAX_PATTERN);
    struct pattern *p = mem_alloc(sizeof *p);
    if (!p) return ERR_NOMEM;
    struct buf b;
    buf_init(&b, (size_t)TOK_MAX_PATTERN * 64);
    int e = ERR_NOMEM;
    p->n = n;
    p->text = mem_strndup(s, n);
    if (!p->text) goto fail;
    if (regex) {
        e = oniguruma_rewrite(s, n, &b);
        if (e == 0) e = compile_pcre(p, b.data ? b.data : "", b.len);
        if (e < 0) goto fail;
    }
    buf_done(&b);
    *out = p;
    return 0;
fail:
    buf_done(&b);
    pattern_drop(p);
    return e;
}

void pattern_drop(struct pattern *p)
{
    if (!p) return;
    pcre2_code_free(p->code);
    mem_free(p->text);
    mem_free(p);
}

const char *pattern_literal(const struct pattern *p, size_t *n)
{
    *n = p->n;
    return p->code ? NULL : p->text;
}

void pattern_scratch_done(struct pattern_scratch *m)
{
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    *m = (struct pattern_scratch){0};
}

static int64_t cpu_now(void)
{
    struct timespec t;
    return clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0 ? nanoseconds(&t) : 0;
}

/* Makes the scratch memory, and adds the time of n new bytes to the budget. */
static int pattern_scratch_ready(struct pattern_scratch *m, size_t n)
{
    if (!m->data) {
        pcre2_general_context *g = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
        if (g) {
            m->data = pcre2_match_data_create(1, g);
            m->context = pcre2_match_context_create(g);
        }
        pcre2_general_context_free(g);
        if (!m->data || !m->context) return ERR_NOMEM;
        pcre2_set_heap_limit(m->context, MATCH_HEAP);
    }
    if (!m->deadline) m->deadline = cpu_now() + BUDGET_BASE - m->spent;
    m->deadline += BUDGET_BYTE * (int64_t)MIN(n, TOK_MAX_TEXT);
    return 0;
}

void pattern_scratch_pause(struct pattern_scratch *m)
{
    if (m->deadline) m->spent = cpu_now() + BUDGET_BASE - m->deadline;
    m->deadline = 0;
}

static int match_failed(const struct pattern *p, int rc)
{
    if (rc == PCRE2_ERROR_NOMEMORY) return ERR(NOMEM, "out of memory in a regular expression");
    return ERR(LIMIT,
               "tokenizer: the pattern \"%.*s\" takes too many steps on this text; the "
               "tokenizer file is broken or hostile",
               (int)MIN(p->n, 60), p->text);
}

static int match(const struct hits *h, size_t from, struct pattern_scratch *m)
{
    const pcre2_code *code = h->p->code;
    uint32_t options = PCRE2_NO_UTF_CHECK | (h->p->jit ? 0 : PCRE2_NO_JIT);
    int rc = pcre2_match(code, (PCRE2_SPTR)h->shadow, h->n, from, options, m->data, m->context);
    if (rc != PCRE2_ERROR_JIT_STACKLIMIT) return rc;
    options |= PCRE2_NO_JIT;
    return pcre2_match(code, (PCRE2_SPTR)h->shadow, h->n, from, options, m->data, m->context);
}

/* Finds the first match at or after `from`, which is 0 in the first search of a text. */
static int search_windows(const struct hits *h, size_t from, struct pattern_scratch *m,
                          struct hit *out)
{
    const struct pattern *p = h->p;
    uint32_t most = (uint32_t)MIN((size_t)MATCH_STEPS + 8 * h->n, (size_t)1 << 30);
    TRY(pattern_scratch_ready(m, from ? 0 : h->n));
    for (uint32_t steps = FIRST_STEPS;;) {
        size_t window = from + WINDOW;
        pcre2_set_offset_limit(m->context, window < h->n ? window : PCRE2_UNSET);
        pcre2_set_match_limit(m->context, steps);
        int rc = match(h, from, m);
        if (rc == PCRE2_ERROR_MATCHLIMIT && steps < most && cpu_now() <= m->deadline) {
            steps = MIN(steps * 2, most);
            continue;
        }
        if (rc >= 0) {
            const PCRE2_SIZE *v = pcre2_get_ovector_pointer(m->data);
            if (v[0] > v[1] || v[1] > h->n || v[0] < from) return match_failed(p, 0);
            *out = (struct hit){v[0], v[1]};
            if (++m->found % FOUND == 0 && cpu_now() > m->deadline)
                return match_failed(p, PCRE2_ERROR_MATCHLIMIT);
            return 1;
        }
        if (rc != PCRE2_ERROR_NOMATCH) return match_failed(p, rc);
        if (window >= h->n) return 0;
        if (cpu_now() > m->deadline) return match_failed(p, PCRE2_ERROR_MATCHLIMIT);
        from = window + 1;
        while (from < h->n && ((uint8_t)h->shadow[from] & 0xC0) == 0x80)
            from++;
    }
}

const char *find_bytes(const char *s, size_t n, const char *lit, size_t n_lit)
{
    if (n_lit == 0) return s;
    if (n_lit > 32) return memmem(s, n, lit, n_lit); /* linear, but slow to start */
    for (const char *p = s; n_lit <= n; p++) {
        size_t left = n - (size_t)(p - s);
        if (left < n_lit || !(p = memchr(p, lit[0], left - n_lit + 1))) return NULL;
        if (memcmp(p, lit, n_lit) == 0) return p;
    }
    return NULL;
}

static int find_literal(const struct hits *h, size_t from, struct hit *out)
{
    const struct pattern *p = h->p;
    const char *s = find_bytes(h->s + from, h->n - from, p->text, p->n);
    if (!s) return 0;
    *out = (struct hit){(size_t)(s - h->s), (size_t)(s - h->s) + p->n};
    return 1;
}

int hits_next(struct hits *h, struct pattern_scratch *m, struct hit *out)
{
    while (h->at <= h->n && h->n > 0) {
        struct hit got;
        int found = h->p->code ? search_windows(h, h->at, m, &got) : find_literal(h, h->at, &got);
        if (found <= 0) return found;
        bool empty = got.from == got.to;
        h->at = got.to;
        if (empty) { /* the next search begins one character later */
            size_t len = 1;
            if (got.to < h->n) utf8_decode(h->s + got.to, h->n - got.to, &len);
            h->at += len;
            if (h->any && got.from == h->last_end) continue;
        }
        h->any = true;
        h->last_end = got.to;
        *out = got;
        return 1;
    }
    return 0;
}
