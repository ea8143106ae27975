/* transcription.c - OpenAI's transcriptions and translations of recordings, whole and as streams. */
#include "base/cue.h"
#include "base/descriptor.h"
#include "serve/crew.h"
#include "serve/multipart.h"
#include "serve/protocol.h"
#include "serve/subtitles.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum form { FORM_JSON, FORM_TEXT, FORM_SRT, FORM_VTT, FORM_VERBOSE };
enum { NAME = 80, MOST_OUT = 64 << 20 };

struct transcription {
    struct crew_work work;
    const struct crew *crew;
    kvik_cache *cache;
    kvik_speech speech;
    char *language, *prompt; /* owned, or NULL */
    char name[NAME];         /* name of the recording, for errors */
    const char *data;        /* [n] the recording, in the body of the exchange */
    size_t n;
    double temperature;
    enum form form;
    bool stream, segments, begun;
    unsigned number;
    int error;      /* lack of memory */
    struct buf out; /* the text, or the subtitles */
};

static void transcription_free(struct transcription *t)
{
    exchange_release(t->work.x);
    mem_free(t->language);
    mem_free(t->prompt);
    buf_done(&t->out);
    mem_free(t);
}

/* --- Answers. */

static bool goes_on(const struct transcription *t)
{
    return !t->error && !exchange_gone(t->work.x) && !crew_ends(t->crew);
}

static void send_event(struct transcription *t, json_t *o)
{
    char *text = NULL;
    struct buf b;
    buf_init(&b, MOST_OUT);
    if (!t->begun) exchange_begin(t->work.x, "text/event-stream", true);
    t->begun = true;
    int e = o ? json_text(o, &text) : ERR_NOMEM;
    if (e >= 0) e = buf_printf(&b, "data: %s\n\n", text);
    if (e >= 0)
        exchange_send(t->work.x, b.data, b.len);
    else
        t->error = e;
    mem_free(text);
    buf_done(&b);
    json_decref(o);
}

static bool on_segment(void *ctx, const kvik_segment *s)
{
    struct transcription *t = ctx;
    size_t n;
    const char *text = cue_trim(s->text, &n);
    if (!n || s->no_speech) return goes_on(t); /* the model invented this text */
    bool subtitles = t->form == FORM_SRT || t->form == FORM_VTT;
    size_t before = t->out.len;
    int e = 0;
    if (subtitles) {
        e = subtitle_add(&t->out, s, ++t->number, t->form == FORM_VTT);
    } else {
        if (t->out.len) e = buf_putc(&t->out, ' ');
        if (e >= 0) e = buf_append(&t->out, text, n);
    }
    if (e < 0) t->error = e;
    if (e >= 0 && t->stream)
        send_event(t, json_pack("{s:s, s:o}", "type", "transcript.text.delta", "delta",
                                answer_text(t->out.data + before, t->out.len - before)));
    return goes_on(t);
}

static bool on_hearing(void *ctx, enum kvik_hearing what, double seconds, double total)
{
    (void)what, (void)seconds, (void)total;
    return goes_on(ctx);
}

static json_t *usage(const kvik_transcript *r)
{
    return json_pack("{s:s, s:I}", "type", "duration", "seconds", (json_int_t)(r->seconds + 0.999));
}

/* Returns the name of a language in OpenAI's words: "german". */
static const char *language_name(const char *code)
{
    const char *own, *name;
    for (uint32_t i = 0; (name = kvik_speech_language(i, &own)); i++)
        if (!strcmp(own, code)) return name;
    return code;
}

static json_t *verbose(const struct transcription *t, const kvik_transcript *r)
{
    json_t *segments = json_array(), *words = json_array();
    for (size_t i = 0; i < r->n_segments; i++) {
        json_array_append_new(segments, segment_json(r->segment[i], i));
        for (size_t k = 0; k < r->segment[i]->n_words; k++)
            json_array_append_new(words, word_json(r->segment[i]->word[k]));
    }
    json_t *o = json_pack("{s:s, s:s, s:f, s:o, s:o}", "task", t->speech.task, "language",
                          language_name(r->language), "duration", r->seconds, "text",
                          answer_text(t->out.data, t->out.len), "usage", usage(r));
    if (t->segments)
        json_object_set_new(o, "segments", segments);
    else
        json_decref(segments);
    if (t->speech.word_timestamps)
        json_object_set_new(o, "words", words);
    else
        json_decref(words);
    return o;
}

