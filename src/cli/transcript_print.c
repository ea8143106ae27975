/* transcript_print.c - prints what was heard: as text, as subtitles (SRT, WebVTT), as JSON. */
#include "cli/transcript_print.h"
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

void transcript_print_begin(struct transcript_print *p)
{
    if (p->format == TRANSCRIPT_VTT) fputs("WEBVTT\n\n", stdout);
}

/* Prints 1:02:03.456; SRT has a comma. */
static void print_time(double seconds, char point)
{
    unsigned long long ms = (unsigned long long)llround(seconds * 1000);
    printf("%02llu:%02llu:%02llu%c%03llu", ms / 3600000, ms / 60000 % 60, ms / 1000 % 60, point,
           ms % 1000);
}

/* Prints n bytes of text; a line end would end a line or a subtitle early.  marked: WebVTT reads tags. */
static void print_text(const char *text, size_t n, bool marked)
{
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '\n' || c == '\r')
            putchar(' ');
        else if (marked && c == '<')
            fputs("&lt;", stdout);
        else if (marked && c == '>')
            fputs("&gt;", stdout);
        else if (marked && c == '&')
            fputs("&amp;", stdout);
        else
            putchar(c);
    }
}

static void print_words(const kvik_segment *s)
{
    for (size_t i = 0; i < s->n_words; i++) {
        const char *text = s->word[i]->text + (i == 0 ? strspn(s->word[i]->text, " ") : 0);
        if (i) {
            putchar('<');
            print_time(s->word[i]->start, '.');
            putchar('>');
        }
        print_text(text, strlen(text), true);
    }
}

void transcript_print_segment(struct transcript_print *p, const kvik_segment *s)
{
    const char *text = s->text + strspn(s->text, " \t\r\n");
    size_t n = strlen(text);
    while (n > 0 && strchr(" \t\r\n", text[n - 1]))
        n--;
    if (!n) return;
    bool vtt = p->format == TRANSCRIPT_VTT, srt = p->format == TRANSCRIPT_SRT;
    if (srt) printf("%lu\n", ++p->number);
    if (srt || vtt) {
        print_time(s->start, srt ? ',' : '.');
        fputs(" --> ", stdout);
        print_time(s->end, srt ? ',' : '.');
        putchar('\n');
    }
    if (vtt && s->n_words)
        print_words(s);
    else
        print_text(text, n, vtt);
    fputs(srt || vtt ? "\n\n" : "\n", stdout);
    fflush(stdout);
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

int transcript_print_json(const char *path, const kvik_transcript *t)
{
    json_t *o = json_object(), *segments = json_array();
    json_object_set_new(o, "file", say_json(path, strlen(path)));
    json_object_set_new(o, "language", *t->language ? json_string(t->language) : json_null());
    json_object_set_new(o, "seconds", time_json(t->seconds));
    json_object_set_new(o, "text", say_json(t->text, strlen(t->text)));
    for (size_t i = 0; i < t->n_segments; i++)
        json_array_append_new(segments, segment_json(t->segment[i]));
    json_object_set_new(o, "segments", segments);
    return say_json_line(o);
}
