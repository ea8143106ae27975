/* transcribe.c - transcribes a whole recording, window after window.  Each window begins at the last timestamp of
 * the one before it and has its own prompt: <|startofprev|> and the text before the window, if the window shall
 * see it; then <|startoftranscript|>, the language, the task, and perhaps <|notimestamps|>. */
#include "speech/speech.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

/* A segment whose level (kvik_segment.level) is below SILENCE dB is no speech.  For comparison: dither of 16
 * bits has -98, a quiet room -70 and less, a whisper far from the microphone -45.  BESIDE: see level_of. */
static const double SILENCE = -60, BESIDE = 1;

struct recording {
    struct listener l;
    const char *name;    /* for errors */
    struct audio *audio; /* source of the sound; NULL: the caller gave features */
    struct features *features;
    const float *given; /* features that the caller gave, [bands][given_frames]; borrowed */
    size_t given_frames;
    uint64_t frames, samples;
    bool all; /* the caller did not say how many frames of `given` are sound */
    /* the recording is still being made: frames and samples count what was read so far */
    bool comes;
    struct transcript *transcript;
    int32_t head[4]; /* <|startoftranscript|> and what follows it in every prompt */
    size_t n_head;
    struct ids past;          /* text before the window: the caller's prompt, then the segments */
    size_t past_prompt;       /* number of tokens of the caller's prompt in `past` */
    bool keep_past;           /* the next window sees `past` */
    bool keep_segments;       /* the caller wants a transcript at the end */
    struct speech_part *part; /* [max_length + 1] */
};

static const double temperatures[] = {0, 0.2, 0.4, 0.6, 0.8, 1};

KVIK_API int kvik_speech_init_sized(kvik_speech *o, size_t size)
{
    static const kvik_speech defaults = {
        .return_timestamps = true,
        .compression_ratio_threshold = 1.35,
        .logprob_threshold = -1,
        .no_speech_threshold = 0.6,
        .length_penalty = 1,
        .num_beams = 1,
    };
    if (!o) return ERR(ARG, "kvik_speech_init: NULL argument");
    TRY(SIZED_CHECK(&size, kvik_speech));
    o->size = size;
    return SIZED_OUT(o, &defaults, kvik_speech);
}

/* --- prompts */

/* Finds the tokens that begin the text of every window. */
static int make_head(struct recording *r)
{
    const struct speech_marks *k = &r->l.marks;
    const kvik_speech *w = &r->l.want;
    int32_t language = -1;
    bool translate = w->task && !strcmp(w->task, "translate");
    if (w->task && !translate && strcmp(w->task, "transcribe") != 0)
        return ERR(ARG, "task \"%s\": \"transcribe\" and \"translate\" are supported", w->task);
    if (!k->multilingual && (w->language || translate))
        return ERR(ARG, "the model knows one language only; leave out %s",
                   w->language ? "the language" : "the task");
    if (!k->languages && (w->language || translate))
        return ERR(UNSUPPORTED,
                   "generation_config.json has no lang_to_id, so the model cannot be told %s",
                   w->language ? "the language" : "to translate");
    r->head[r->n_head++] = k->start;
    if (k->multilingual && k->languages) {
        if (w->language)
            TRY(language_find(k, w->language, &language));
        else
            TRY(listener_language(&r->l, &language));
        TRY(transcript_speaks(r->transcript, k, language));
        r->head[r->n_head++] = language;
        int32_t task = translate ? k->translate : k->transcribe;
        if (translate && task < 0) return ERR(UNSUPPORTED, "the model does not translate");
        if (task >= 0) r->head[r->n_head++] = task;
    }
    if (!r->l.timestamps && k->no_timestamps >= 0) r->head[r->n_head++] = k->no_timestamps;
    return 0;
}

/* Encodes the caller's prompt as Transformers does: with one space before it and none behind it. */
static int take_prompt(struct recording *r)
{
    const char *text = r->l.want.prompt;
    struct buf b;
    if (!text) return 0;
    if (r->l.marks.previous < 0) return ERR(UNSUPPORTED, "the model takes no prompt");
    size_t n = strlen(text);
    while (n > 0 && isspace((unsigned char)text[n - 1]))
        n--;
    while (n > 0 && isspace((unsigned char)*text)) {
        text++;
        n--;
    }
    buf_init(&b, 1 << 24);
    int e = buf_putc(&b, ' ');
    if (e >= 0) e = buf_append(&b, text, n);
    if (e >= 0)
        e = tok_encode(r->l.cache->model->tok->tok, b.data, b.len, TOK_PLAIN, NULL, 0, &r->past);
    buf_done(&b);
    r->past_prompt = r->past.n;
    if (e >= 0 && r->past.n > r->l.marks.max_length / 2 - 1)
        return ERR(LIMIT, "the prompt has %zu tokens; at most %u are possible", r->past.n,
                   r->l.marks.max_length / 2 - 1);
    return e;
}

