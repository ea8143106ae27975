/* api_hostile.h - arguments of public calls that are often wrong, and callbacks that call: NULL, handles of other caches, stale
 * and invented sequences, impossible sizes, hostile options. */
#pragma once
#include "api_world.h"
#include "budgets.h"
#include "walk.h"

enum { KEPT = 6, BLOB = 4096, FLOATS = 1 << 25, CALLS = 250 };

/* An integer that an argument may be, or should not be. */
static uint64_t hostile(void)
{
    static const uint64_t odd[] = {0,          1,          2,           3,
                                   5,          8,          16,          63,
                                   64,         65,         255,         4096,
                                   65535,      1u << 31,   UINT32_MAX,  UINT32_MAX - 1,
                                   INT32_MAX,  INT64_MAX,  UINT64_MAX,  (uint64_t)INT64_MIN,
                                   1ull << 40, 1ull << 62, 0xFFFFFFFBu, (uint64_t)-5};
    return chance(50) ? dice(8) : odd[dice(countof(odd))];
}

/* Handles of one kind that are open. */
struct pool {
    void *p[KEPT];
    uint32_t n;
};
static struct pool pool[A_KINDS];
static kvik_seq seqs[8]; /* that calls have given, some of them dropped */
static struct api_world w;
static float *floats;
static int32_t ids_of[3][512]; /* [24 rows][12] at most */
static uint8_t masks[3][4096];
static char blob[3][ARGS][BLOB]; /* structs of a call, by depth */
static uint64_t place[3][ARGS][8];
static kvik_generation options[3][2];
static int depth;

static void *any(int kind)
{
    if (kind == A_CACHE && chance(60)) return w.cache; /* most sequences are of this one */
    return pool[kind].n ? pool[kind].p[dice(pool[kind].n)] : NULL;
}

static kvik_seq any_seq(void)
{
    uint32_t k = dice(100);
    if (k < 75) return seqs[dice(countof(seqs))];
    if (k < 85) return (kvik_seq)hostile() << dice(8);
    return dice(16) << (4 + dice(4)) |
           dice(32); /* perhaps one that a running call has made for itself */
}

/* --- Structs. */

static const int32_t *any_ids(void)
{
    int32_t *ids = ids_of[depth];
    for (size_t i = 0; i < countof(ids_of[0]); i++)
        ids[i] = (int32_t)dice(VOCAB);
    if (chance(5)) ids[dice(8)] = (int32_t)hostile();
    return ids;
}

static const char *any_text(void)
{
    static const char *const text[] = {"sea",           "",    "the sea is", "\xff\xfe",
                                       "<s><user>\n\t", "\xc3"};
    return text[dice(countof(text))];
}

static const char *any_options(void)
{
    static const char *const json[] = {
        "{\"num_beams\": 3}",
        "{\"num_beams\": 4, \"num_beam_groups\": 2, \"diversity_penalty\": 0.5}",
        "{\"do_sample\": true, \"top_k\": 5, \"seed\": 3}",
        "{\"penalty_alpha\": 0.6, \"top_k\": 3}",
        "{\"guidance_scale\": 1.5}",
        "{\"prompt_lookup_num_tokens\": 3}",
        "{\"use_cache\": false}",
        "{\"return_dict_in_generate\": true}",
        "{\"return_legacy_cache\": true}",
        "{\"output_logits\": true, \"output_scores\": true}",
        "{\"num_return_sequences\": 3, \"do_sample\": true}",
        "{\"num_return_sequences\": 2, \"num_beams\": 2}",
        "{\"stop_strings\": [\"a\", \"\"]}",
        "{\"max_length\": 3}",
        "{\"min_new_tokens\": 3, \"eos_token_id\": [1, 42]}",
        "{\"temperature\": 0.0001, \"do_sample\": true, \"top_p\": 0.01}",
        "{\"sequence_bias\": [[[42, 43], 5.0]]}",
        "{\"bad_words_ids\": [[42], [400]]}",
        "{\"forced_eos_token_id\": 9999}",
        "{\"prefill_chunk_size\": 2}",
        "{\"max_time\": 0.000001}",
        "{\"num_beams\": 4000000000}",
        "{\"eos_token_id\": \"x\"}",
        "{\"nothing\": 1}",
        "[",
        "",
        "{}",
    };
    return json[dice(countof(json))];
}

