/* subtitles.c - writes segments as subtitles and as JSON; see subtitles.h. */
#include "serve/subtitles.h"
#include "base/cue.h"

#include <math.h>
#include <string.h>

static json_t *seconds(double v)
{
    return json_real(round(v * 1000) / 1000);
}

int subtitle_add(struct buf *b, const kvik_segment *s, unsigned number, bool vtt)
{
    size_t n;
    const char *text = cue_trim(s->text, &n);
    char point = vtt ? '.' : ',';
    int e = vtt ? 0 : buf_printf(b, "%u\n", number);
    if (e >= 0) e = cue_time(b, s->start, point);
    if (e >= 0) e = buf_puts(b, " --> ");
    if (e >= 0) e = cue_time(b, s->end, point);
    if (e >= 0) e = buf_puts(b, "\n");
    if (e >= 0) e = cue_text(b, text, n, vtt);
    return e >= 0 ? buf_puts(b, "\n\n") : e;
}

json_t *segment_json(const kvik_segment *s, size_t index)
{
    json_t *ids = json_array();
    for (size_t i = 0; i < s->n; i++)
        json_array_append_new(ids, json_integer(s->ids[i]));
    return json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:f, s:f, s:f, s:f, s:b}", "id",
                     (json_int_t)index, "seek", (json_int_t)llround(s->start * 100), "start",
                     seconds(s->start), "end", seconds(s->end), "text", json_string(s->text),
                     "tokens", ids, "temperature", s->temperature, "avg_logprob", s->avg_logprob,
                     "compression_ratio", s->compression_ratio, "no_speech_prob", s->no_speech_prob,
                     "no_speech", s->no_speech);
}

json_t *word_json(const kvik_word *w)
{
    return json_pack("{s:s, s:o, s:o}", "word", w->text + strspn(w->text, " "), "start",
                     seconds(w->start), "end", seconds(w->end));
}
