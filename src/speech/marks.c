/* marks.c - reads the special tokens and numbers that a speech model needs, from config.json,
 * generation_config.json and preprocessor_config.json.  Files are untrusted: ids must be in the vocabulary, and
 * heads in the model. */
#include "base/file.h"
#include "speech/speech.h"

#include <stdio.h>
#include <string.h>

/* Reads a token id; -1 if the key is absent. */
static int read_id(const kvik_model *m, const json_t *o, const char *key, int32_t *out)
{
    uint32_t id = 0;
    *out = -1;
    int e = json_get_u32(o, "generation_config.json", key, 0, m->m->vocab - 1, &id);
    if (e > 0) *out = (int32_t)id;
    return MIN(e, 0);
}

/* Reads eos_token_id.  If it is a list, its first id counts. */
static int read_end(const kvik_model *m, const json_t *o, int32_t *out)
{
    const json_t *v = json_object_get(o, "eos_token_id");
    if (!json_is_array(v)) return read_id(m, o, "eos_token_id", out);
    json_int_t id = json_integer_value(json_array_get(v, 0));
    if (!json_is_integer(json_array_get(v, 0)) || id < 0 || id >= m->m->vocab)
        return ERR(FORMAT, "generation_config.json: eos_token_id is no token of the model");
    *out = (int32_t)id;
    return 0;
}

static int read_languages(const kvik_model *m, const json_t *o, struct speech_marks *k)
{
    const json_t *map = json_object_get(o, "lang_to_id");
    const char *token;
    json_t *v;
    if (!map || json_is_null(map)) return 0;
    if (!json_is_object(map)) return ERR(FORMAT, "generation_config.json: lang_to_id is no object");
    json_object_foreach((json_t *)(uintptr_t)map, token, v) if (
        !json_is_integer(v) || json_integer_value(v) < 0 ||
        json_integer_value(v) >=
            m->m->vocab) return ERR(FORMAT,
                                    "generation_config.json: lang_to_id of \"%s\" is no token",
                                    token);
    if (json_object_size(map)) k->languages = map;
    return 0;
}

static int read_heads(const kvik_model *m, const json_t *o, struct speech_marks *k)
{
    const json_t *list = json_object_get(o, "alignment_heads");
    if (!list || json_is_null(list)) return 0;
    size_t n = json_array_size(list), most = (size_t)m->m->n_layers * m->m->n_heads;
    if (!json_is_array(list) || n > most)
        return ERR(FORMAT, "generation_config.json: alignment_heads is not a list of heads");
    k->align = mem_array(MAX(n, 1), sizeof *k->align);
    if (!k->align) return ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const json_t *pair = json_array_get(list, i), *a = json_array_get(pair, 0),
                     *b = json_array_get(pair, 1);
        json_int_t layer = json_integer_value(a), head = json_integer_value(b);
        if (!json_is_integer(a) || !json_is_integer(b) || json_array_size(pair) != 2 || layer < 0 ||
            layer >= m->m->n_layers || head < 0 || head >= m->m->n_heads)
            return ERR(FORMAT,
                       "generation_config.json: alignment_heads[%zu] is no head of the model", i);
        k->align[i] = (struct speech_pick){(uint32_t)layer, (uint32_t)head};
    }
    k->n_align = (uint32_t)n;
    return 0;
}

/* Finds a token by the key of the configuration; if that is absent, by its text. */
static int read_or_find(const kvik_model *m, const json_t *o, const char *key, const char *text,
                        int32_t *out)
{
    TRY(read_id(m, o, key, out));
    if (*out < 0 && m->tok) *out = tok_find(m->tok->tok, text, strlen(text));
    if (*out >= (int64_t)m->m->vocab) *out = -1;
    return 0;
}