/* Writes the prompt of a window to l->ids.  *start: index of <|startoftranscript|>. */
static int make_prompt(struct recording *r, size_t *n, size_t *start)
{
    struct listener *l = &r->l;
    size_t most = l->marks.max_length / 2 - 1, k = 0;
    const int32_t *past = r->past.id;
    size_t n_past = r->keep_past ? r->past.n : r->past_prompt;
    if (n_past && l->marks.previous >= 0) {
        size_t from = n_past > most ? n_past - most : 0;
        l->ids[k++] = l->marks.previous;
        memcpy(l->ids + k, past + from, (n_past - from) * sizeof *past);
        k += n_past - from;
    }
    *start = k;
    if (k + r->n_head >= l->marks.max_length)
        return ERR(LIMIT, "max_length is %u, too few for a prompt of %zu tokens",
                   l->marks.max_length, k + r->n_head);
    memcpy(l->ids + k, r->head, r->n_head * sizeof *r->head);
    *n = k + r->n_head;
    return 0;
}

/* Appends the text of a segment to r->past, for later windows.  If the segment ends with two timestamps, the
 * second belongs to the next segment. */
static int remember_text(struct recording *r, const int32_t *ids, size_t n)
{
    size_t most = r->l.marks.max_length / 2 - 1, over;
    if (n > 2 && ids[n - 2] >= r->l.marks.first_timestamp) n--;
    for (size_t i = 0; i < n; i++)
        TRY(ids_push(&r->past, ids[i]));
    /* The caller's prompt is kept: a window that does not see the text before it sees the prompt. */
    if (r->past.n > r->past_prompt + 4 * most) {
        over = r->past.n - r->past_prompt - most;
        memmove(r->past.id + r->past_prompt, r->past.id + r->past_prompt + over,
                (r->past.n - r->past_prompt - over) * sizeof *r->past.id);
        r->past.n -= over;
    }
    return 0;
}

/* --- windows */

static int tell_progress(const struct recording *r, enum kvik_hearing what, double seconds,
                         double total)
{
    const kvik_speech *w = &r->l.want;
    if (!w->on_hearing || w->on_hearing(w->ctx, what, seconds, total)) return 0;
    return ERR(CANCELLED, "%s: cancelled at %.2f s", r->name, seconds);
}

static bool reading(void *ctx, double seconds, double total)
{
    return tell_progress(ctx, KVIK_HEARING_READ, seconds, total) >= 0;
}

/* Returns the level of a part of the window that begins at frame `at`.  Timestamps are not exact, so BESIDE
 * seconds on both sides count, too. */
static double level_of(const struct recording *r, const struct speech_part *p, uint64_t at)
{
    if (r->given) return NAN;
    double from = fmax(p->start - BESIDE, 0) / SPEECH_FRAME,
           to = fmax(p->end + BESIDE, 0) / SPEECH_FRAME;
    uint64_t frames = MIN((uint64_t)to - (uint64_t)from + 1, r->l.marks.frames);
    return 10 * log10((double)features_loudest(r->features, at + (uint64_t)from, frames));
}

/* Adds the segments of a window that begins at frame `at`. */
static int add_segments(struct recording *r, const struct speech_said *said, uint32_t frames,
                        uint64_t at, uint32_t *advance)
{
    double offset = (double)at * SPEECH_FRAME;
    const int32_t *ids = said->ids + said->n_prompt;
    size_t n = segments_cut(&r->l.marks, ids, said->n - said->n_prompt, frames, r->part, advance);
    for (size_t i = 0; i < n; i++) {
        const struct speech_part *p = &r->part[i];
        kvik_segment *s;
        if (p->from == p->to) continue;
        TRY(transcript_add(r->transcript, &r->l, said, p, offset, &s));
        s->level = level_of(r, p, at);
        s->no_speech = s->level < SILENCE;
        TRY(remember_text(r, ids + p->from, p->to - p->from));
        if (r->l.want.on_segment && !r->l.want.on_segment(r->l.want.ctx, s))
            return ERR(CANCELLED, "%s: cancelled at %.2f s", r->name, offset);
        if (!r->keep_segments) transcript_forget(r->transcript);
    }
    return 0;
}

/* Copies n of the caller's frames of features, from frame `at` on, into the window, and fills the window up with
 * zeros. */
static void take_given(struct recording *r, uint64_t at, uint32_t n)
{
    const struct speech_marks *k = &r->l.marks;
    for (uint32_t b = 0; b < k->bands; b++) {
        float *row = r->l.features + (size_t)b * k->frames;
        memset(row, 0, k->frames * sizeof *row);
        memcpy(row, r->given + b * r->given_frames + at, n * sizeof *row);
    }
}

