/* model.h - floor 4: weights bound to an architecture, and the forward pass over a cache.
 *
 * A model is read-only and shared.  An exec is one thread's ability to run it: device, activations, and
 * the store.  An architecture is one file in arch/: it reads its config keys, binds its weights, and writes its
 * forward in the vocabulary of graph.c; nothing else knows its name. */
#pragma once
#include "base/base.h"
#include "base/json.h"
#include "dev/dev.h"
#include "fmt/fmt.h"
#include "kv/kv.h"
#include "model/preset.h"

/* --- rope.c: rotary frequencies.  Names and formulas of the reference's modeling_rope_utils. */
enum rope_type {
    ROPE_DEFAULT,
    ROPE_LINEAR,
    ROPE_LLAMA3,
    ROPE_YARN,
    ROPE_DYNAMIC,
    ROPE_LONG,
    ROPE_TYPES
};
struct rope {
    enum rope_type type;
    uint32_t rot; /* rotated dims of a head */
    bool interleaved;
    double theta, factor, low_freq_factor, high_freq_factor, attention_factor, beta_fast, beta_slow;
    bool truncate;
    uint32_t original;  /* original_max_position_embeddings */
    float *inv_freq;    /* [rot/2] owned */
    float *freq_factor; /* [rot/2] owned, or NULL: divisors stored in a GGUF file */
    /* longrope: divisors of the frequencies of sequences of at most `original` tokens, and of longer ones. */
    float *short_factor, *long_factor; /* [n_factors] owned */
    uint32_t n_factors;
    float *long_inv_freq; /* [rot/2] owned */
};
const char *rope_type_name(enum rope_type t);
/* Reads both spellings of config.json (rope_theta + rope_scaling, rope_parameters); r->theta is the default of
 * rope_theta, 0: 10000. */
int rope_read(struct rope *r, const json_t *config, const char *what, uint32_t context);
int rope_prepare(struct rope *r); /* after rot and freq_factor are set: computes inv_freq */
void rope_done(struct rope *r);
/* cos, sin: [n][rot/2].  end[i]: last position of the turn that fed row i (dynamic NTK: rule 13); for longrope
 * any position of the regime its sequence is in. */
void rope_fill(const struct rope *r, const uint32_t *pos, const uint32_t *end, uint32_t n,
               float *cos, float *sin);

/* --- a model */
struct model;
struct pass;
struct graph;
struct arch {
    const char *const *names;     /* model_type and general.architecture values, NULL-terminated */
    int (*open)(struct model *m); /* reads config, binds weights, fills the fields below */
    /* Writes the forward of one step in the words below.  Called once, when an exec is opened: every step
     * replays what was recorded. */
    int (*graph)(const struct model *m, struct graph *g);
    /* The same for the phase that comes before, an encoder's: steps of spans with `cross`, which write the sites of kind
     * KV_FROZEN.  NULL: the model has no encoder. */
    int (*encode)(const struct model *m, struct graph *g);
};
/* One line in the architecture's file registers it. */
#define MODEL_ARCH(ident, ptr)                                                                     \
    const struct arch *const kvik_arch_##ident                                                     \
        __attribute__((section("kvik_arch"), used, visibility("hidden"))) = ptr
const struct arch *model_arch_at(uint32_t i); /* NULL past the end */

enum norm_kind { NORM_NONE, NORM_RMS, NORM_LAYER };
struct mod_norm {
    enum norm_kind kind; /* NORM_NONE: there is none */
    float *w, *b;        /* [width] or NULL: ones; zeros (RMS norms have no bias) */
    float eps;
};

