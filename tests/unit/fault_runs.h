/* fault_runs.h - whole uses of the library as lists of steps, for tests that make calls of the C library fail.  A
 * step that fails must return a clean error.  The step is then repeated without the fault, and the run must end
 * with the results of a run without faults.  Afterwards the process must hold as many blocks, mappings and
 * descriptors as before. */
#pragma once
#include "../shim/shim.h"
#include "base/base.h"
#include "kvik_loop.h"
#include "toy_tokenizer.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

enum { VOCAB = 384, HELD = 40, PROMPT = 160, NEW = 8, CONTEXT = 256 };
static const char golden[] = "tests/golden/models/llama-mha";
static const char *const linked[] = {"config.json", "generation_config.json", "model.safetensors"};
static char dir[] = "/tmp/kvik-memory-XXXXXX", prefixes[96], sessions[64], session[80];
static char spill[256]; /* on a disk */
static int32_t prompt[PROMPT];
static kvik_model *shared; /* opened without faults */

/* Everything that a run holds. Its steps fill it, and `end` empties it. */
struct fault_run {
    const struct scene *scene;
    kvik_model *m;
    kvik_tokenizer *t;
    kvik_cache *c;
    kvik_seq seq, loaded;
    int32_t out[4][NEW]; /* the tokens of each generation */
    int n_out;
    size_t at[4]; /* number of tokens of each conversation */
    int32_t *ids;
    size_t n_ids;
    char *text[8]; /* texts that the run has made */
    int n_text;
};
typedef int (*step)(struct fault_run *r);
struct scene {
    const char *name;
    step steps[12];
    kvik_cache_config config;
    const char *path; /* of the model or tokenizer that the run opens */
};

/* --- Steps ---------------------------------------------------------------------------------- */

static int open_model(struct fault_run *r)
{
    return kvik_model_open(r->scene->path, &r->m);
}

static int open_tokenizer(struct fault_run *r)
{
    return kvik_tokenizer_open(r->scene->path, &r->t);
}

static int open_cache(struct fault_run *r)
{
    kvik_cache_config k = r->scene->config;
    k.size = sizeof k;
    if (!k.max_cache_len) k.max_cache_len = CONTEXT;
    if (!k.max_sequences) k.max_sequences = 4;
    k.step_tokens = 32;
    k.threads = 1;
    k.spill_dir = spill;
    return kvik_cache_open(r->m ? r->m : shared, &k, &r->c);
}

static int add_sequence(struct fault_run *r)
{
    return kvik_cache_new(r->c, &r->seq);
}

static int append(struct fault_run *r)
{
    kvik_span s = {.size = sizeof s, .seq = r->seq, .ids = prompt, .n = HELD};
    int64_t before = kvik_cache_length(r->c, r->seq);
    int e = kvik_forward(r->c, &s, 1, false, NULL);
    if (e < 0) assert_int_equal(kvik_cache_length(r->c, r->seq), before);
    return e;
}

static int take(struct fault_run *r, kvik_result *got, size_t n)
{
    assert_int_equal(got->row[0]->n, n + NEW);
    memcpy(r->out[r->n_out++], got->row[0]->ids + n, sizeof *r->out);
    kvik_result_free(got);
    return 0;
}

static int generate_for(struct fault_run *r, kvik_seq s, const int32_t *ids, size_t n)
{
    kvik_generation g;
    kvik_result *got = NULL;
    kvik_prompt p = {.size = sizeof p, .ids = ids, .n = n, .seq = s};
    TRY(kvik_generation_init(&g, r->m ? r->m : shared)); /* a call that fails sets nothing */
    int e = kvik_generation_set(&g, "{\"eos_token_id\": [], \"repetition_penalty\": 1.1}");
    if (e >= 0) {
        g.max_new_tokens = NEW;
        e = kvik_generate(r->c, &g, &p, 1, NULL, &got);
    }
    kvik_generation_done(&g);
    return e < 0 ? e : take(r, got, n);
}

static int generate(struct fault_run *r)
{
    return generate_for(r, r->seq, prompt, PROMPT);
}

static int save(struct fault_run *r)
{
    return kvik_cache_save(r->c, session, &r->seq, 1, "a note");
}