static int read_tokens(const kvik_model *m, const json_t *o, struct speech_marks *k)
{
    uint32_t n = 0;
    const json_t *tasks = json_object_get(o, "task_to_id");
    TRY(read_end(m, o, &k->eos));
    TRY(read_id(m, o, "decoder_start_token_id", &k->start));
    if (k->start < 0) k->start = m->m->encoder.start;
    if (k->start < 0 || k->eos < 0)
        return ERR(UNSUPPORTED,
                   "%s: generation_config.json does not name the first and the last token",
                   m->m->what);
    TRY(read_id(m, o, "no_timestamps_token_id", &k->no_timestamps));
    TRY(read_or_find(m, o, "prev_sot_token_id", "<|startofprev|>", &k->previous));
    k->first_timestamp = k->no_timestamps < 0 ? INT32_MAX : k->no_timestamps + 1;
    k->no_speech = k->no_timestamps - 1;
    TRY(read_id(m, tasks, "transcribe", &k->transcribe));
    TRY(read_id(m, tasks, "translate", &k->translate));
    TRY(read_languages(m, o, k));
    k->multilingual = k->languages != NULL;
    TRY(json_get_bool(o, "generation_config.json", "is_multilingual", &k->multilingual));
    k->max_initial = -1;
    int e =
        json_get_u32(o, "generation_config.json", "max_initial_timestamp_index", 0, 1u << 20, &n);
    if (e > 0) k->max_initial = (int32_t)n;
    TRY(e);
    k->max_length = m->m->context;
    TRY(json_get_u32(o, "generation_config.json", "max_length", 1, 1u << 24, &k->max_length));
    k->max_length = MIN(k->max_length, m->m->context);
    if (k->max_length < 2) /* half of the length is for the text before a window */
        return ERR(FORMAT, "%s: a max_length of %u leaves no room for a text; 2 is the least",
                   m->m->what, k->max_length);
    k->median = 7;
    TRY(json_get_u32(m->m->config, "config.json", "median_filter_width", 1, 63, &k->median));
    return read_heads(m, o, k);
}

/* Reads how the features of a window are made.  Without a file, 30 s as in all published models. */
static int read_window(const kvik_model *m, struct speech_marks *k)
{
    char path[4096];
    json_t *o = NULL;
    uint32_t rate = AUDIO_RATE, hop = MEL_HOP, points = MEL_WINDOW, seconds = 30;
    k->bands = m->m->encoder.bins;
    k->frames = m->m->encoder.rows * m->m->encoder.stride;
    int n = snprintf(path, sizeof path, "%s/preprocessor_config.json", checkpoint_path(m->m->ck));
    if (n < 0 || n >= (int)sizeof path)
        return ERR(
            LIMIT,
            "%s: the path of preprocessor_config.json has %d bytes, the limit is %zu; move the model",
            m->m->what, n, sizeof path - 1);
    const char *what = "preprocessor_config.json";
    int e = path_exists(path) ? json_read(path, 1 << 20, &o) : 0;
    if (o) {
        uint32_t bands = k->bands;
        if (e >= 0) e = json_get_u32(o, what, "feature_size", 1, MEL_MOST, &bands);
        if (e >= 0) e = json_get_u32(o, what, "sampling_rate", 1, 1u << 20, &rate);
        if (e >= 0) e = json_get_u32(o, what, "hop_length", 1, 1u << 20, &hop);
        if (e >= 0) e = json_get_u32(o, what, "n_fft", 1, 1u << 20, &points);
        if (e >= 0) e = json_get_u32(o, what, "chunk_length", 1, 3600, &seconds);
        if (e >= 0 && bands != k->bands)
            e = ERR(FORMAT, "%s: feature_size is %u, but the model takes %u bands", what, bands,
                    k->bands);
        json_decref(o);
    }
    if (e < 0) return e;
    if (rate != AUDIO_RATE || hop != MEL_HOP || points != MEL_WINDOW)
        return ERR(UNSUPPORTED,
                   "%s: features of %u Hz, a hop of %u and %u points; only %u, %u and %u are "
                   "supported",
                   what, rate, hop, points, AUDIO_RATE, MEL_HOP, MEL_WINDOW);
    k->samples = (uint64_t)seconds * AUDIO_RATE;
    return 0;
}

int marks_check_model(const kvik_model *m)
{
    if (m->m->encoder.bins) return 0;
    return ERR(
        UNSUPPORTED,
        "%s: a model of architecture %s does not transcribe recordings; a Whisper model does",
        m->m->what, m->m->arch_name);
}

int marks_read(const kvik_model *m, struct speech_marks *k)
{
    const json_t *o = checkpoint_generation_config(m->m->ck);
    *k = (struct speech_marks){0};
    TRY(marks_check_model(m));
    if (!m->tok) return ERR(UNSUPPORTED, "%s: the model has no tokenizer", m->m->what);
    if (!o) return ERR(UNSUPPORTED, "%s: generation_config.json is missing", m->m->what);
    int e = read_tokens(m, o, k);
    if (e >= 0) e = read_window(m, k);
    if (e < 0) marks_done(k);
    return e;
}

void marks_done(struct speech_marks *k)
{
    mem_free(k->align);
    k->align = NULL;
}