#define MODEL_ROPES 2u
struct model {
    struct checkpoint *ck; /* owned */
    const json_t *config;  /* where keys are looked up: config.json or its text_config */
    const struct arch *arch;
    char arch_name[64];
    const char *what; /* path, for errors */
    uint32_t n_layers, hidden, n_heads, n_kv_heads, head_dim, ffn, vocab, context;
    float norm_eps;
    struct rope rope[MODEL_ROPES];
    uint32_t n_ropes;
    bool counts_padding;    /* something counts the masked columns before a prompt (Llama 4) */
    bool learned_positions; /* a table of `context` rows: no sequence can be longer */
    const char *no_sinks;   /* why a sink cache cannot be exact, or NULL */
    struct kv_site
        *site; /* [n_sites] owned: what the model keeps of the past; mostly site i is layer i's */
    uint32_t n_sites;
    struct dev_weight embed, head;
    bool tied;
    struct mod_norm final_norm; /* of [hidden] */
    float logit_softcap;        /* 0: none */
    void *arch_weights;         /* the architecture's table, owned by own[] */
    void **own;                 /* blocks freed at close */
    uint32_t n_own;
    enum dtype weight_dtype; /* of the bulk of the matrix weights */
    uint64_t n_params;
};
int model_open(const char *path, struct model **out);
void model_close(struct model *m);
/* fingerprint.c: of configuration and weights; SHA-256.  Reads 4 KiB of every tensor. */
int model_fingerprint(const struct model *m, uint8_t out[32]);
/* config.c: keys of config.json, or of GGUF metadata under "<arch>." */
bool model_is_gguf(const struct model *m);
int model_u32(const struct model *m, const char *hf, const char *gguf, uint32_t min, uint32_t max,
              uint32_t *out); /* 1 found, 0 absent */
int model_need_u32(const struct model *m, const char *hf, const char *gguf, uint32_t min,
                   uint32_t max, uint32_t *out);
int model_f32(const struct model *m, const char *hf, const char *gguf, float *out);
bool model_is_null(const struct model *m, const char *hf); /* present in config.json and null */
/* The key of config.json, if there, must say `want`; ERR_UNSUPPORTED names it. */
int model_expect_str(const struct model *m, const char *hf, const char *want);
int model_expect_false(const struct model *m, const char *hf);
/* Keys from config.json's text_config from now on, if it has one; tensors are then also looked for under the
 * names that models of text and images give them. */
int model_enter_text(struct model *m);
/* weights.c: blocks that live as long as the model, zeroed. */
void *model_own(struct model *m, size_t n, size_t size);
/* NULL when absent.  Names are formats with one %u for the layer. */
const struct tensor *model_find(const struct model *m, const char *hf, const char *gguf,
                                uint32_t layer);
/* A matrix [rows][cols] by its Hugging Face or GGUF name (fmt, one %u for the layer); shape checked. */
int model_matrix(struct model *m, const char *hf, const char *gguf, uint32_t layer, uint32_t rows,
                 uint32_t cols, struct dev_weight *out);
/* A vector as f32; *out NULL when absent and `optional`. */
int model_vector(struct model *m, const char *hf, const char *gguf, uint32_t layer, uint32_t n,
                 bool optional, float **out);
/* A norm of `width` values by names without ".weight" and ".bias", with the model's epsilon.  A LayerNorm takes the bias
 * that is there.  NORM_NONE when absent and `optional`. */
int model_norm(struct model *m, enum norm_kind kind, const char *hf, const char *gguf,
               uint32_t layer, uint32_t width, bool optional, struct mod_norm *out);
/* Rows [row0, row0 + rows) of a matrix: fused projections are bound whole and cut. */
struct dev_weight model_rows(const struct dev_weight *w, uint32_t row0, uint32_t rows);
/* A matrix that a Hugging Face file holds as [cols][rows] (Conv1D): an owned transposed copy of the same
 * type, f32, f16 or bf16.  GGUF files hold it as [rows][cols]. */
int model_transposed(struct model *m, const char *hf, const char *gguf, uint32_t layer,
                     uint32_t rows, uint32_t cols, struct dev_weight *out);
/* out[n]: the matrices [rows][cols] of a tensor [n][rows][cols]; `transposed`: a Hugging Face file holds
 * [n][cols][rows]. */
