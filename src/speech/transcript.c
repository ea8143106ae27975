/* transcript.c - collects the segments of a recording, with their times and words, and the whole text. */
#include "speech/speech.h"

#include <string.h>

struct transcript {
    kvik_transcript *t;
    struct buf text;
    size_t cap;
};

static void free_word(kvik_word *w)
{
    if (w) mem_free(w->text);
    mem_free(w);
}

static void free_segment(kvik_segment *s)
{
    if (!s) return;
    for (size_t i = 0; i < s->n_words; i++)
        free_word(s->word[i]);
    mem_free(s->word);
    mem_free(s->text);
    mem_free(s->ids);
    mem_free(s->time);
    mem_free(s);
}

KVIK_API void kvik_transcript_free(kvik_transcript *t)
{
    if (!t) return;
    for (size_t i = 0; i < t->n_segments; i++)
        free_segment(t->segment[i]);
    mem_free(t->segment);
    mem_free(t->text);
    mem_free(t->language);
    mem_free(t);
}

int transcript_new(struct transcript **out)
{
    struct transcript *t = mem_alloc(sizeof *t);
    if (!t) return ERR_NOMEM;
    buf_init(&t->text, SIZE_MAX / 4);
    t->t = mem_alloc(sizeof *t->t);
    if (!t->t || buf_puts(&t->text, "") < 0 || !(t->t->language = mem_strdup(""))) {
        transcript_drop(t);
        return ERR_NOMEM;
    }
    *out = t;
    return 0;
}

void transcript_drop(struct transcript *t)
{
    if (!t) return;
    kvik_transcript_free(t->t);
    buf_done(&t->text);
    mem_free(t);
}

/* --- a segment */

/* Writes the tokens that are text (not timestamps or marks) to id, and their indexes in ids to at.  Returns their
 * number. */
static size_t text_tokens(const struct listener *l, const int32_t *ids, size_t n, int32_t *id,
                          size_t *at)
{
    const struct tok *t = l->cache->model->tok->tok;
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= l->marks.first_timestamp || tok_is_special(t, ids[i])) continue;
        if (at) at[k] = i;
        id[k++] = ids[i];
    }
    return k;
}

/* Gives the words of a segment their times.  A word begins at the end of the token before it and ends at the end
 * of its last token.  time: times of the segment's tokens; before: time of the token before the segment. */
static int add_words(const struct transcript *t, const struct listener *l, kvik_segment *s,
                     const int32_t *id, const size_t *at, size_t n, const double *time,
                     double before, double offset)
{
    struct speech_word *group;
    size_t n_groups;
    TRY(words_group(l->cache->model->tok->tok, id, n, language_unspaced(t->t->language), &group,
                    &n_groups));
    int e = 0;
    s->word = mem_array(MAX(n_groups, 1), sizeof *s->word);
    if (!s->word) e = ERR_NOMEM;
    for (size_t i = 0; i < n_groups && e >= 0; i++) {
        kvik_word *w = mem_alloc(sizeof *w);
        if (!w) {
            e = ERR_NOMEM;
            break;
        }
        size_t first = at[group[i].from], last = at[group[i].to - 1];
        w->start = offset + (first > 0 ? time[first - 1] : before);
        w->end = offset + time[last];
        w->text = group[i].text;
        group[i].text = NULL;
        s->word[s->n_words++] = w;
    }
    words_done(group, n_groups);
    return e;
}

static int fill_segment(const struct transcript *t, const struct listener *l,
                        const struct speech_said *said, const struct speech_part *part,
                        double offset, kvik_segment *s)
{
    const int32_t *ids = said->ids + said->n_prompt + part->from;
    size_t n = part->to - part->from;
    int32_t *id = mem_array(MAX(n, 1), sizeof *id);
    size_t *at = mem_array(MAX(n, 1), sizeof *at);
    struct buf text;
    buf_init(&text, 1 << 24);
    int e = id && at ? 0 : ERR_NOMEM;
    s->ids = mem_array(MAX(n, 1), sizeof *s->ids);
    if (said->time) s->time = mem_array(MAX(n, 1), sizeof *s->time);
    if (!s->ids || (said->time && !s->time)) e = ERR_NOMEM;
    if (e >= 0) {
        for (size_t i = 0; said->time && i < n; i++)
            s->time[i] = offset + said->time[part->from + i];
        memcpy(s->ids, ids, n * sizeof *ids);
        s->n = n;
        s->start = offset + part->start;
        s->end = offset + part->end;
        s->temperature = said->temperature;
        s->avg_logprob = said->avg_logprob;
        s->compression_ratio = said->compression_ratio;
        s->no_speech_prob = said->no_speech_prob;
        size_t k = text_tokens(l, ids, n, id, at);
        e = tok_decode(l->cache->model->tok->tok, id, k, true, &text);
        if (e >= 0 && !(s->text = buf_take(&text))) e = ERR_NOMEM;
        if (e >= 0 && said->time)
            e = add_words(t, l, s, id, at, k, said->time + part->from,
                          part->from ? said->time[part->from - 1] : 0, offset);
    }
    mem_free(id);
    mem_free(at);
    buf_done(&text);
    return e;
}

int transcript_add(struct transcript *t, const struct listener *l, const struct speech_said *said,
                   const struct speech_part *part, double offset, kvik_segment **out)
{
    kvik_segment *s = mem_alloc(sizeof *s);
    if (!s) return ERR_NOMEM;
    int e = fill_segment(t, l, said, part, offset, s);
    if (e >= 0 && t->t->n_segments == t->cap) {
        void *more = mem_grow(t->t->segment, 2 * t->cap + 8, sizeof *t->t->segment);
        if (more) {
            t->t->segment = more;
            t->cap = 2 * t->cap + 8;
        } else
            e = ERR_NOMEM;
    }
    if (e >= 0) e = buf_puts(&t->text, s->text);
    if (e < 0) {
        free_segment(s);
        return e;
    }
    t->t->segment[t->t->n_segments++] = s;
    *out = s;
    return 0;
}

void transcript_forget(struct transcript *t)
{
    for (size_t i = 0; i < t->t->n_segments; i++)
        free_segment(t->t->segment[i]);
    t->t->n_segments = 0;
    buf_clear(&t->text);
}

/* --- the whole */

int transcript_speaks(struct transcript *t, const struct speech_marks *k, int32_t language)
{
    char code[16];
    language_code(k, language, code);
    char *copy = mem_strdup(code);
    if (!copy) return ERR_NOMEM;
    mem_free(t->t->language);
    t->t->language = copy;
    return 0;
}

int transcript_take(struct transcript *t, double seconds, uint32_t windows, kvik_transcript **out)
{
    t->t->seconds = seconds;
    t->t->windows = windows;
    if (!(t->t->text = buf_take(&t->text))) return ERR_NOMEM;
    *out = t->t;
    t->t = NULL;
    return 0;
}
