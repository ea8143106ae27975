/* stop.c - finds stop strings in a text that arrives in pieces.  Each string is a Knuth-Morris-Pratt automaton
 * whose state is the number of bytes matched so far.  So a match is found wherever the text is cut, and a piece
 * need not be kept.  Bytes are compared; both sides are UTF-8, so a match always begins and ends between
 * characters. */
#include "generate/generate.h"

#include <string.h>

struct stop_pattern {
    char *text;     /* owned */
    uint32_t *back; /* [n], owned: longest proper prefix of text[0..i] that is its suffix */
    uint32_t n, at;
};
struct gen_stop {
    size_t seen; /* bytes so far */
    uint32_t n;
    struct stop_pattern pattern[];
};

static int pattern_init(struct stop_pattern *p, const char *s)
{
    size_t n = strlen(s);
    if (!n) return ERR(ARG, "stop_strings has an empty text, which would end every text at once");
    if (n > UINT32_MAX)
        return ERR(LIMIT, "a stop string has %zu bytes, the limit is %u", n, UINT32_MAX);
    p->text = mem_strndup(s, n);
    p->back = mem_array(n, sizeof *p->back);
    if (!p->text || !p->back) return ERR_NOMEM;
    p->n = (uint32_t)n;
    for (uint32_t i = 1, k = 0; i < p->n; i++) {
        while (k && s[i] != s[k])
            k = p->back[k - 1];
        k += s[i] == s[k];
        p->back[i] = k;
    }
    return 0;
}

static bool pattern_step(struct stop_pattern *p, char c)
{
    while (p->at && (p->at == p->n || p->text[p->at] != c))
        p->at = p->back[p->at - 1];
    p->at += p->text[p->at] == c;
    return p->at == p->n;
}

int gen_stop_new(char *const *strings, uint32_t n, struct gen_stop **out)
{
    if (!n) {
        *out = NULL;
        return 0;
    }
    struct gen_stop *s = mem_alloc(sizeof *s + n * sizeof *s->pattern);
    if (!s) return ERR_NOMEM;
    s->n = n;
    for (uint32_t i = 0; i < n; i++) {
        int err = pattern_init(&s->pattern[i], strings[i]);
        if (err) {
            gen_stop_drop(s);
            return err;
        }
    }
    *out = s;
    return 0;
}

void gen_stop_drop(struct gen_stop *s)
{
    if (!s) return;
    for (uint32_t i = 0; i < s->n; i++) {
        mem_free(s->pattern[i].text);
        mem_free(s->pattern[i].back);
    }
    mem_free(s);
}

void gen_stop_copy(struct gen_stop *to, const struct gen_stop *from)
{
    to->seen = from->seen;
    for (uint32_t i = 0; i < from->n; i++)
        to->pattern[i].at = from->pattern[i].at;
}

size_t gen_stop_partial(const struct gen_stop *s)
{
    size_t most = 0;
    for (uint32_t k = 0; s && k < s->n; k++)
        most = MAX(most, s->pattern[k].at);
    return most;
}

size_t gen_stop_match(const struct gen_stop *s)
{
    size_t most = 0;
    for (uint32_t k = 0; s && k < s->n; k++)
        if (s->pattern[k].at == s->pattern[k].n) most = MAX(most, s->pattern[k].n);
    return most;
}

bool gen_stop_put(struct gen_stop *s, const char *text, size_t n, size_t *keep)
{
    if (!s) return false;
    for (size_t i = 0; i < n; i++) {
        bool hit = false;
        s->seen++;
        for (uint32_t k = 0; k < s->n; k++)
            hit |= pattern_step(&s->pattern[k], text[i]);
        if (hit) {
            *keep = s->seen;
            return true;
        }
    }
    return false;
}
