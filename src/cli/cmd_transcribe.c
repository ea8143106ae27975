/* cmd_transcribe.c - kvik transcribe: the text of recordings. */
#include "base/file.h"
#include "cli/cli.h"
#include "cli/convert.h"
#include "cli/transcript_file.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEMPERATURES = 16 };

struct options {
    struct common common;
    const char *language, *task, *prompt, *format, *temperature, *compression, *logprob, *no_speech,
        *penalty, *early, *dir;
    bool timestamps, words, condition, overwrite;
    uint32_t seed, beams;
};

static const struct arg_option table[] = {
    {"language", ARG_TEXT, offsetof(struct options, language), "NAME", NULL,
     "language of the recordings: a name or a code, such as German or de (default: the language of each "
     "recording's first window)"},
    {"task", ARG_TEXT, offsetof(struct options, task), "TASK", "transcribe|translate",
     "write what is said, or translate it into English (default: transcribe)"},
    {"format", ARG_TEXT, offsetof(struct options, format), "FORMAT", "text|json|srt|vtt",
     "text: one line per segment; json: one object per recording; srt, vtt: subtitles (default: text)"},
    {"json", ARG_FLAG, offsetof(struct options, common.json), NULL, NULL,
     "the same as --format json"},
    {"output-dir", ARG_TEXT, offsetof(struct options, dir), "DIR", NULL,
     "write a file for each recording into DIR: talk.txt, .json, .srt or .vtt for talk.mp3 (default: subtitles of several "
     "recordings lie beside them, all else goes to standard output)"},
    {"overwrite", ARG_FLAG, offsetof(struct options, overwrite), NULL, NULL,
     "replace files that are there already"},
    {"word-timestamps", ARG_FLAG, offsetof(struct options, words), NULL, NULL,
     "find the times of words; they are part of json and vtt"},
    {"return-timestamps", ARG_BOOL, offsetof(struct options, timestamps), "true|false", NULL,
     "false: without times of segments, for recordings of at most one window (default: true)"},
    {"prompt", ARG_TEXT, offsetof(struct options, prompt), "TEXT", NULL,
     "text that the recordings may continue: names and terms as they are spelled"},
    {"condition-on-prev-tokens", ARG_BOOL, offsetof(struct options, condition), "true|false", NULL,
     "show each window the text of those before it (default: false)"},
    {"temperature", ARG_TEXT, offsetof(struct options, temperature), "X,...", NULL,
     "temperatures, tried in turn until the text of a window is good enough (default: "
     "0,0.2,0.4,0.6,0.8,1)"},
    {"num-beams", ARG_UINT, offsetof(struct options, beams), "N", NULL,
     "above 1: search each window at temperature 0 with this many beams (default: 1)"},
    {"length-penalty", ARG_TEXT, offsetof(struct options, penalty), "X", NULL,
     "beams: divide scores by length to this power; above 0 favours longer texts (default: 1)"},
    {"early-stopping", ARG_TEXT, offsetof(struct options, early), "WHEN", "false|true|never",
     "beams: when a search ends. true: when num-beams texts are complete; false: when a better one is unlikely; never: when a "
     "better one is impossible (default: false)"},
    {"compression-ratio-threshold", ARG_TEXT, offsetof(struct options, compression), "X", NULL,
     "try again if the text compresses better than this; 0: never (default: 1.35)"},
    {"logprob-threshold", ARG_TEXT, offsetof(struct options, logprob), "X", NULL,
     "try again if the mean log-probability is lower; 0: never (default: -1)"},
    {"no-speech-threshold", ARG_TEXT, offsetof(struct options, no_speech), "X", NULL,
     "drop such a text instead if nobody speaks with more than this probability; 0: never (default: 0.6)"},
    {"seed", ARG_UINT, offsetof(struct options, seed), "N", NULL,
     "seed of the draws at temperatures above 0 (default: 0)"},
};

struct transcribe_run {
    struct transcript_print print;
    struct progress progress;
    enum kvik_hearing shown;
    const char *name;   /* name of the recording */
    struct sound sound; /* the recording, if it comes through a pipe */
    struct spool via;   /* the file that the library reads in its place, if there is one */
};

/* Returns the sentence of the library without the path that it begins with, because that path may name a spool. */
static const char *behind_path(const struct transcribe_run *r, const char *text)
{
    size_t n = strlen(r->via.path);
    return n && !strncmp(text, r->via.path, n) ? text + n : NULL;
}