static kvik_generation *any_generation(int slot)
{
    kvik_generation *g = &options[depth][slot];
    kvik_generation_done(g);
    api_need(kvik_generation_init(g, w.model));
    g->max_new_tokens = 1 + dice(4);
    for (int i = 0; i < 2; i++)
        if (chance(40)) (void)kvik_generation_set(g, any_options());
    if (chance(3)) g->num_return_sequences = (uint32_t)hostile();
    if (chance(3)) g->max_new_tokens = (uint32_t)hostile() % 4096;
    return g;
}

static bool nested(void);
static bool on_token(void *ctx, uint32_t row, int32_t id, const char *text)
{
    (void)ctx, (void)row, (void)id, (void)text;
    return nested();
}
static bool on_progress(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx, (void)done, (void)total;
    return nested();
}
static void on_notice(void *ctx, const char *text)
{
    (void)ctx, (void)text;
    (void)nested();
}
static bool on_scores(void *ctx, uint32_t row, const int32_t *id, size_t n, float *scores,
                      uint32_t vocab)
{
    (void)ctx, (void)row, (void)id, (void)n;
    scores[dice(vocab)] += 1;
    return nested();
}
static bool on_criteria(void *ctx, uint32_t row, const int32_t *id, size_t n)
{
    (void)ctx, (void)row, (void)id, (void)n;
    return !nested();
}
static bool on_logprobs(void *ctx, uint32_t row, const kvik_logprob *token, uint32_t n)
{
    (void)ctx, (void)row, (void)n;
    return token[0].id >= 0 && nested();
}
static bool on_text(void *ctx, const char *text)
{
    (void)ctx, (void)text;
    return nested();
}

static int64_t on_sound(void *ctx, void *bytes, size_t n)
{
    (void)ctx;
    memset(bytes, (int)dice(256), n);
    return nested() ? (int64_t)n : KVIK_CANCELLED;
}

static void fill_hooks(kvik_hooks *h)
{
    *h = (kvik_hooks){.size = sizeof *h};
    if (chance(40)) h->on_token = on_token;
    if (chance(40)) h->on_progress = on_progress;
    if (chance(40)) h->on_notice = on_notice;
    if (chance(30)) h->logits_processor = on_scores;
    if (chance(30)) h->stopping_criteria = on_criteria;
    if (chance(8)) h->assistant_model = any(A_CACHE);
    if (chance(20)) h->on_logprobs = on_logprobs;
    if (chance(20)) h->top_logprobs = dice(40);
}

static void fill_config(kvik_cache_config *k)
{
    static const char *const kind[] = {
        NULL,   "dynamic", "static",         "offloaded", "offloaded_static", "quantized",
        "sink", "hybrid",  "sliding_window", "nothing",   "offloaded_hybrid", ""};
    static const char *const json[] = {NULL,
                                       "{}",
                                       "{\"max_cache_len\": 32}",
                                       "{\"window_length\": 8, \"num_sink_tokens\": 2}",
                                       "{\"backend\": \"hqq\", \"nbits\": 4}",
                                       "{\"residual_length\": 4}",
                                       "{\"sliding_window\": 8}",
                                       "{\"nbits\": 77}",
                                       "{\"moved_chunks\": 3}",
                                       "["};
    *k = (kvik_cache_config){.size = sizeof *k};
    k->cache_implementation = kind[dice(countof(kind))];
    k->cache_config = chance(40) ? json[dice(countof(json))] : NULL;
    k->max_cache_len = chance(90) ? 16 + dice(49) : (uint32_t)hostile() % 2048;
    k->max_sequences = chance(90) ? 1 + dice(8) : (uint32_t)hostile() % 100;
    k->cache_memory = chance(60)   ? 0
                      : chance(80) ? (100 + dice(900)) << 10
                                   : hostile() % (1u << 30);
    k->threads = 1 + dice(2);
    k->step_tokens = chance(50) ? 0 : dice(20);
    k->snapshots = chance(70) ? 0 : dice(9);
    k->on_full = chance(60) ? NULL : chance(60) ? "offload" : chance(50) ? "encode" : "wrong";
    k->no_prefix_cache = chance(30);
}

