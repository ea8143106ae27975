/* api_world.h - the objects that the arguments of api_calls.h point to, and the call of a row of the table. */
#pragma once
#include "api_calls.h"

#include <sys/stat.h>

struct api_world {
    kvik_model *model;
    kvik_tokenizer *tokenizer;
    kvik_cache *cache;
    kvik_layers *layers;
    kvik_batch *batch;
    kvik_request *request;
    kvik_decoder *decoder;
    kvik_sampler *sampler;
    kvik_schema *schema;
    kvik_shared *shared;
    kvik_fetch *fetch;
    kvik_reading *reading;
    kvik_seq mine; /* sequence of the batch */
    kvik_cache_config config;
    kvik_generation g, g_out;
    kvik_prompt prompt;
    kvik_hooks hooks;
    kvik_span span;
    kvik_source source;
    kvik_encoder encoder;
    kvik_encoded encoded;
    kvik_model_options model_options;
    kvik_speech speech;
    kvik_inputs inputs;
    kvik_outputs outputs;
    kvik_usage usage;
    kvik_progress progress;
    kvik_chunk chunk;
    kvik_splice splice;
    kvik_shared_state shared_state;
    kvik_fetched fetched;
    kvik_sync sync;
    kvik_export *export;
    kvik_legacy *legacy;
    kvik_result *result;
    kvik_choice choice;
    kvik_shape shape;
    kvik_rows rows;
    kvik_message message;
    kvik_chat chat;
    const char *kind[1];
    uint32_t index[2];
    float *floats;
    uint8_t *room; /* [ROOM] */
    uint64_t out[ARGS];
};
static char api_dir[] = "/tmp/kvik-api-XXXXXX";
static char api_store[80];   /* an address */
static char api_path[8][64]; /* model, session, saved, legacy, logits, prefixes, spill */
enum { P_MODEL, P_SESSION, P_SAVED, P_LEGACY, P_LOGITS, P_PREFIXES };

static inline int64_t api_need(int64_t e)
{
    if (e < 0) fail_msg("%s", kvik_last_error());
    return e;
}

/* Makes the directory with a model that has a tokenizer. */
static inline void api_files_make(void)
{
    static const char *const name[] = {"model",  "a.session",          "b.session",
                                       "legacy", "logits.safetensors", "prefixes"};
    static const char *const file[] = {"config.json", "generation_config.json",
                                       "model.safetensors"};
    char cwd[512], from[640], to[128];
    assert_non_null(mkdtemp(api_dir));
    setenv("XDG_CACHE_HOME", api_dir, 1); /* kvik_model_verify writes there */
    for (size_t i = 0; i < countof(name); i++)
        snprintf(api_path[i], sizeof api_path[i], "%s/%s", api_dir, name[i]);
    snprintf(api_store, sizeof api_store, "file://%s/store", api_dir);
    assert_int_equal(mkdir(api_path[P_MODEL], 0700), 0);
    assert_int_equal(mkdir(api_path[P_PREFIXES], 0700), 0);
    assert_non_null(getcwd(cwd, sizeof cwd));
    for (size_t i = 0; i < countof(file); i++) {
        snprintf(from, sizeof from, "%s/tests/golden/models/llama-mha/%s", cwd, file[i]);
        snprintf(to, sizeof to, "%s/%s", api_path[P_MODEL], file[i]);
        assert_int_equal(symlink(from, to), 0);
    }
    toy_tokenizer(api_path[P_MODEL], VOCAB);
}

static inline void api_files_remove(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", api_dir);
    assert_int_equal(system(command), 0);
}