static int read_number(const char *name, const char *text, double *out)
{
    char *end;
    if (!text) return 0;
    errno = 0;
    double v = strtod(text, &end);
    if (end == text || *end || errno || !isfinite(v))
        return say_usage("--%s: \"%.60s\" is not a number", name, text);
    *out = v;
    return 0;
}

static int read_list(const char *text, double out[TEMPERATURES], uint32_t *n)
{
    char part[64];
    for (const char *at = text; text && at; *n += 1) {
        size_t len = strcspn(at, ",");
        if (*n == TEMPERATURES)
            return say_usage("--temperature: more than %d temperatures; leave some out",
                             TEMPERATURES);
        snprintf(part, sizeof part, "%.*s", (int)MIN(len, sizeof part - 1), at);
        int status = read_number("temperature", part, &out[*n]);
        if (status) return status;
        at = at[len] ? at + len + 1 : NULL;
    }
    return 0;
}

/* False after Ctrl-C.  But a recording that comes through a pipe then ends, and the part that was heard is
 * transcribed. */
static bool not_interrupted(const struct transcribe_run *r)
{
    return r->sound.fd >= 0 || !interrupt_seen();
}

static bool on_hearing(void *ctx, enum kvik_hearing what, double seconds, double total)
{
    struct transcribe_run *r = ctx;
    if (r->sound.fd >= 0) {
        progress_show(&r->progress, 0, 0);
        return not_interrupted(r);
    }
    if (what != r->shown) {
        progress_end(&r->progress);
        progress_begin(&r->progress,
                       what == KVIK_HEARING_READ ? "seconds read" : "seconds transcribed");
        r->shown = what;
    }
    progress_show(&r->progress, (uint64_t)seconds, (uint64_t)total);
    return not_interrupted(r);
}

static int64_t on_sound(void *ctx, void *bytes, size_t n)
{
    struct transcribe_run *r = ctx;
    bool before = r->sound.cut;
    int64_t got = sound_read(&r->sound, bytes, n);
    if (r->sound.cut && !before && got >= 0) {
        progress_hide(&r->progress);
        say_line("%s: the recording ends here; Ctrl-C again ends at once", r->name);
    }
    progress_show(&r->progress, 0, 0);
    return got;
}

static bool on_segment(void *ctx, const kvik_segment *segment)
{
    struct transcribe_run *r = ctx;
    progress_hide(&r->progress);
    transcript_print_segment(&r->print, segment);
    return not_interrupted(r);
}

static void on_notice(void *ctx, const char *text)
{
    struct transcribe_run *r = ctx;
    const char *rest = behind_path(r, text);
    progress_hide(&r->progress);
    if (rest)
        say_line("%s%s", r->name, rest);
    else
        say_line("%s", text);
}

/* Puts the name of the recording into the sentence of the last error. */
static int say_of(const struct transcribe_run *r, int e)
{
    const char *rest = behind_path(r, err_last());
    return rest ? say_failed("%s%s", r->name, rest) : say_error(e);
}

/* Copies a recording from a pipe to a file.  Refuses samples without a header, which would be copied until the
 * disk is full. */
static int copy_to_spool(struct transcribe_run *r)
{
    if (!foreign_recording(r->sound.head, (size_t)MIN(r->sound.n, SOUND_HEAD)))
        return say_failed(
            "%s: not a WAV, FLAC, Ogg or MP3 recording; samples without a header need one, as "
            "arecord -t wav and ffmpeg -f wav write it",
            r->name);
    return spool_fill(&r->sound, &r->via);
}

/* Transcribes a file or a pipe.  A recording that cannot be read while it arrives is copied to a file first. */
static int transcribe_path(struct transcribe_run *r, struct engine *s, const char *path,
                           kvik_speech *speech, kvik_transcript **t, int *status)
{
    if (r->sound.fd >= 0) {
        int e = kvik_transcribe_stream(s->cache, on_sound, r->name, speech, t);
        if (e != KVIK_UNSUPPORTED || !r->sound.n || r->sound.n > SOUND_HEAD) return e;
        *status = copy_to_spool(r);
        sound_close(&r->sound);
        if (*status) return e;
    }
    *status = convert_take(r->name, path, &r->via);
    if (*status) return KVIK_CANCELLED;
    return kvik_transcribe(s->cache, r->via.fd ? r->via.path : path, speech, t);
}