static void fill_inputs(kvik_inputs *in)
{
    *in = (kvik_inputs){.size = sizeof *in, .ids = any_ids(), .n = 1 + dice(12)};
    if (chance(60)) return;
    static uint32_t column[64];
    uint8_t *mask = masks[depth];
    for (size_t i = 0; i < sizeof masks[0]; i++)
        mask[i] = !chance(10);
    if (chance(30)) {
        in->attention_mask = mask; /* [24 rows][64] at most */
        in->width = dice(60);
    }
    if (chance(10)) in->logits_to_keep = dice(14);
    for (uint32_t i = 0; i < countof(column); i++)
        column[i] = i;
    if (chance(10)) {
        in->columns = column;
        in->n_columns = dice(12);
    }
    if (chance(5)) in->cache_position = column;
    if (chance(5)) in->position_ids = (const int32_t *)column, in->position_rows = 1;
    if (chance(3)) in->embeds = floats;
}

/* Fills an array of 4 structs at `at`; returns how many the call may be told. */
static uint32_t fill_array(int kind, char *at)
{
    for (int i = 0; i < 4; i++) {
        if (kind == A_PROMPT) {
            kvik_prompt p = {.size = sizeof p, .ids = any_ids(), .n = 1 + dice(11)};
            if (chance(40)) p.seq = any_seq();
            if (chance(20)) p.append = true;
            if (chance(15)) p.attention_mask = (const uint8_t *)p.ids; /* any bytes */
            if (chance(15)) p = (kvik_prompt){.size = sizeof p, .text = any_text(), .seq = p.seq};
            if (chance(10)) p.n_new = chance(80) ? dice(12) : (size_t)hostile();
            if (chance(3)) p.ids = NULL;
            memcpy(at + i * sizeof p, &p, sizeof p);
        } else if (kind == A_SPAN) {
            kvik_span s = {.size = sizeof s, .seq = any_seq(), .n = 1 + dice(11), .ids = any_ids()};
            if (chance(3)) s.ids = NULL;
            memcpy(at + i * sizeof s, &s, sizeof s);
        } else {
            kvik_message m = {.size = sizeof m, .role = "user", .content = any_text()};
            if (chance(5)) m.role = NULL;
            if (chance(20)) m.more = any_options();
            memcpy(at + i * sizeof m, &m, sizeof m);
        }
    }
    if (!chance(5)) return 4;
    *(size_t *)at = (size_t)hostile() % 512; /* one element of an odd size */
    return 1;
}

static void fill_chat(kvik_chat *c)
{
    static _Alignas(8) char message[2][BLOB];
    *c = (kvik_chat){.size = sizeof *c};
    if (chance(80)) {
        c->message = (const kvik_message *)message[depth];
        c->n = dice(1 + fill_array(A_CHAT, message[depth]));
    }
    if (chance(20))
        c->json = chance(80) ? "[{\"role\": \"user\", \"content\": \"Hi\"}]" : any_text();
    if (chance(20)) c->kwargs = any_options();
    if (chance(50)) c->template_text = chance(80) ? "{{ messages[0].content }}" : any_text();
    if (chance(10)) c->special_tokens = any_options();
    if (chance(10)) c->now = chance(50) ? "2025-03-07" : any_text();
}