/* Saves more tokens into the file.  After a failure the file must have its old or its new contents. */
static int save_over(struct fault_run *r)
{
    int e = save(r);
    if (e >= 0) return e;
    char text[512];
    struct fault_run other = {.scene = r->scene, .m = r->m};
    snprintf(text, sizeof text, "%s", kvik_last_error());
    (void)shim_disarm();
    if (open_cache(&other) < 0 || kvik_cache_load(other.c, session, 1, &other.loaded, NULL) < 0)
        fail_msg("after a failed save: %s", kvik_last_error());
    int64_t n = kvik_cache_length(other.c, other.loaded);
    assert_true(n == HELD || n == kvik_cache_length(r->c, r->seq));
    kvik_cache_close(other.c);
    return err_set(e, "%s", text);
}

static int load(struct fault_run *r)
{
    char *note = NULL;
    int e = kvik_cache_load(r->c, session, 1, &r->loaded, &note);
    if (e < 0) assert_true(!note && !r->loaded);
    if (e >= 0) assert_string_equal(note, "a note");
    kvik_free(note);
    return e;
}

static int continue_loaded(struct fault_run *r)
{
    return generate_for(r, r->loaded, prompt, PROMPT);
}

static int save_prefix(struct fault_run *r)
{
    return kvik_prefix_save(r->c, prefixes, r->seq, 0);
}

/* Loads a prefix.  A prefix that cannot be read is a miss, so the result is a sequence or none. */
static int load_prefix(struct fault_run *r)
{
    int64_t e = kvik_prefix_load(r->c, prefixes, prompt, PROMPT, &r->loaded);
    if (e <= 0) assert_true(!r->loaded);
    return e < 0 ? (int)e : 0;
}

static int keep_text(struct fault_run *r, int e, char *text)
{
    if (e >= 0) r->text[r->n_text++] = text;
    return e;
}

static int describe(struct fault_run *r)
{
    char *text = NULL;
    int e = kvik_model_describe(r->m, &text);
    return keep_text(r, e, text);
}

static int describe_caches(struct fault_run *r)
{
    char *text = NULL;
    int e = kvik_model_describe_caches(r->m, &text);
    return keep_text(r, e, text);
}

static int peek(struct fault_run *r)
{
    char *text = NULL;
    int e = kvik_model_peek(r->scene->path, &text);
    return keep_text(r, e, text);
}

static int encode(struct fault_run *r)
{
    static const char text[] = "ab <x> \xEF\xAC\x81Y aab\xC3\xA9";
    char *back = NULL;
    kvik_free(r->ids);
    r->ids = NULL;
    int e = kvik_tokenizer_encode(r->t, text, strlen(text), true, &r->ids, &r->n_ids);
    if (e >= 0) e = kvik_tokenizer_decode(r->t, r->ids, r->n_ids, false, &back, NULL);
    return keep_text(r, e, back);
}

static int decode(struct fault_run *r)
{
    kvik_decoder *d = NULL;
    struct buf b;
    const char *text;
    int64_t e = kvik_decoder_open(r->t, true, &d);
    buf_init(&b, 1 << 16);
    for (size_t i = 0; e >= 0 && i < r->n_ids; i++)
        if ((e = kvik_decoder_put(d, r->ids + i, 1, &text)) >= 0) e = buf_puts(&b, text);
    if (e >= 0) e = kvik_decoder_flush(d, &text);
    if (e >= 0) e = buf_puts(&b, text);
    char *made = e >= 0 ? buf_take(&b) : NULL;
    if (e >= 0 && !made) e = KVIK_NOMEM;
    buf_done(&b);
    kvik_decoder_close(d);
    return keep_text(r, (int)e, made);
}

static const kvik_message talk[] = {
    {sizeof(kvik_message), "user", "Hello <user>", NULL},
    {sizeof(kvik_message), "assistant", "Good day.", "{\"name\": \"Ann\"}"},
    {sizeof(kvik_message), "user", "Once more, please", NULL}};

static int render(struct fault_run *r)
{
    char *text = NULL;
    const kvik_tokenizer *t = r->t ? r->t : kvik_model_tokenizer(r->m);
    const kvik_chat chat = {
        .size = sizeof chat, .message = talk, .n = countof(talk), .kwargs = "{\"mood\": \"calm\"}"};
    int e = kvik_chat_render(t, &chat, &text);
    return keep_text(r, e, text);
}

/* One turn of a conversation, whose sequence holds the turns before. */
static int turn_of(struct fault_run *r, size_t messages)
{
    int32_t *ids = NULL;
    size_t n = 0;
    const kvik_chat chat = {.size = sizeof chat, .message = talk, .n = messages};
    int e = kvik_chat_encode(kvik_model_tokenizer(r->m), &chat, &ids, &n, NULL);
    if (e >= 0) e = generate_for(r, r->seq, ids, n);
    kvik_free(ids);
    return e;
}