/* Prints how a recording has ended.  Returns its exit status. */
static int ended(const struct transcribe_run *r, int e)
{
    if (e < 0 && (r->sound.cut || (e == KVIK_CANCELLED && interrupt_seen())))
        return EXIT_INTERRUPTED;
    if (e == KVIK_IO && r->sound.failed)
        return say_failed("%s: %s", r->name, strerror(r->sound.failed));
    return e < 0 ? say_of(r, e) : 0;
}

/* Transcribes a recording to standard output, or to the file `to`. */
static int one(struct engine *s, const struct options *o, kvik_speech *speech, const char *path,
               struct transcribe_run *r, const char *to)
{
    bool json = o->common.json;
    kvik_transcript *t = NULL;
    int status = 0;
    r->print.format = json ? TRANSCRIPT_JSON : transcript_format(o->format);
    r->print.keeps = to != NULL;
    r->shown = KVIK_HEARING_READ;
    speech->ctx = r;
    progress_begin(&r->progress, r->sound.fd >= 0 ? "transcribing" : "seconds read");
    transcript_print_begin(&r->print);
    int e = transcribe_path(r, s, path, speech, json ? &t : NULL, &status);
    progress_end(&r->progress);
    if (e >= 0 && json) transcript_print_json(&r->print, r->name, t);
    if (e >= 0) e = r->print.error;
    if (e >= 0 && to)
        e = file_write(to, r->print.out.len ? r->print.out.data : "", r->print.out.len);
    if (e >= 0 && to) say_line("%s: the transcript is in %s", path, to);
    if (e >= 0 && r->print.silent)
        say_line("%s: %lu segment%s where nobody speaks %s left out; --format json has them",
                 r->name, r->print.silent, r->print.silent == 1 ? "" : "s",
                 r->print.silent == 1 ? "is" : "are");
    kvik_transcript_free(t);
    buf_done(&r->print.out);
    if (!status) status = ended(r, e);
    /* the next recordings are transcribed all the same */
    if (!status && r->sound.cut) interrupt_clear();
    return status;
}

/* Opens a recording and transcribes it. */
static int open_one(struct engine *s, const struct options *o, kvik_speech *speech,
                    const struct args *a, size_t i, const char *to)
{
    bool standard = args_is_stdin(a, i);
    struct transcribe_run r = {.name = standard ? "standard input" : a->word[i],
                               .sound = {.fd = -1}};
    int status = 0;
    if (!standard || !spool_redirected(&r.via)) status = sound_open(a->word[i], standard, &r.sound);
    if (!status) status = one(s, o, speech, a->word[i], &r, to);
    sound_close(&r.sound);
    spool_drop(&r.via);
    return status;
}

/* Transcribes all recordings.  If one fails, the others are transcribed all the same. */
static int each_recording(const struct options *o, const struct args *a, kvik_speech *speech,
                          char *const *to)
{
    struct engine s;
    int status = engine_open_model(&s, a->word[0], &o->common);
    if (status) return status;
    json_t *none = json_object();
    int e = none ? engine_settle(&s, none) : KVIK_NOMEM, failed = 0;
    json_decref(none);
    status =
        e < 0 ? say_error(e) : engine_cache(&s, MAX(speech->num_beams + 1, 2), engine_context(&s));
    interrupt_catch();
    for (size_t i = 1; i < a->n && !status; i++) {
        status = open_one(&s, o, speech, a, i, to ? to[i - 1] : NULL);
        if (!to || status != EXIT_FAILED) continue;
        failed = status;
        status = 0;
    }
    return engine_close(&s, status ? status : failed);
}

/* Checks recordings from standard input.  named: each transcript is a file of its own. */
static int check_piped(const struct args *a, bool named)
{
    size_t n = 0;
    for (size_t i = 1; i < a->n; i++)
        n += args_is_stdin(a, i);
    if (n > 1) return args_twice();
    if (n && named)
        return say_usage("a recording on standard input has no name for its file; give a FILE");
    if (n && isatty(STDIN_FILENO))
        return say_usage(
            "standard input is a terminal; pipe a recording into kvik transcribe MODEL -");
    return 0;
}