/* Transcribes the window that begins at frame `at`.  *advance: frames from this window to the next. */
static int window(struct recording *r, uint64_t at, uint32_t *advance)
{
    struct listener *l = &r->l;
    struct speech_said said;
    size_t n, start;
    uint32_t frames = (uint32_t)MIN(r->frames - at, l->marks.frames);
    /* Number of frames that are sound.  The others are silence that fills up a short recording. */
    uint64_t sound = (r->samples + MEL_HOP - 1) / MEL_HOP;
    if (r->given)
        take_given(r, at, frames);
    else
        TRY(features_window(r->features, at, frames, l->marks.frames, l->features));
    TRY(listener_hear(l));
    if (!r->n_head) TRY(make_head(r));
    TRY(make_prompt(r, &n, &start));
    sound = r->all ? at + l->marks.frames : MIN(sound, r->frames);
    TRY(listener_decode(
        l, n, start, (uint32_t)MIN(sound > at ? sound - at : 0, r->all ? l->marks.frames : frames),
        &said));
    r->keep_past = said.keep;
    *advance = frames;
    if (said.skip) return 0;
    return add_segments(r, &said, frames, at, advance);
}

/* Tells the caller what is wrong with the recording, for example that its end is missing. */
static void tell_note(const struct recording *r)
{
    const kvik_speech *w = &r->l.want;
    const char *note = audio_note(r->audio);
    struct buf b;
    if (!*note || !w->on_notice) return;
    buf_init(&b, 1 << 16);
    if (buf_printf(&b, "%s: %s (%.2f s)", r->name, note, (double)r->samples / AUDIO_RATE) >= 0)
        w->on_notice(w->ctx, b.data);
    buf_done(&b);
}

static double seconds_of(const struct recording *r)
{
    return (double)r->samples / AUDIO_RATE;
}

/* Reads on until the window that begins at frame `at` is complete.  Does nothing if the whole recording was read
 * before. */
static int await(struct recording *r, uint64_t at)
{
    uint64_t end = at + r->l.marks.frames;
    if (!r->comes) return 0;
    TRY(tell_progress(r, KVIK_HEARING_READ, seconds_of(r), audio_promised(r->audio)));
    /* Without timestamps the recording must fit one window.  One more frame is read to know this before any text
     * is shown. */
    TRY(features_reach(r->features, at, r->l.timestamps ? end : end + 1));
    r->frames = r->features->frames;
    r->samples = r->features->samples;
    return 0;
}

static int windows(struct recording *r)
{
    uint32_t advance;
    for (uint64_t at = 0;; at += advance) {
        TRY(await(r, at));
        if (r->frames > r->l.marks.frames && !r->l.timestamps)
            return ERR(ARG,
                       "%s: the recording has %.2f s%s and a window %.2f; longer recordings need "
                       "return_timestamps",
                       r->name, seconds_of(r), r->comes ? " or more" : "",
                       r->l.marks.frames * SPEECH_FRAME);
        if (at >= r->frames) break;
        double total = r->comes ? audio_promised(r->audio) : seconds_of(r);
        TRY(tell_progress(r, KVIK_HEARING_TRANSCRIBE, MIN((double)at * SPEECH_FRAME, seconds_of(r)),
                          total));
        TRY(window(r, at, &advance));
    }
    if (r->comes) tell_note(r);
    return tell_progress(r, KVIK_HEARING_TRANSCRIBE, seconds_of(r), seconds_of(r));
}

/* Reads the whole recording for its length and its loudest band. */
static int survey_recording(struct recording *r)
{
    const struct speech_marks *k = &r->l.marks;
    TRY(features_open(r->audio, k->bands, k->samples, reading, r, &r->features));
    r->frames = r->features->frames;
    r->samples = r->features->samples;
    tell_note(r);
    return 0;
}

/* Begins a recording that is still being made, which can be read only once. */
static int begin_live(struct recording *r)
{
    const struct speech_marks *k = &r->l.marks;
    return features_begin(r->audio, k->bands, k->samples, &r->features);
}

/* Checks features that the caller gave.  As in Transformers, of one window all frames are used; of a longer
 * recording only those that are sound. */
static int check_given(struct recording *r)
{
    uint32_t window = r->l.marks.frames;
    uint64_t sound = r->samples / MEL_HOP;
    if (r->given_frames < window)
        return ERR(ARG, "%zu frames of features; a window of the model has %u", r->given_frames,
                   window);
    if (sound > r->given_frames)
        return ERR(ARG, "%llu of %zu frames of features cannot be sound", (unsigned long long)sound,
                   r->given_frames);
    if (!sound) {
        r->all = true;
        sound = r->given_frames;
        r->samples = sound * MEL_HOP;
    }
    r->frames = r->given_frames > window ? sound : window;
    return 0;
}

