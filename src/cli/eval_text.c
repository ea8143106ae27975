/* eval_text.c - the windows of tokens that are scored.  A window begins with the tokens that the tokenizer puts
 * before a text.  The next window begins where the scored half of this one began.  So each token of the text behind
 * the first prompt is scored once. */
#include "base/descriptor.h"
#include "base/digest.h"
#include "cli/eval.h"

#include <errno.h>
#include <string.h>

/* Finds the tokens that the tokenizer puts before a text, from the ids of a text of one letter. */
static int read_lead(struct eval *v, const kvik_tokenizer *t)
{
    int32_t *with, *alone;
    size_t n_with, n, at = 0;
    TRY(kvik_tokenizer_encode(t, "a", 1, false, &alone, &n));
    int e = kvik_tokenizer_encode(t, "a", 1, true, &with, &n_with);
    if (e < 0) {
        kvik_free(alone);
        return e;
    }
    while (at + n < n_with && memcmp(with + at, alone, n * sizeof *with) != 0)
        at++;
    v->lead = mem_array(at + 1, sizeof *v->lead);
    if (v->lead && at + n <= n_with) {
        memcpy(v->lead, with, at * sizeof *with);
        v->n_lead = (uint32_t)at;
    }
    kvik_free(alone);
    kvik_free(with);
    return v->lead ? 0 : ERR(NOMEM, "out of memory");
}

static int read_ids(struct eval *v, const kvik_tokenizer *t)
{
    uint8_t digest[DIGEST_BYTES];
    char *text;
    size_t n_bytes, n;
    int32_t *ids;
    FILE *f = fd_stream(v->text);
    if (!f) return ERR(NOTFOUND, "--text: %s cannot be read: %s", v->text, strerror(errno));
    int e = read_all(f, v->text, &text, &n_bytes);
    fclose(f);
    if (e < 0) return e;
    digest_of(text, n_bytes, digest);
    digest_hex(digest, v->sha256);
    e = kvik_tokenizer_encode(t, text, n_bytes, false, &ids, &n);
    mem_free(text);
    if (e < 0) return err_prefix(e, "--text: %s", v->text), e;
    if (n > UINT32_MAX / 2) {
        kvik_free(ids);
        return ERR(LIMIT, "--text: %s has %zu tokens, the limit is %u; give a part of it", v->text,
                   n, UINT32_MAX / 2);
    }
    v->n_ids = (uint32_t)n;
    v->ids = mem_array(MAX(n, 1), sizeof *v->ids);
    if (v->ids && n) memcpy(v->ids, ids, n * sizeof *ids);
    kvik_free(ids);
    return v->ids ? 0 : ERR(NOMEM, "out of memory");
}

int eval_text(struct eval *v)
{
    const kvik_tokenizer *t = kvik_model_tokenizer(v->is.engine->model);
    if (!t) return say_failed("--text: %s has no tokenizer", v->is.machine.model);
    int e = read_lead(v, t);
    if (e >= 0) e = read_ids(v, t);
    if (e < 0) return say_error(e);
    if (v->n_lead >= eval_prompt(v))
        return say_usage("--context %u is no longer than the tokens that begin each text",
                         v->window);
    uint32_t body = v->window - v->n_lead, scored = eval_scored(v);
    if (v->n_ids < body + 1)
        return say_usage(
            "--text: %s has %u tokens; a window of --context %u needs %u; give a longer "
            "text or a smaller --context",
            v->text, v->n_ids, v->window, body + 1);
    v->windows = (v->n_ids - body - 1) / scored + 1;
    v->windows = MIN(v->windows, (v->wanted - 1) / scored + 1);
    return 0;
}

void eval_tokens(const struct eval *v, uint32_t w, uint32_t from, uint32_t n, int32_t *out)
{
    uint32_t begin = w * eval_scored(v);
    for (uint32_t i = 0; i < n; i++, from++)
        out[i] = from < v->n_lead ? v->lead[from] : v->ids[begin + from - v->n_lead];
}