static int first_turn(struct fault_run *r)
{
    return turn_of(r, 1);
}

static int second_turn(struct fault_run *r)
{
    return turn_of(r, 3);
}

/* --- Scenes --------------------------------------------------------------------------------- */

#define ROWS   open_cache, add_sequence, append, save, generate, save_over, load, continue_loaded
#define QUANTO "{\"backend\":\"quanto\",\"q_group_size\":16,\"residual_length\":32}"
static struct scene scenes[] = {
    {"model", {peek, open_model, describe, describe_caches}, {0}, golden},
    {"gguf", {peek, open_model, describe}, {0}, "tests/golden/models/gpt2.gguf"},
    {"tokenizer", {open_tokenizer, encode, decode, render}, {0}, dir},
    {"chat", {open_model, open_cache, add_sequence, first_turn, second_turn}, {0}, dir},
    {"dynamic", {ROWS}, {0}, NULL},
    {"static", {ROWS}, {.cache_implementation = "static"}, NULL},
    {"sliding", {ROWS}, {.cache_config = "{\"sliding_window\":24}", .snapshots = 16}, NULL},
    {"sinks",
     {open_cache, add_sequence, append, generate},
     {.cache_config = "{\"window_length\":40,\"num_sink_tokens\":4}"},
     NULL},
    {"quantized", {ROWS}, {.cache_implementation = "quantized", .cache_config = QUANTO}, NULL},
    {"offloaded",
     {ROWS},
     {.cache_implementation = "offloaded", .cache_memory = 400 << 10, .max_sequences = 1},
     NULL},
    {"prefix",
     {open_cache, add_sequence, append, generate, save_prefix, load_prefix, continue_loaded,
      save_prefix},
     {.no_prefix_cache = true},
     NULL},
};

/* --- Runs ----------------------------------------------------------------------------------- */

static void empty(const char *path)
{
    char name[512];
    struct dirent *e;
    DIR *d = opendir(path);
    while (d && (e = readdir(d)))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") &&
            snprintf(name, sizeof name, "%s/%s", path, e->d_name) > 0)
            unlink(name);
    if (d) closedir(d);
}

static void end(struct fault_run *r)
{
    kvik_cache_close(r->c);
    kvik_model_close(r->m);
    kvik_tokenizer_close(r->t);
    kvik_free(r->ids);
    for (int i = 0; i < r->n_text; i++)
        kvik_free(r->text[i]);
    empty(prefixes);
    empty(sessions);
}

/* True if a cache got no address space, or less than it asked for.  It is then smaller and says so where it ends. */
static bool refused_space(int e)
{
    return (e == KVIK_LIMIT || e == KVIK_FULL) && strstr(kvik_last_error(), "address space");
}

static bool (*clean)(int e); /* true for codes that a failed call may give */

/* Runs a scene with a fault.  Returns how many calls could fail.  *errors: number of steps that failed. */
static uint64_t run(const struct scene *s, const struct shim_fault *f, struct fault_run *r,
                    int *errors)
{
    uint64_t calls = 0;
    bool faulty = true;
    *r = (struct fault_run){.scene = s};
    shim_arm(f);
    for (size_t i = 0; i < countof(s->steps) && s->steps[i]; i++) {
        int e = s->steps[i](r);
        if (e >= 0) continue;
        calls = shim_disarm();
        if (faulty && refused_space(e)) { /* the cache stays small, so another one is opened */
            end(r);
            *r = (struct fault_run){.scene = s};
            faulty = false;
            i = SIZE_MAX;
            continue;
        }
        if (!clean || !clean(e) || !faulty || !shim_hits() || strlen(kvik_last_error()) < 10)
            fail_msg("%s, step %zu, call %llu%s: %s: %s", s->name, i, (unsigned long long)f->at,
                     f->stays ? " and later" : "", kvik_error_name(e), kvik_last_error());
        faulty = false;
        ++*errors;
        i--; /* again, with memory */
    }
    return faulty ? shim_disarm() : calls;
}

static void compare(const struct scene *s, const struct shim_fault *f, const struct fault_run *want,
                    const struct fault_run *got)
{
    bool same = want->n_out == got->n_out && want->n_text == got->n_text &&
                memcmp(want->out, got->out, sizeof want->out) == 0;
    for (int i = 0; same && i < want->n_text; i++)
        same = strcmp(want->text[i], got->text[i]) == 0;
    if (!same)
        fail_msg("%s, call %llu%s: the results differ", s->name, (unsigned long long)f->at,
                 f->stays ? " and later" : "");
}