/* Fills the one struct of a kind; false: the kind is none. */
static bool fill_struct(int kind, char *at)
{
    kvik_shape *shape = (kvik_shape *)at;
    kvik_choice *choice = (kvik_choice *)at;
    kvik_outputs *out = (kvik_outputs *)at;
    memset(at, 0, BLOB);
    switch (kind) {
    case A_CONFIG:
        fill_config((kvik_cache_config *)at);
        break;
    case A_HOOKS:
        fill_hooks((kvik_hooks *)at);
        break;
    case A_INPUTS:
        fill_inputs((kvik_inputs *)at);
        break;
    case A_CHAT:
        fill_chat((kvik_chat *)at);
        break;
    case A_OUTPUTS:
        *out = (kvik_outputs){.size = sizeof *out, .logits = floats};
        if (chance(30)) out->hidden_states = floats + FLOATS / 3;
        if (chance(30)) out->attentions = floats + FLOATS / 3 * 2;
        break;
    case A_USAGE:
        *(size_t *)at = sizeof(kvik_usage);
        break;
    case A_PROGRESS:
        *(size_t *)at = sizeof(kvik_progress);
        break;
    case A_CHUNK:
        *(kvik_chunk *)at =
            (kvik_chunk){.size = sizeof(kvik_chunk), .ids = any_ids(), .n = dice(12)};
        break;
    case A_SPLICE:
        *(kvik_splice *)at = (kvik_splice){.size = sizeof(kvik_splice),
                                           .recompute = dice(5),
                                           .fraction = chance(90) ? 0.25 : (double)hostile(),
                                           .most = chance(70) ? 0 : dice(9),
                                           .taken = chance(90) ? 0 : dice(4)};
        break;
    case A_SHARED_STATE:
        *(size_t *)at = sizeof(kvik_shared_state);
        break;
    case A_FETCHED:
        *(size_t *)at = sizeof(kvik_fetched);
        break;
    case A_ROWS:
        *(size_t *)at = sizeof(kvik_rows);
        break;
    case A_SYNC: /* freed after the call, so its size stays */
        *(size_t *)at = sizeof(kvik_sync);
        return true;
    case A_SHAPE:
        *shape = (kvik_shape){.size = sizeof *shape, .batch = dice(3), .heads = dice(3)};
        shape->n = dice(6);
        shape->dim_k = dice(3) * 4;
        shape->dim_v = chance(80) ? shape->dim_k : 4;
        if (chance(60)) shape->batch = shape->heads = 1, shape->dim_k = shape->dim_v = 4;
        shape->dtype = chance(80) ? NULL : chance(50) ? "f16" : "f7";
        break;
    case A_CHOICE:
        *choice = (kvik_choice){.size = sizeof *choice, .logits = floats, .ids = any_ids()};
        choice->n = dice(12);
        choice->n_prompt = dice(12);
        choice->masked = chance(90) ? 0 : hostile();
        choice->max_length = chance(90) ? 0 : hostile();
        choice->scores = chance(50) ? NULL : floats + VOCAB;
        break;
    default:
        return false;
    }
    if (chance(4)) *(size_t *)at = (size_t)hostile() % (BLOB / 4);
    return true;
}

/* --- Arguments. */

static bool is_array(int kind)
{
    return kind == A_SEQS || kind == A_IDS || kind == A_INDEX || kind == A_REQUESTS ||
           kind == A_SPAN || kind == A_PROMPT || kind == A_KINDS || kind == A_OUT_SEQ ||
           kind == A_FLOATS;
}

static uintptr_t any_path(int kind)
{
    static char missing[96];
    snprintf(missing, sizeof missing, "%s/absent/%u", api_dir, dice(3));
    uint32_t k = dice(20);
    if (k == 0) return (uintptr_t)missing;
    if (k == 1) return (uintptr_t)api_path[dice(6)];
    return api_value(&w, kind, 0);
}