int model_experts(struct model *m, const char *hf, const char *gguf, uint32_t layer, uint32_t n,
                  uint32_t rows, uint32_t cols, bool transposed, struct dev_weight *out);
/* --- mxfp4.c: out[n]: matrices [rows][cols] of a Hugging Face file's <hf>_blocks and <hf>_scales (see there), owned,
 * as GGUF lays them out.  Row r is row first + r * step of the file's rows * step: fused gate and up
 * projections whose rows alternate are bound by two calls.  1 found; 0 absent, and in GGUF files, whose
 * tensors model_experts takes as they are. */
int model_mxfp4(struct model *m, const char *hf, uint32_t layer, uint32_t n, uint32_t rows,
                uint32_t cols, uint32_t first, uint32_t step, struct dev_weight *out);
/* n_blocks * 16 bytes of neighbouring nibbles and their n_blocks scales, to n_blocks * 17 bytes. */
void mxfp4_repack(const unsigned char *codes, const unsigned char *scales, size_t n_blocks,
                  unsigned char *out);

/* --- site.c */
/* m->site: n new sites in place of those there are.  Each is full attention of n_kv_heads heads of head_dim, site i
 * written by layer i; the architecture changes those that differ. */
int model_new_sites(struct model *m, uint32_t n);

/* --- decoder.c: what most decoder configurations have in common */
/* Layers, hidden, ffn, heads, kv heads, head_dim, context, norm_eps by their usual keys; a site of full attention for
 * every layer.  Fields that are not 0 before the call are the defaults of absent keys. */
int model_read_decoder(struct model *m);
/* The window of sliding layers.  *window is the default before the call; 0: none.  A null takes it away. */
int model_read_window(const struct model *m, uint32_t *window);
/* m->site[i].window: config.json's layer_types if it has them, else layer i slides if i >= from and i + 1 is
 * no multiple of `period` (0: nothing is one). */
int model_slide(struct model *m, uint32_t window, uint32_t from, uint32_t period);
/* rope[i] from the usual keys: what HF calls rope_parameters (or `section` of them), or GGUF's rope.*.
 * Sets rot (partial_rotary_factor, rope.dimension_count); call rope_prepare after changes.  rope[i].theta, if
 * not 0, is the default of an absent rope_theta. */
int model_read_rope(struct model *m, uint32_t i, const char *section);
/* Embedding, final norm, head (m->tied: the default of tie_word_embeddings), vocabulary from the embedding's
 * shape. */
int model_bind_ends(struct model *m);
/* Binds matrices and their optional biases of one layer; NULL-terminated by hf == NULL. */
struct model_proj {
    const char *hf, *gguf; /* without ".weight" and ".bias"; one %u */
    uint32_t rows, cols;
    struct dev_weight *w;
    float **bias; /* NULL: none is looked for */
};
int model_bind_projs(struct model *m, uint32_t layer, const struct model_proj *p);

/* --- exec.c: one forward over the store */
struct exec_config {
    uint32_t threads;
    const char *isa;
    enum dev_compute compute;
    uint32_t step_tokens, max_seqs, max_len;
    size_t pool_bytes;
    bool reserve; /* static: every sequence sets max_len rows aside when it begins */
    enum kv_streaming streaming;
    size_t stage_bytes;
    const char *spill_dir; /* NULL: see kv_tier_file_open */
    bool no_index;         /* no prefix is kept, none is looked for */
    struct kv_preset_options preset;
};
struct exec {
    const struct model *m;
    struct dev *dev;
    struct kv *kv;
    enum dev_compute compute;
    uint32_t step_tokens, max_seqs, max_len;
    uint32_t *site;         /* [n_sites] the store's number of each site of the model */
    struct kv_group *group; /* [n_groups], for reports */
    uint32_t n_groups;
    struct graph *graph;  /* the recorded step */
    struct graph *encode; /* of the encoder's phase, or NULL */
    struct pass *pass;    /* its inputs, fixed at open */
    uint64_t computed;    /* tokens fed since open */
    bool reserve;
    bool telling;                /* a caller's callback runs, inside a feed or a step */
    enum kv_streaming streaming; /* as configured */
    struct exec_feed *call;      /* [max_seqs] of the public call that runs */
    struct exec_fed *fed;        /* [2 * max_seqs] of the feed that runs */
    struct exec_span *span;      /* [2 * max_seqs] of the step that runs */
    struct job_place *place;     /* [2 * max_seqs] of these spans */
    uint32_t regime_rows;        /* most a change of regime can drop; 0: the model has one regime */
    struct regime_past *past;    /* [2 * max_seqs], NULL without regimes */
    struct exec_said *said;      /* [max_seqs] by handle: see exec_said */
};
/* The token a sequence was left with: generated, and not fed.  Only a hint: it is lost when handles share a place. */
struct exec_said {
    kv_seq seq;
    uint32_t len; /* of the sequence then */
    int32_t token;
};
int exec_open(const struct model *m, const struct exec_config *c, struct exec **out);
void exec_close(struct exec *x);
int exec_tier_open(const char *dir, struct kv_tier **out); /* the file tier */