static bool same_live(struct shim_live a, struct shim_live b)
{
    return a.blocks == b.blocks && a.maps == b.maps && a.files == b.files;
}

/* Libraries keep some memory for ever, such as the stacks of ended threads.  A leak grows with each run. */
static void check_live(const struct scene *s, const struct shim_fault *f, struct shim_live *before)
{
    struct fault_run again;
    struct shim_live now = shim_live(), then = now;
    int errors = 0;
    for (int i = 0; i < 2 && !same_live(now, *before); i++) {
        *before = then = now;
        run(s, f, &again, &errors);
        end(&again);
        now = shim_live();
    }
    if (!same_live(now, *before))
        fail_msg("%s, call %llu%s: %lld blocks, %lld mappings, %lld descriptors are left", s->name,
                 (unsigned long long)f->at, f->stays ? " and later" : "",
                 (long long)(now.blocks - then.blocks), (long long)(now.maps - then.maps),
                 (long long)(now.files - then.files));
}

/* Which faults to try on a scene. */
struct sweep {
    const char *what;
    uint32_t kinds;
    int error;
    bool stays;
    bool (*clean)(int e); /* true for codes that a failed step may give; NULL: no step fails */
};
enum { SAMPLE = 20 };

/* Makes every call fail in turn, or a sample of calls that is the same in each run. */
static void sweep_scene(const struct scene *s, const struct sweep *w)
{
    struct fault_run want, got;
    struct shim_fault f = {.kinds = w->kinds};
    int errors = 0;
    clean = w->clean;
    /* the second run begins with the memory that libraries keep */
    for (int warm = 0; warm < 2; warm++) {
        run(s, &f, &want, &errors);
        end(&want);
    }
    uint64_t n = run(s, &f, &want, &errors), x = 1;
    struct shim_live before = shim_live(); /* `want` lives until the end */
    assert_int_equal(errors, 0);
    empty(prefixes);
    empty(sessions);
    bool all = getenv("KVIK_TEST_LONG") != NULL;
    uint64_t tries = all ? n : MIN(n, MAX(SAMPLE / test_share(), 2));
    for (uint64_t i = 1; i <= tries; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        f = (struct shim_fault){.at = all ? i : 1 + (x >> 33) % n,
                                .kinds = w->kinds,
                                .error = w->error,
                                .stays = w->stays};
        run(s, &f, &got, &errors);
        compare(s, &f, &want, &got);
        end(&got);
        check_live(s, &f, &before);
    }
    end(&want);
    print_message("%s, %s: %llu calls, %llu faults, %d errors\n", s->name, w->what,
                  (unsigned long long)n, (unsigned long long)tries, errors);
}

static int setup(void **state)
{
    (void)state;
    const char *disk = getenv("KVIK_TEST_DIR");
    char here[2048], there[256];
    snprintf(spill, sizeof spill, "%s/kvik-test-memory-XXXXXX", disk ? disk : "/var/tmp");
    assert_non_null(mkdtemp(dir));
    assert_non_null(mkdtemp(spill));
    snprintf(prefixes, sizeof prefixes, "%s/prefixes", dir);
    snprintf(sessions, sizeof sessions, "%s/sessions", dir);
    snprintf(session, sizeof session, "%s/s.kvik", sessions);
    assert_int_equal(mkdir(sessions, 0700), 0);
    toy_tokenizer(dir, VOCAB);
    for (size_t i = 0; i < countof(linked); i++) {
        char *top = realpath(golden, NULL);
        assert_non_null(top);
        snprintf(here, sizeof here, "%s/%s", top, linked[i]);
        snprintf(there, sizeof there, "%s/%s", dir, linked[i]);
        free(top);
        assert_int_equal(symlink(here, there), 0);
    }
    for (int32_t i = 0; i < PROMPT; i++)
        prompt[i] = 4 + i * 37 % (VOCAB - 5);
    return kvik_model_open(dir, &shared);
}

static int teardown(void **state)
{
    (void)state;
    kvik_model_close(shared);
    toy_remove(dir);
    for (size_t i = 0; i < countof(linked); i++)
        toy_unlink(dir, linked[i]);
    rmdir(prefixes);
    rmdir(sessions);
    rmdir(spill);
    return rmdir(dir);
}