static int transcribe(kvik_cache *c, struct recording *r, const kvik_speech *o,
                      kvik_transcript **out)
{
    TRY(listener_open(c, o, &r->l));
    r->keep_past = o->condition_on_prev_tokens;
    r->keep_segments = out != NULL;
    r->part = mem_array(r->l.marks.max_length + 1, sizeof *r->part);
    if (!r->part) return ERR_NOMEM;
    TRY(transcript_new(&r->transcript));
    TRY(take_prompt(r));
    TRY(r->given ? check_given(r) : r->comes ? begin_live(r) : survey_recording(r));
    TRY(windows(r));
    if (!out) return 0;
    return transcript_take(r->transcript, seconds_of(r), r->l.windows, out);
}

/* Transcribes, and frees the memory for it. */
static int transcribe_recording(kvik_cache *c, struct recording *r, const kvik_speech *o,
                                kvik_transcript **out)
{
    int e = transcribe(c, r, o, out);
    features_close(r->features);
    transcript_drop(r->transcript);
    ids_done(&r->past);
    mem_free(r->part);
    listener_done(&r->l);
    return cache_full(c, e);
}

/* Transcribes the sound of `audio`, and closes `audio`. */
static int run_audio(kvik_cache *c, struct audio *audio, bool comes, const kvik_speech *o,
                     kvik_transcript **out)
{
    struct recording r = {.audio = audio, .comes = comes, .name = audio_name(audio)};
    int e = transcribe_recording(c, &r, o, out);
    audio_close(audio);
    return e;
}

/* Checks the arguments of a call, and completes the options. */
static int check_call(kvik_cache *c, const kvik_speech *o, kvik_transcript **out, kvik_speech *full)
{
    TRY(exec_idle(c->x));
    TRY(kvik_speech_init(full));
    if (o) TRY(SIZED_IN(full, o, kvik_speech));
    full->size = sizeof *full;
    if (!out && !full->on_segment)
        return ERR(ARG, "a pointer for the transcript is needed, or on_segment");
    if (!full->temperatures || !full->n_temperatures) {
        full->temperatures = temperatures;
        full->n_temperatures = countof(temperatures);
    }
    if (full->n_temperatures > 64)
        return ERR(ARG, "%u temperatures; at most 64 are possible", full->n_temperatures);
    /* checked before the file, because a text model can transcribe no file */
    return marks_check_model(c->model);
}

KVIK_API int kvik_transcribe(kvik_cache *c, const char *path, const kvik_speech *o,
                             kvik_transcript **out)
{
    struct audio *audio;
    kvik_speech full;
    USE_CACHE(c);
    if (!path) return ERR(ARG, "the path of a recording is needed, and NULL was given");
    TRY(check_call(c, o, out, &full));
    TRY(audio_open(path, &audio));
    return run_audio(c, audio, false, &full, out);
}

KVIK_API int kvik_transcribe_stream(kvik_cache *c, kvik_on_sound read, const char *name,
                                    const kvik_speech *o, kvik_transcript **out)
{
    struct audio *audio;
    kvik_speech full;
    USE_CACHE(c);
    if (!read) return ERR(ARG, "a callback that gives the recording is needed, and NULL was given");
    TRY(check_call(c, o, out, &full));
    TRY(audio_stream(read, full.ctx, name ? name : "the recording", &audio));
    return run_audio(c, audio, true, &full, out);
}

KVIK_API int kvik_transcribe_samples(kvik_cache *c, const float *samples, size_t n,
                                     const kvik_speech *o, kvik_transcript **out)
{
    struct audio *audio;
    kvik_speech full;
    USE_CACHE(c);
    if (!samples && n) return ERR(ARG, "samples are needed, and NULL was given");
    TRY(check_call(c, o, out, &full));
    TRY(audio_samples(samples, n, "the recording", &audio));
    return run_audio(c, audio, false, &full, out);
}

KVIK_API int kvik_transcribe_features(kvik_cache *c, const float *features, size_t n_frames,
                                      size_t n_sound, const kvik_speech *o, kvik_transcript **out)
{
    kvik_speech full;
    USE_CACHE(c);
    if (!features) return ERR(ARG, "features are needed, and NULL was given");
    TRY(check_call(c, o, out, &full));
    if (n_sound > n_frames || n_frames > (uint64_t)AUDIO_SECONDS * AUDIO_RATE / MEL_HOP)
        return ERR(ARG, "%zu of %zu frames of features cannot be sound", n_sound, n_frames);
    struct recording r = {.name = "the recording",
                          .given = features,
                          .given_frames = n_frames,
                          .samples = (uint64_t)n_sound * MEL_HOP};
    return transcribe_recording(c, &r, &full, out);
}