static void answer(struct transcription *t, const kvik_transcript *r)
{
    struct exchange *x = t->work.x;
    json_t *text = answer_text(t->out.data, t->out.len);
    if (t->stream) {
        send_event(t, json_pack("{s:s, s:o, s:o}", "type", "transcript.text.done", "text", text,
                                "usage", usage(r)));
        exchange_finish(x);
    } else if (t->form == FORM_JSON) {
        exchange_json(x, 200, json_pack("{s:o, s:o}", "text", text, "usage", usage(r)));
    } else if (t->form == FORM_VERBOSE) {
        json_decref(text);
        exchange_json(x, 200, verbose(t, r));
    } else {
        json_decref(text);
        if (t->form == FORM_TEXT) (void)buf_putc(&t->out, '\n');
        size_t n = t->out.len;
        exchange_answer(
            x, 200, t->form == FORM_VTT ? "text/vtt; charset=utf-8" : "text/plain; charset=utf-8",
            buf_take(&t->out), n);
    }
}

/* Answers with an error.  The library names the file in memory; the answer has the client's own name in its place. */
static void fail(struct transcription *t, int e, const char *path)
{
    char said[ROUTE_SENTENCE], text[ROUTE_SENTENCE];
    const char *why = err_last();
    size_t n = strlen(path);
    if (n && !strncmp(why, path, n))
        snprintf(said, sizeof said, "%s%s", t->name, why + n);
    else
        snprintf(said, sizeof said, "%s", why);
    route_sentence(text, said);
    const struct fault f = {.status = route_status(e), .sentence = text};
    json_t *o = protocol_openai.error(&f);
    if (!t->begun) {
        exchange_json(t->work.x, f.status, o);
        return;
    }
    send_event(t, o);
    exchange_finish(t->work.x);
}

/* Writes the recording to a file in memory, from which the library reads it.  Returns the file's descriptor, or an
 * error code. */