static inline void api_structs(struct api_world *w)
{
    w->prompt = (kvik_prompt){.size = sizeof w->prompt, .ids = api_ids, .n = IDS, .seq = w->mine};
    w->hooks = (kvik_hooks){.size = sizeof w->hooks};
    w->span = (kvik_span){.size = sizeof w->span, .seq = w->mine, .ids = api_ids, .n = IDS};
    w->source = (kvik_source){.size = sizeof w->source, .ids = api_ids, .n = IDS};
    w->encoder = (kvik_encoder){.size = sizeof w->encoder};
    w->encoded = (kvik_encoded){.size = sizeof w->encoded};
    w->model_options = (kvik_model_options){.size = sizeof w->model_options};
    api_need(kvik_speech_init(&w->speech));
    w->inputs = (kvik_inputs){.size = sizeof w->inputs, .ids = api_ids, .n = IDS};
    w->outputs = (kvik_outputs){.size = sizeof w->outputs, .logits = w->floats};
    w->usage = (kvik_usage){.size = sizeof w->usage};
    w->progress = (kvik_progress){.size = sizeof w->progress};
    w->chunk = (kvik_chunk){.size = sizeof w->chunk, .ids = api_ids, .n = IDS};
    w->splice = (kvik_splice){.size = sizeof w->splice};
    w->shared_state = (kvik_shared_state){.size = sizeof w->shared_state};
    w->fetched = (kvik_fetched){.size = sizeof w->fetched};
    w->sync = (kvik_sync){.size = sizeof w->sync};
    w->choice = (kvik_choice){
        .size = sizeof w->choice, .logits = w->floats, .ids = api_ids, .n = IDS, .n_prompt = 3};
    w->shape = (kvik_shape){
        .size = sizeof w->shape, .batch = 1, .heads = 1, .n = 1, .dim_k = 4, .dim_v = 4};
    w->rows = (kvik_rows){.size = sizeof w->rows};
    w->message = (kvik_message){.size = sizeof w->message, .role = "user", .content = "Hi"};
    w->chat = (kvik_chat){.size = sizeof w->chat,
                          .message = &w->message,
                          .n = 1,
                          .template_text = "{{ messages[0].content }}"};
    w->kind[0] = "full_attention";
    w->index[0] = w->index[1] = 0;
}

/* Opens everything.  config: configuration of the cache; its size is set. */
static inline void api_open(struct api_world *w, const kvik_cache_config *config)
{
    *w = (struct api_world){.config = *config};
    w->floats = calloc((size_t)2 * IDS * VOCAB, sizeof *w->floats);
    w->room = calloc(1, ROOM);
    assert_true(w->floats && w->room);
    api_need(kvik_model_open(api_path[P_MODEL], &w->model));
    api_need(kvik_tokenizer_open(api_path[P_MODEL], &w->tokenizer));
    api_need(kvik_cache_open(w->model, config, &w->cache));
    api_need(kvik_layers_open(NULL, 1, NULL, &w->layers));
    api_need(kvik_batch_open(w->cache, 1, &w->batch));
    w->mine = kvik_batch_seq(w->batch, 0);
    api_need(kvik_generation_init(&w->g, w->model));
    api_need(kvik_generation_init(&w->g_out, w->model));
    w->g.max_new_tokens = 6;
    w->g.n_eos = 0;
    w->g.output_logits = true;
    api_structs(w);
    kvik_prompt fresh = w->prompt;
    fresh.seq = 0;
    api_need(kvik_generate(w->cache, &w->g, &fresh, 1, NULL, &w->result));
    w->inputs.n = 3;
    api_need(kvik_batch_forward(w->batch, &w->inputs, NULL));
    w->inputs.n = IDS;
    api_need(kvik_cache_export(w->cache, w->mine, &w->export));
    api_need(kvik_batch_to_legacy(w->batch, &w->legacy));
    unlink(api_path[P_SESSION]); /* a new cache does not replace the sessions of another */
    unlink(api_path[P_SAVED]);
    api_need(kvik_cache_save(w->cache, api_path[P_SESSION], &w->mine, 1, "note"));
    api_need(kvik_legacy_save(w->legacy, NULL, api_path[P_LEGACY]));
    api_need(kvik_logits_save(w->result, api_path[P_LOGITS]));
    api_need(kvik_request_start(w->cache, &w->g, &fresh, 1, NULL, &w->request));
    api_need(kvik_decoder_open(w->tokenizer, false, &w->decoder));
    api_need(kvik_sampler_open(&w->g, VOCAB, NULL, &w->sampler));
    api_need(kvik_schema_open("true", NULL, &w->schema));
    if (kvik_shared_open(w->cache, api_store, &w->shared) == KVIK_UNSUPPORTED) { /* by turns */
        kvik_cache *plain;
        api_need(kvik_cache_open(w->model, NULL, &plain));
        api_need(kvik_shared_open(plain, api_store, &w->shared));
        kvik_cache_close(plain);
    }
    api_need(kvik_shared_seek(w->shared, api_ids, IDS, NULL, 0, &w->fetch));
    api_need(kvik_session_read(w->cache, api_path[P_SESSION], &w->reading));
    api_need(kvik_layers_update(w->layers, 0, w->floats, w->floats, &w->shape, &w->rows));
}

static inline void api_close(struct api_world *w)
{
    kvik_reading_free(w->reading);
    kvik_fetch_free(w->fetch);
    kvik_shared_close(w->shared);
    kvik_schema_close(w->schema);
    kvik_sampler_close(w->sampler);
    kvik_decoder_close(w->decoder);
    kvik_request_free(w->request);
    kvik_batch_close(w->batch);
    kvik_layers_close(w->layers);
    kvik_cache_close(w->cache);
    kvik_tokenizer_close(w->tokenizer);
    kvik_model_close(w->model);
    kvik_generation_done(&w->g);
    kvik_generation_done(&w->g_out);
    kvik_result_free(w->result);
    kvik_export_free(w->export);
    kvik_legacy_free(w->legacy);
    kvik_sync_done(&w->sync);
    free(w->floats);
    free(w->room);
}