static uintptr_t pointer(int kind, int at, uint32_t *most)
{
    char *b = blob[depth][at];
    switch (kind) {
    case A_MODEL:
    case A_TOKENIZER:
    case A_CACHE:
    case A_LAYERS:
    case A_BATCH:
    case A_REQUEST:
    case A_DECODER:
    case A_SAMPLER:
    case A_SCHEMA:
    case A_SHARED:
    case A_FETCH:
    case A_READING:
    case A_RESULT:
    case A_EXPORT:
    case A_LEGACY:
        return (uintptr_t)any(kind);
    case A_REQUESTS:
        for (int i = 0; i < 4; i++)
            ((void **)b)[i] = any(A_REQUEST);
        return (uintptr_t)b;
    case A_SEQS:
        for (int i = 0; i < 4; i++)
            ((kvik_seq *)b)[i] = any_seq();
        return (uintptr_t)b;
    case A_INDEX:
        for (int i = 0; i < 64; i++)
            ((uint32_t *)b)[i] = chance(90) ? dice(3) : (uint32_t)hostile();
        return (uintptr_t)b;
    case A_KINDS:
        for (int i = 0; i < 4; i++)
            ((const char **)b)[i] = chance(90) ? "full_attention" : any_text();
        return (uintptr_t)b;
    case A_PROMPT:
    case A_SPAN:
        memset(b, 0, BLOB);
        *most = MIN(*most, fill_array(kind, b));
        return (uintptr_t)b;
    case A_IDS:
        return (uintptr_t)any_ids();
    case A_GENERATION:
        return (uintptr_t)any_generation(0);
    case A_GENERATION_OUT:
        return (uintptr_t)any_generation(1);
    case A_ON_TEXT:
        return (uintptr_t)on_text;
    case A_ON_SOUND:
        return (uintptr_t)on_sound;
    case A_ON_BLOCK:
        return (uintptr_t)api_no_block;
    case A_TEXT:
    case A_OPTION:
    case A_FORMAT:
        return (uintptr_t)any_text();
    case A_JSON:
    case A_SCHEMA_TEXT:
        return (uintptr_t)any_options();
    case A_MODEL_PATH:
    case A_SESSION:
    case A_SAVED:
    case A_LEGACY_FILE:
    case A_LOGITS_FILE:
    case A_DIR:
        return any_path(kind);
    case A_LOGITS:
    case A_FLOATS:
        return (uintptr_t)floats;
    case A_CTX:
        return 0;
    }
    if (fill_struct(kind, b)) return (uintptr_t)b;
    if (kind >= A_OUT_ID && kind <= A_OUT_LEGACY) return (uintptr_t)place[depth][at];
    return api_value(&w, kind, at);
}

/* Makes the arguments of a call; false: there is no handle for one of them. */
static bool arguments(const struct api_call *c, uintptr_t v[ARGS])
{
    uint32_t most = 4;
    bool arrays = false;
    memset(v, 0, ARGS * sizeof *v);
    memset(place[depth], 0, sizeof place[depth]);
    for (int i = 0; i < api_args(c); i++) {
        int kind = c->arg[i] & ~A_OPTIONAL;
        arrays |= is_array(kind);
        if (kind >= A_POINTERS) continue;
        v[i] = pointer(kind, i, &most);
        if (!v[i] && kind != A_CTX) return false;
        if (!strcmp(c->name, "kvik_generation_init_sized") && !i)
            kvik_generation_done((kvik_generation *)v[i]); /* it forgets what the struct owns */
        if (chance(c->arg[i] & A_OPTIONAL ? 30 : 2)) v[i] = 0;
    }
    for (int i = 0; i < api_args(c); i++) {
        int kind = c->arg[i] & ~A_OPTIONAL;
        if (kind == A_SEQ)
            v[i] = any_seq();
        else if (kind == A_FALSE)
            v[i] = dice(2);
        else if (kind == A_BYTES)
            v[i] = v[1] ? dice((uint32_t)strlen((const char *)v[1]) + 1) : 0;
        else if (kind == A_SIZE)
            v[i] = sizeof(kvik_generation);
        else if (kind == A_SPEECH_SIZE)
            v[i] = sizeof(kvik_speech);
        else if (kind == A_MEMORY)
            v[i] = dice(4 << 20);
        else if (kind == A_VOCAB)
            v[i] = chance(90) ? VOCAB : dice(VOCAB);
        else if (kind == A_N)
            v[i] = arrays ? dice(32) : hostile();
        else if (kind == A_1 && !strcmp(c->name, "kvik_model_verify"))
            v[i] = dice(3); /* threads that the call starts */
        else if (kind == A_1 && arrays)
            v[i] = chance(60) ? 1 : dice(most + 1);
        else if (kind == A_0 && chance(60))
            v[i] = 0;
        else if (kind >= A_POINTERS)
            v[i] = hostile();
    }
    return true;
}