/* Finds the names of the transcripts, if they are files, and transcribes. */
static int run_files(const struct options *o, const struct args *a, kvik_speech *speech)
{
    enum transcript_format format = o->common.json ? TRANSCRIPT_JSON : transcript_format(o->format);
    bool subtitles = format == TRANSCRIPT_SRT || format == TRANSCRIPT_VTT;
    size_t n = a->n - 1;
    bool named = o->dir || (subtitles && n > 1);
    int status = check_piped(a, named);
    if (status || !named) return status ? status : each_recording(o, a, speech, NULL);
    char **to = mem_array(n, sizeof(char *));
    if (!to) status = say_error(KVIK_NOMEM);
    for (size_t i = 0; i < n && !status; i++)
        if (!(to[i] = transcript_file_name(a->word[i + 1], o->dir, format)))
            status = say_error(KVIK_NOMEM);
    if (!status) status = transcript_files_check(to, a->word + 1, n, o->overwrite);
    if (!status) status = each_recording(o, a, speech, to);
    for (size_t i = 0; to && i < n; i++)
        mem_free(to[i]);
    mem_free(to);
    return status;
}

/* Warns of options of beams that have no effect, as advice.c does for generation options. */
static void tell_idle(const struct options *o, const kvik_speech *speech)
{
    bool greedy = speech->n_temperatures == 0; /* the default list begins with 0 */
    for (uint32_t i = 0; i < speech->n_temperatures; i++)
        greedy |= speech->temperatures[i] == 0;
    if (speech->num_beams > 1 && !greedy)
        say_notice(NULL,
                   "--num-beams has no effect at temperatures above 0; add 0 to --temperature");
    if (speech->num_beams > 1) return;
    if (o->penalty)
        say_notice(NULL, "--length-penalty has no effect without beams; add --num-beams 4");
    if (o->early)
        say_notice(NULL, "--early-stopping has no effect without beams; add --num-beams 4");
}

static int transcribe_all(struct options *o, const struct args *a)
{
    double temperature[TEMPERATURES];
    kvik_speech speech;
    if (a->n < 2) return say_usage("kvik transcribe needs a MODEL and a FILE");
    if (o->format && !strcmp(o->format, "json")) o->common.json = true;
    if (o->format && o->common.json && strcmp(o->format, "json") != 0)
        return say_usage("--json goes with no other --format");
    int e = kvik_speech_init(&speech);
    if (e < 0) return say_error(e);
    speech.language = o->language;
    speech.task = o->task;
    speech.prompt = o->prompt;
    speech.return_timestamps = o->timestamps;
    speech.word_timestamps = o->words;
    speech.condition_on_prev_tokens = o->condition;
    speech.seed = o->seed;
    speech.num_beams = MAX(o->beams, 1);
    speech.early_stopping = !o->early || !strcmp(o->early, "false") ? KVIK_EARLY_FALSE
                            : !strcmp(o->early, "true")             ? KVIK_EARLY_TRUE
                                                                    : KVIK_EARLY_NEVER;
    speech.on_segment = o->common.json ? NULL : on_segment;
    speech.on_hearing = on_hearing;
    speech.on_notice = on_notice;
    int status = read_list(o->temperature, temperature, &speech.n_temperatures);
    if (speech.n_temperatures) speech.temperatures = temperature;
    if (!status)
        status = read_number("compression-ratio-threshold", o->compression,
                             &speech.compression_ratio_threshold);
    if (!status) status = read_number("logprob-threshold", o->logprob, &speech.logprob_threshold);
    if (!status)
        status = read_number("no-speech-threshold", o->no_speech, &speech.no_speech_threshold);
    if (!status) status = read_number("length-penalty", o->penalty, &speech.length_penalty);
    if (!status && o->beams > 1024)
        status = say_usage("--num-beams is %u; at most 1024 are possible", o->beams);
    if (status) return status;
    tell_idle(o, &speech);
    return run_files(o, a, &speech);
}

static int run_transcribe(const struct command *self, int argc, char **argv)
{
    struct options o = {.timestamps = true};
    struct args a;
    int status = args_parse(self, argc, argv, &o, &a);
    if (status == 0) status = transcribe_all(&o, &a);
    args_done(&a);
    return MAX(status, 0);
}

const struct command command_transcribe = {
    .name = "transcribe",
    .usage = "MODEL FILE...",
    .summary = "recordings to text",
    .about =
        "Writes what is said in recordings (WAV, FLAC, Ogg, MP3) with a Whisper model. Long recordings\n"
        "are read in windows of 30 seconds. - is standard input. What comes through a pipe or a FIFO as WAV is\n"
        "written window by window; Ctrl-C ends the recording. Other formats are read to their end first.\n"
        "m4a, webm, video and others are decoded by ffmpeg or gst-launch-1.0, if one is installed.\n"
        "  arecord -f S16_LE -r 16000 | kvik transcribe MODEL -",
    .run = run_transcribe,
    .option = table,
    .n_options = countof(table),
    .runs_model = true,
};