static int spool(const struct transcription *t, char path[32])
{
    int fd = fd_take(memfd_create("kvik-recording", MFD_CLOEXEC)); /* check-ok: fd_take moves it */
    if (fd < 0) return ERR(IO, "a file in memory cannot be made: %s", strerror(errno));
    for (size_t at = 0; at < t->n;) {
        ssize_t got = write(fd, t->data + at, t->n - at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            close(fd);
            return ERR(NOMEM, "the recording does not fit into memory");
        }
        at += (size_t)got;
    }
    snprintf(path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

static void run(struct crew_work *w)
{
    struct transcription *t = (struct transcription *)w;
    kvik_transcript *r = NULL;
    char path[32] = "";
    int fd = spool(t, path), e = fd;
    if (t->form == FORM_VTT) (void)buf_puts(&t->out, "WEBVTT\n\n");
    if (fd >= 0) e = kvik_transcribe(t->cache, path, &t->speech, &r);
    if (e >= 0 && t->error) e = err_set(t->error, "out of memory");
    if (e >= 0)
        answer(t, r);
    else
        fail(t, e, path);
    kvik_transcript_free(r);
    if (fd >= 0) close(fd);
    transcription_free(t);
}

static void refuse(struct crew_work *w, int status, const char *sentence)
{
    route_refuse(exchange_hold(w->x), status, sentence);
    transcription_free((struct transcription *)w);
}

/* --- Requests. */

static int take_text(const struct form_part *p, char **out)
{
    if (!p || !p->n) return 0;
    if (memchr(p->data, 0, p->n)) return ERR(ARG, "field \"%s\" has a NUL", p->name);
    return (*out = mem_strndup(p->data, p->n)) ? 0 : ERR_NOMEM;
}

/* The value of a part for "%.*s" in an error; at most its first 40 bytes. */
#define SENT(p) (int)MIN((p)->n, 40), (p)->data

static bool is(const struct form_part *p, const char *value)
{
    return p->n == strlen(value) && !memcmp(p->data, value, p->n);
}

static int take_form(struct transcription *t, const struct form_part *p)
{
    static const char *const name[] = {"json", "text", "srt", "vtt", "verbose_json"};
    if (!p) return 0;
    for (size_t i = 0; i < countof(name); i++)
        if (is(p, name[i])) {
            t->form = (enum form)i;
            return 0;
        }
    return ERR(
        ARG, "field \"response_format\" must be json, text, srt, vtt or verbose_json, not \"%.*s\"",
        SENT(p));
}

static int take_flag(const struct form_part *p, bool *out)
{
    if (!p) return 0;
    *out = is(p, "true");
    return *out || is(p, "false")
               ? 0
               : ERR(ARG, "field \"%s\" must be true or false, not \"%.*s\"", p->name, SENT(p));
}

/* Reads temperature.  0, OpenAI's default, tries 0 first and higher ones if the text is not good enough. */
static int take_temperature(struct transcription *t, const struct form_part *p)
{
    char text[32], *end;
    if (!p) return 0;
    snprintf(text, sizeof text, "%.*s", (int)MIN(p->n, sizeof text - 1), p->data);
    t->temperature = strtod(text, &end);
    if (end == text || *end || !(t->temperature >= 0 && t->temperature <= 1))
        return ERR(ARG, "field \"temperature\" must be a number between 0 and 1, not \"%.*s\"",
                   SENT(p));
    if (t->temperature == 0) return 0;
    t->speech.temperatures = &t->temperature;
    t->speech.n_temperatures = 1;
    return 0;
}

/* Reads timestamp_granularities[], which can occur several times: "segment" (the default) and "word". */
static int take_granularities(struct transcription *t, const struct form_part *part, uint32_t n)
{
    bool given = false;
    for (uint32_t i = 0; i < n; i++) {
        const struct form_part *p = &part[i];
        if (strcmp(p->name, "timestamp_granularities[]") != 0 &&
            strcmp(p->name, "timestamp_granularities") != 0)
            continue;
        if (!is(p, "word") && !is(p, "segment"))
            return ERR(ARG,
                       "field \"timestamp_granularities[]\" must be word or segment, not \"%.*s\"",
                       SENT(p));
        if (t->form != FORM_VERBOSE)
            return ERR(ARG,
                       "field \"timestamp_granularities[]\" is for response_format verbose_json");
        given = true;
        t->segments |= is(p, "segment");
        t->speech.word_timestamps |= is(p, "word");
    }
    if (!given) t->segments = true;
    return 0;
}

static int take_file(struct transcription *t, const struct form_part *p)
{
    if (!p) return ERR(ARG, "field \"file\" is missing: the recording");
    if (!p->n) return ERR(ARG, "field \"file\" is empty");
    if (p->file && p->n_file && p->n_file < NAME && !memchr(p->file, 0, p->n_file))
        snprintf(t->name, sizeof t->name, "%.*s", (int)p->n_file, p->file);
    t->data = p->data;
    t->n = p->n;
    return 0;
}

static int read_fields(struct transcription *t, const struct form_part *part, uint32_t n)
{
    TRY(take_file(t, multipart_find(part, n, "file")));
    TRY(take_form(t, multipart_find(part, n, "response_format")));
    TRY(take_text(multipart_find(part, n, "language"), &t->language));
    TRY(take_text(multipart_find(part, n, "prompt"), &t->prompt));
    TRY(take_temperature(t, multipart_find(part, n, "temperature")));
    TRY(take_granularities(t, part, n));
    TRY(take_flag(multipart_find(part, n, "stream"), &t->stream));
    if (t->stream && t->form != FORM_JSON && t->form != FORM_TEXT)
        return ERR(ARG, "field \"stream\" is for response_format json and text");
    t->speech.language = t->language;
    t->speech.prompt = t->prompt;
    return 0;
}

static int hear(struct server *s, struct exchange *x, const char *task)
{
    struct form_part part[MULTIPART_PARTS];
    uint32_t n = 0;
    if (!s->hearing)
        return ERR(
            UNSUPPORTED,
            "%s reads text and hears nothing; transcriptions need a server of a Whisper model",
            s->o.name);
    TRY(multipart_read(x->type, x->body, x->n_body, part, &n));
    struct transcription *t = mem_alloc(sizeof *t);
    if (!t) return ERR_NOMEM;
    t->work = (struct crew_work){.x = exchange_hold(x), .run = run, .refuse = refuse};
    t->crew = s->hearing;
    t->cache = s->caches.use[0].o.cache;
    snprintf(t->name, sizeof t->name, "the recording");
    buf_init(&t->out, MOST_OUT);
    kvik_speech_init(&t->speech);
    t->speech.task = task;
    t->speech.ctx = t;
    t->speech.on_segment = on_segment;
    t->speech.on_hearing = on_hearing;
    int e = read_fields(t, part, n);
    if (e >= 0) e = crew_put(s->hearing, &t->work);
    if (e < 0) transcription_free(t);
    return e;
}

static int transcribe(struct server *s, struct exchange *x)
{
    return hear(s, x, "transcribe");
}

static int translate(struct server *s, struct exchange *x)
{
    return hear(s, x, "translate");
}

static const struct route sound_routes[] = {
    {"/v1/audio/transcriptions", EXCHANGE_POST, .protocol = &protocol_openai, .answer = transcribe},
    {"/v1/audio/translations", EXCHANGE_POST, .protocol = &protocol_openai, .answer = translate},
};
ROUTES(sound_routes);