/* A new sequence, with its rows set aside if the preset says so. */
int exec_new(struct exec *x, kv_seq *out);
/* Before the first n tokens of an empty sequence are fed as one turn: the rows of the longest prefix that the cache
 * holds, *have < n of them; `pad` as of exec_feed.  kv_match_reason says why there is none. */
int exec_match(struct exec *x, kv_seq seq, const int32_t *ids, uint32_t n, uint32_t pad,
               uint32_t *have);
/* Ends a transaction on `seq` that began by forking it into `backup` (0: none): if it failed, seq becomes
 * the backup again; the backup is dropped. */
void exec_settle(struct exec *x, kv_seq seq, kv_seq backup, bool failed);

/* What is wanted of the n tokens of a feed besides logits.  Each array is filled as a whole, however the feed is cut
 * into steps; after a failure they hold anything. */
struct exec_probe {
    /* [n_layers + 1][n][hidden]: what enters layer 0, 1, ..., and the last one's result after the final norm, as
     * output_hidden_states; or NULL */
    float *hidden;
    float *last; /* [n][hidden]: the last of these alone, or NULL */
    /* [n_layers][n_heads][n][columns]: probabilities of the sequence's rows, as output_attentions; columns are
     * the rows after the feed.  Or NULL */
    float *attention;
    uint32_t columns;
};

/* One sequence's part of a step.  `rows` goes to the store as it is; what the call brings and wants stays in its feed. */
struct exec_feed;
struct exec_span {
    /* tok: NULL if the tokens have no ids (embeddings, moved positions).  cross: all tokens of the encoder; every span of
     * the step has it, or none. */
    struct kv_span rows;
    const struct exec_feed
        *feed;         /* the feed that this is a piece of; NULL: rows that are recomputed */
    uint32_t at;       /* the piece's first token in the feed */
    uint32_t turn_end; /* last position of the turn; tokens after it are turns of one token */
    uint32_t n_logits; /* tokens whose logits are wanted: by feed->want, else the last ones */
};
/* One step: at most step_tokens tokens, a sequence once.  logits: rows in span order, [sum n_logits][vocab].
 * All or nothing. */
int exec_step(struct exec *x, const struct exec_span *span, uint32_t n, float *logits);
/* The same, with a verdict on the drafts while the step is open: accepted[i], all of span i when it is called, is lowered to
 * the tokens that stay, at least its n - undo.  A negative result undoes the step. */
typedef int (*exec_judge)(void *ctx, const float *logits, uint32_t *accepted);
int exec_step_judged(struct exec *x, const struct exec_span *span, uint32_t n, float *logits,
                     exec_judge judge, void *ctx);

/* A feed of any length: split into steps.  Several sequences share steps.  On error the sequences are as
 * before, except that sequences whose groups forget may have to be fed again from an earlier row. */