static inline bool api_silent(void *ctx, const char *text)
{
    (void)ctx, (void)text;
    return true;
}

static inline int64_t api_no_sound(void *ctx, void *bytes, size_t n)
{
    (void)ctx, (void)bytes, (void)n;
    return 0;
}

static inline void api_no_block(void *ctx, const kvik_block *b)
{
    (void)ctx, (void)b;
}

/* Returns a valid value of an argument.  at: its place among the arguments. */
static inline uintptr_t api_value(struct api_world *w, int kind, int at)
{
    const void *const p[A_POINTERS] = {
        [A_MODEL] = w->model,
        [A_TOKENIZER] = w->tokenizer,
        [A_CACHE] = w->cache,
        [A_LAYERS] = w->layers,
        [A_BATCH] = w->batch,
        [A_REQUEST] = w->request,
        [A_REQUESTS] = &w->request,
        [A_DECODER] = w->decoder,
        [A_SAMPLER] = w->sampler,
        [A_SCHEMA] = w->schema,
        [A_SHARED] = w->shared,
        [A_FETCH] = w->fetch,
        [A_READING] = w->reading,
        [A_CONFIG] = &w->config,
        [A_GENERATION] = &w->g,
        [A_GENERATION_OUT] = &w->g_out,
        [A_PROMPT] = &w->prompt,
        [A_HOOKS] = &w->hooks,
        [A_SEQS] = &w->mine,
        [A_IDS] = api_ids,
        [A_INDEX] = w->index,
        [A_TEXT] = "sea",
        [A_TEMPLATE] = "{{ messages[0].content }}",
        [A_CHAT] = &w->chat,
        [A_FORMAT] = "chatml",
        [A_OPTION] = "bos_token_id",
        [A_JSON] = "{}",
        [A_SCHEMA_TEXT] = "{\"enum\": [1, \"a\"]}",
        [A_MODEL_PATH] = api_path[P_MODEL],
        [A_SESSION] = api_path[P_SESSION],
        [A_SAVED] = api_path[P_SAVED],
        [A_LEGACY_FILE] = api_path[P_LEGACY],
        [A_LOGITS_FILE] = api_path[P_LOGITS],
        [A_FEATURES_FILE] = api_path[P_LOGITS],
        [A_TENSOR] = "logits",
        [A_DIR] = api_path[P_PREFIXES],
        [A_STORE] = api_store,
        [A_LOGITS] = w->floats,
        [A_FLOATS] = w->floats,
        [A_MASK] = w->room,
        [A_SPAN] = &w->span,
        [A_SOURCE] = &w->source,
        [A_ENCODER] = &w->encoder,
        [A_ENCODED] = &w->encoded,
        [A_MODEL_OPTIONS] = &w->model_options,
        [A_SPEECH] = &w->speech,
        [A_RECORDING] = "tests/fixtures/audio/tone.wav",
        [A_INPUTS] = &w->inputs,
        [A_OUTPUTS] = &w->outputs,
        [A_USAGE] = &w->usage,
        [A_PROGRESS] = &w->progress,
        [A_CHUNK] = &w->chunk,
        [A_SPLICE] = &w->splice,
        [A_SHARED_STATE] = &w->shared_state,
        [A_FETCHED] = &w->fetched,
        [A_SYNC] = &w->sync,
        [A_EXPORT] = w->export,
        [A_LAYER] = w->export->layer,
        [A_PLANE] = "keys",
        [A_LEGACY] = w->legacy,
        [A_RESULT] = w->result,
        [A_CHOICE] = &w->choice,
        [A_SHAPE] = &w->shape,
        [A_ROWS] = &w->rows,
        [A_KINDS] = w->kind,
    };
    switch (kind &= ~A_OPTIONAL) {
    case A_ON_TEXT:
        return (uintptr_t)api_silent;
    case A_ON_SOUND:
        return (uintptr_t)api_no_sound;
    case A_ON_BLOCK:
        return (uintptr_t)api_no_block;
    case A_CTX:
        return 0;
    case A_SEQ:
        return w->mine;
    case A_FALSE:
    case A_0:
        return 0;
    case A_1:
        return 1;
    case A_2:
        return 2;
    case A_N:
        return IDS;
    case A_BYTES:
        return 3;
    case A_SIZE:
        return sizeof w->g;
    case A_SPEECH_SIZE:
        return sizeof w->speech;
    case A_MEMORY:
        return 800 << 10;
    case A_VOCAB:
        return VOCAB;
    case A_CODE:
        return (uintptr_t)(intptr_t)KVIK_ARG;
    }
    if (p[kind]) return (uintptr_t)p[kind];
    return (uintptr_t)&w->out[at];
}

