/* transcript_print.c - prints transcripts: as text, as subtitles (SRT, WebVTT), as JSON. */
#include "cli/transcript_print.h"
#include "base/cue.h"
#include "cli/cli.h"

#include <math.h>
#include <string.h>

enum transcript_format transcript_format(const char *name)
{
    if (name && !strcmp(name, "json")) return TRANSCRIPT_JSON;
    if (name && !strcmp(name, "srt")) return TRANSCRIPT_SRT;
    if (name && !strcmp(name, "vtt")) return TRANSCRIPT_VTT;
    return TRANSCRIPT_TEXT;
}

/* Writes out the text so far, unless it is for a file: that text is written at the end. */
static void write_out(struct transcript_print *p)
{
    if (p->keeps || !p->out.len) return;
    fwrite(p->out.data, 1, p->out.len, stdout);
    fflush(stdout);
    buf_clear(&p->out);
}

/* Notes the first failure: a transcript is written completely or not at all. */
static void note(struct transcript_print *p, int e)
{
    if (e < 0 && !p->error) p->error = e;
}

static void puts_to(struct transcript_print *p, const char *s)
{
    note(p, buf_puts(&p->out, s));
}

void transcript_print_begin(struct transcript_print *p)
{
    buf_init(&p->out, (size_t)1 << 30);
    if (p->format == TRANSCRIPT_VTT) puts_to(p, "WEBVTT\n\n");
    write_out(p);
}

static void print_time(struct transcript_print *p, double seconds, char point)
{
    note(p, cue_time(&p->out, seconds, point));
}

static void print_text(struct transcript_print *p, const char *text, size_t n)
{
    note(p, cue_text(&p->out, text, n, p->format == TRANSCRIPT_VTT));
}

static void print_words(struct transcript_print *p, const kvik_segment *s)
{
    for (size_t i = 0; i < s->n_words; i++) {
        const char *text = s->word[i]->text + (i == 0 ? strspn(s->word[i]->text, " ") : 0);
        if (i) {
            puts_to(p, "<");
            print_time(p, s->word[i]->start, '.');
            puts_to(p, ">");
        }
        print_text(p, text, strlen(text));
    }
}

void transcript_print_segment(struct transcript_print *p, const kvik_segment *s)
{
    size_t n;
    const char *text = cue_trim(s->text, &n);
    if (!n) return;
    if (s->no_speech) {
        p->silent++;
        return;
    }
    bool vtt = p->format == TRANSCRIPT_VTT, srt = p->format == TRANSCRIPT_SRT;
    char number[32];
    snprintf(number, sizeof number, "%lu\n", ++p->number);
    if (srt) puts_to(p, number);
    if (srt || vtt) {
        print_time(p, s->start, srt ? ',' : '.');
        puts_to(p, " --> ");
        print_time(p, s->end, srt ? ',' : '.');
        puts_to(p, "\n");
    }
    if (vtt && s->n_words)
        print_words(p, s);
    else
        print_text(p, text, n);
    puts_to(p, srt || vtt ? "\n\n" : "\n");
    write_out(p);
}

static json_t *time_json(double seconds)
{
    return json_real(round(seconds * 1000) / 1000);
}

static json_t *segment_json(const kvik_segment *s)
{
    json_t *o = json_object(), *ids = json_array(), *words = json_array();
    json_object_set_new(o, "start", time_json(s->start));
    json_object_set_new(o, "end", time_json(s->end));
    json_object_set_new(o, "text", say_json(s->text, strlen(s->text)));
    for (size_t i = 0; i < s->n; i++)
        json_array_append_new(ids, json_integer(s->ids[i]));
    json_object_set_new(o, "tokens", ids);
    json_object_set_new(o, "temperature", json_real(s->temperature));
    json_object_set_new(o, "avg_logprob", json_real(s->avg_logprob));
    json_object_set_new(o, "compression_ratio", json_real(s->compression_ratio));
    json_object_set_new(o, "no_speech_prob", json_real(s->no_speech_prob));
    json_object_set_new(o, "level", isfinite(s->level) ? json_real(s->level) : json_null());
    json_object_set_new(o, "no_speech", json_boolean(s->no_speech));
    for (size_t i = 0; i < s->n_words; i++) {
        const kvik_word *w = s->word[i];
        json_t *one = json_object();
        json_object_set_new(one, "word", say_json(w->text, strlen(w->text)));
        json_object_set_new(one, "start", time_json(w->start));
        json_object_set_new(one, "end", time_json(w->end));
        json_array_append_new(words, one);
    }
    if (s->n_words)
        json_object_set_new(o, "words", words);
    else
        json_decref(words);
    return o;
}

void transcript_print_json(struct transcript_print *p, const char *path, const kvik_transcript *t)
{
    json_t *o = json_object(), *segments = json_array();
    json_object_set_new(o, "file", say_json(path, strlen(path)));
    json_object_set_new(o, "language", *t->language ? json_string(t->language) : json_null());
    json_object_set_new(o, "seconds", time_json(t->seconds));
    json_object_set_new(o, "text", say_json(t->text, strlen(t->text)));
    for (size_t i = 0; i < t->n_segments; i++)
        json_array_append_new(segments, segment_json(t->segment[i]));
    json_object_set_new(o, "segments", segments);
    char *text;
    int e = json_text(o, &text);
    json_decref(o);
    if (e < 0) {
        p->error = e;
        return;
    }
    puts_to(p, text);
    puts_to(p, "\n");
    mem_free(text);
    write_out(p);
}