struct exec_feed {
    kv_seq seq;
    const int32_t *tok;
    uint32_t n;
    bool all; /* logits of every token, else of the last */
    uint32_t
        pad; /* masked columns before the first row of an empty sequence; few models count them */
    bool loose; /* on error its length may have changed: the caller can restore it, or drops it */
    const uint32_t *
        ends; /* [n] last position of each token's turn (recomputing several turns at once); or NULL */
    /* [n][hidden] instead of tok: what enters the first layer, after a scaled embedding's scale and before learned
     * positions are added, as inputs_embeds; or NULL.  These rows have no ids in the store. */
    const float *embeds;
    /* [n] positions for the model's rotations or its table, or NULL: the rows' own.  Unless they all are the
     * rows' own, these rows have no ids: nothing finds them by their tokens or computes them again.  Windows and
     * chunks go by row. */
    const uint32_t *pos;
    const uint8_t
        *want; /* [n] tokens whose logits are wanted, a row each, in order; NULL: see `all` */
    struct exec_probe *probe; /* what else is wanted, or NULL */
};
typedef bool (*exec_progress)(void *ctx, uint64_t done, uint64_t total);
/* chunk: most tokens of one sequence in one step, 0: step_tokens.  logits NULL: none. */
int exec_feed(struct exec *x, const struct exec_feed *feed, uint32_t n, uint32_t chunk,
              float *logits, exec_progress progress, void *ctx);
/* Tells how far a feed is, NULL: nobody.  ERR_CANCELLED if the callback wants that; it cannot feed the cache. */
int exec_tell(struct exec *x, exec_progress progress, void *ctx, uint64_t done, uint64_t total);

/* --- job.c: the feeds of several callers, cut into steps that they share. */
struct exec_fed {        /* how far one feed is */
    uint32_t done;       /* of `again` and the feed's own tokens */
    uint32_t again;      /* tokens to feed first: rows of another regime (regime.c) */
    const int32_t *past; /* [again] */
    int32_t *own;        /* `past` of a job that lasts several calls; owned */
    uint32_t start;      /* rows before the feed */
    uint32_t rows;       /* of logits that are wanted */
    uint32_t written;    /* of these, in the caller's array already */
    bool moved;          /* its tokens have positions that are not their rows' */
    kv_seq backup;       /* of exec_feed; 0: none */
    uint32_t reserve;    /* of exec_feed, while rows come back: what the sequence was promised */
};
struct exec_job {
    /* The caller's, until the job has ended: */
    const struct exec_feed *feed; /* [n] each of another sequence */
    struct exec_fed *fed;         /* [n] */
    uint32_t n;
    uint32_t chunk; /* most tokens of one sequence in one step, 0: step_tokens */
    float *logits;  /* the rows of all feeds in order, as exec_feed writes them; or NULL */
    bool draft;     /* feeds are drafts: `logits` has room for `room` rows, those of one step */
    uint32_t room;
    /* Lowers accepted[i], the tokens of feed first + i, to those that stay, at least 1; called while the step is open,
     * with the logits of these feeds alone in `logits`. */
    void (*judge)(void *ctx, uint32_t first, uint32_t n, uint32_t *accepted);
    void *ctx;
    /* Set by exec_job_begin and the steps: */
    uint64_t done, total; /* tokens; the job is done when they are equal */
    uint64_t computed;    /* tokens that steps computed for it */
    uint32_t first;       /* feeds before it are done */
    bool single;          /* drafts do not fit: only the certain token of each feed is fed */
    bool one_row;         /* every feed has one row of logits */
};
struct job_place { /* of a span */
    uint32_t job, feed;
};
/* Checks the feeds and prepares their sequences.  All feeds are `loose`: after an error the sequences may have other
 * lengths, and the caller drops them or restores them. */
int exec_job_begin(struct exec *x, struct exec_job *job);
void exec_job_end(struct exec *x, struct exec_job *job, bool failed);
/* One step of jobs that have begun and are not done; tmp: rows of logits, as many as the jobs want at once, needed where
 * there are several jobs or several feeds.  After an error all jobs are as they were.  JOB_FEWER: nothing was done; the
 * cache began to stream, and the next call feeds fewer sequences at once. */