static inline int api_args(const struct api_call *c)
{
    int n = 0;
    while (n < ARGS && c->arg[n])
        n++;
    return n;
}

static inline void api_values(struct api_world *w, const struct api_call *c, uintptr_t v[ARGS])
{
    memset(w->out, 0, sizeof w->out);
    for (int i = 0; i < ARGS; i++)
        v[i] = c->arg[i] ? api_value(w, c->arg[i], i) : 0;
}

__attribute__((no_sanitize("undefined"))) static inline uintptr_t
api_invoke(const struct api_call *c, const uintptr_t v[ARGS])
{
    return c->f(v[0], v[1], v[2], v[3], v[4], v[5], v[6]);
}

/* Returns what a call has returned; below 0 for an error, if the function returns errors. */
static inline int64_t api_code(const struct api_call *c, uintptr_t r)
{
    return c->returns == R_I64                         ? (int64_t)r
           : c->returns == R_INT || c->returns == R_ID ? (int32_t)(uint32_t)r
                                                       : 0;
}

/* True if a call without an error code has returned the value that means "none". */
static inline bool api_none(const struct api_call *c, uintptr_t r)
{
    switch (c->returns) {
    case R_U32:
        return !(uint32_t)r;
    case R_STATE:
        return (uint32_t)r == KVIK_FAILED;
    case R_POINTER:
        return !r;
    case R_ID:
        return (uint32_t)r == UINT32_MAX;
    default:
        return true;
    }
}

/* Kinds of results, with the kinds of handles that they are. */
static const int api_results[][2] = {
    {A_OUT_MODEL, A_MODEL},          {A_OUT_TOKENIZER, A_TOKENIZER}, {A_OUT_CACHE, A_CACHE},
    {A_OUT_BATCH, A_BATCH},          {A_OUT_REQUEST, A_REQUEST},     {A_OUT_RESULT, A_RESULT},
    {A_OUT_DECODER, A_DECODER},      {A_OUT_SAMPLER, A_SAMPLER},     {A_OUT_EXPORT, A_EXPORT},
    {A_OUT_SCHEMA, A_SCHEMA},        {A_OUT_LEGACY, A_LEGACY},       {A_OUT_LAYERS, A_LAYERS},
    {A_OUT_SHARED, A_SHARED},        {A_OUT_FETCH, A_FETCH},         {A_OUT_READING, A_READING},
    {A_OUT_TRANSCRIPT, A_TRANSCRIPT}};

/* Returns the kind of handle that a kind of result is; A_END: none. */
static inline int api_handle_of(int result)
{
    for (size_t i = 0; i < countof(api_results); i++)
        if (api_results[i][0] == result) return api_results[i][1];
    return A_END;
}

/* Closes a handle by the row of the table that closes its kind. */
static inline void api_close_handle(int kind, void *p)
{
    for (size_t i = 0; kind && i < countof(api_calls); i++)
        if (api_calls[i].does == D_CLOSES && api_calls[i].arg[0] == kind)
            (void)api_invoke(&api_calls[i], (uintptr_t[ARGS]){(uintptr_t)p});
}

/* Frees the results of a call that succeeded. */
static inline void api_release(struct api_world *w, const struct api_call *c)
{
    for (int i = 0; i < ARGS; i++) {
        void *p = (void *)(uintptr_t)w->out[i];
        int kind = c->arg[i] & ~A_OPTIONAL;
        if (!p) continue;
        if (kind == A_OUT_MEMORY) kvik_free(p);
        if (kind == A_OUT_SEQ && w->cache) (void)kvik_cache_drop(w->cache, (kvik_seq)w->out[i]);
        api_close_handle(api_handle_of(kind), p);
        w->out[i] = 0;
    }
    kvik_sync_done(&w->sync);
}

/* Sets an error sentence that no call gives. */
static inline void api_mark_error(void)
{
    (void)kvik_format_template(NULL);
    (void)kvik_generation_set(NULL, NULL);
    kvik_model *none;
    (void)kvik_model_open("/dev/null/no such marker", &none);
}

static inline bool api_error_told(void)
{
    const char *e = kvik_last_error();
    return *e && !strstr(e, "no such marker");
}