int exec_step_jobs(struct exec *x, struct exec_job *const *job, uint32_t n, float *tmp);
#define JOB_FEWER 1
/* True if the job feeds one token or one draft to each sequence. */
bool exec_job_decodes(const struct exec_job *job);
/* Of n tokens, how many a draft of `seq` can have; 0: the next token changes the regime of the sequence, so that it cannot
 * be fed as a draft. */
uint32_t exec_draft_fits(const struct exec *x, kv_seq seq, uint32_t n);
/* How many of the next n tokens of a feed, from `at` on, have logits that are wanted. */
uint32_t job_wanted(const struct exec_feed *f, uint32_t at, uint32_t n);
/* The group of one of the model's sites, to ask for its policy and shapes. */
const struct kv_group *exec_group(const struct exec *x, uint32_t site);
/* The policy of the sites of a sink cache; NULL: the cache keeps no sinks. */
const struct kv_policy *exec_sinks(const struct exec *x);

/* --- feed.c */
int feed_open(struct exec *x);
void feed_close(struct exec *x);

/* --- crop.c: the first `want` rows of a sequence, with the bits of one that never was longer. */
int exec_crop(struct exec *x, kv_seq s, uint32_t want);
/* The same without a backup, after a feed that failed: within a reserve it cannot fail for want of budget. */
int exec_return(struct exec *x, kv_seq s, uint32_t len);
/* Feeds rows [from, to) again, turn by turn; tok and turn: of the sequence as it was, from row 0 on. */
int exec_replay(struct exec *x, kv_seq seq, const int32_t *tok, const struct kv_turn *turn,
                uint32_t n_turns, uint32_t from, uint32_t to);

/* --- regime.c: ropes whose frequencies depend on the length of the whole sequence (longrope).
 *
 * A regime is the least length that has it, 0 the shortest.  It is the salt of a sequence: when a feed brings one
 * into another regime, its rows are dropped and computed again, as one turn with what is fed (rule 13). */
uint32_t regime_of(const struct model *m, uint32_t len);
int regime_open(struct exec *x);
void regime_close(struct exec *x);
/* Whether feeding n tokens to `seq` drops its rows. */
bool regime_changes(const struct exec *x, kv_seq seq, uint32_t n);
/* Before that feed, the i-th of its call: *again rows were dropped, regime_rows(x, i) are their tokens. */
int regime_enter(struct exec *x, uint32_t i, kv_seq seq, uint32_t n, uint32_t *again);
const int32_t *regime_rows(const struct exec *x, uint32_t i);
/* After a feed that failed: the dropped rows are there again, with the turns they had.  If that fails too, the
 * sequence is empty. */
int regime_back(struct exec *x, uint32_t i, kv_seq seq);

/* --- probe.c: what a feed shows besides logits */
/* After the step's words: the last layer's result, normed. */
void probe_last(struct pass *p);
/* The probabilities of one piece of a layer's attention. */
void probe_attention(struct pass *p, uint32_t layer, const struct kv_view *v,
                     const struct dev_attn *a);

/* --- graph.c: a step as a list of operations, recorded once and replayed.
 *
 * Words append an operation; none computes.  Buffers are rows of activations, one per token of a step; they
 * and the arguments of words live as long as the exec, so a step calls no architecture code, allocates nothing
 * and works on fixed addresses.  Errors while recording stick in the graph; exec_open reports the first. */
struct pass { /* inputs of the step that runs */
    struct exec *x;
    struct dev *dev;
    struct kv_step *step;
    uint32_t n; /* tokens of this step */
    const int32_t *tok;
    uint32_t *pos, *end;         /* [n] */
    uint32_t *column;            /* [n] the row plus the masked columns before the prompt */
    int32_t *ids;                /* [step_tokens] */
    const struct exec_span *fed; /* [n_fed] as given */
    uint32_t n_fed;
    bool embeds, probed;     /* a span has embeddings; one is to be looked into */
    struct dev_probe *shown; /* [2 * max_seqs] of the layer that runs */
    float *h;    /* [n][hidden] residual stream: the graph's last word leaves the result here */
    float *rows; /* [step_tokens][hidden] rows whose logits are wanted */
    struct kv_span *span; /* [max_seqs] */
    uint32_t *accepted;   /* [step_tokens] by spans */
};
typedef int (*graph_run)(struct pass *p, const void *arg);
float *graph_buffer(struct graph *g, size_t width);      /* [step_tokens][width], 64-byte aligned */
void *graph_own(struct graph *g, size_t n, size_t size); /* zeroed, lives as long as the exec */
void graph_op(struct graph *g, graph_run run,
              const void *arg); /* a new word: any file may add one */
uint32_t graph_step_tokens(const struct graph *g);
void graph_needs(struct graph *g, uint32_t k, uint32_t n); /* widest matmul input and output */
float *graph_h(struct graph *g);                           /* p->h */
/* A site as the model declares it; the store's number of it, for kv_next. */
const struct kv_site *graph_site(const struct graph *g, uint32_t site);
uint32_t graph_number(const struct graph *g, uint32_t site);

/* h = rows of w, times `scale`; or the embeddings that were fed, as they are. */
void mod_embed(struct graph *g, const struct dev_weight *w, float scale);
/* The residual stream enters a layer: what a probe sees of it.  Once per layer, after everything that is added to
 * the embedding. */
void mod_mark(struct graph *g, uint32_t layer);
/* x += row pos of w: learned positions. */
void mod_embed_positions(struct graph *g, const struct dev_weight *w, float *x);
/* out = norm of x, which out may be; per: rows of `width` values per token (heads, for norms of heads). */
void mod_norm(struct graph *g, const struct mod_norm *norm, const float *x, uint32_t per,
              uint32_t width, float *out);
struct mod_out {
    const struct dev_weight *w;
    const float *bias;
    float *y;
};
/* Products of the same x; y rows are dense.  At most 4. */
void mod_linear(struct graph *g, const float *x, const struct mod_out *out, uint32_t n_out);
/* Rotates x, [heads][dim] per token, in place by rope number `rope`. */
void mod_rope(struct graph *g, uint32_t rope, float *x, uint32_t heads, uint32_t dim);
/* Rotates queries for a site in the same way.  Under a sink cache it also makes a second copy, rotated for the sink
 * rows, and returns it: mod_attention's q_sink.  Else it returns NULL.  The copy belongs to the buffer q: it holds
 * until the word is used on that buffer again. */
const float *mod_rope_query(struct graph *g, uint32_t site, uint32_t rope, float *q, uint32_t heads,
                            uint32_t dim);
struct mod_attention {
    uint32_t layer; /* where a probe of this attention's probabilities shows them */
    uint32_t site;  /* whose planes 0 and 1 give the shapes of keys and values */
    uint32_t heads; /* of queries: a multiple of the site's */
    const float *q; /* [heads][dim] per token; NULL: the rows are written and not read */
    /* [heads of the site][dim] per token; NULL: the rows are read only, another word or the encoder wrote them */
    const float *k, *v;
    const float *q_sink; /* the queries that meet the sink rows; NULL: q meets them, too */
    float *out;          /* [heads][dim of values] per token */
    float scale, softcap;
    const float *sink_logit; /* [heads] or NULL */
};
/* Writes k and v, quantizes the tiles that this step completes, attends. */
void mod_attention(struct graph *g, const struct mod_attention *a);
void mod_add(struct graph *g, float *x, const float *y, uint32_t width);      /* x += y */
void mod_silu_mul(struct graph *g, float *x, const float *y, uint32_t width); /* x = silu(x) * y */
void mod_gelu_mul(struct graph *g, float *x, const float *y, uint32_t width); /* tanh form */
void mod_gelu(struct graph *g, float *x, uint32_t width);
