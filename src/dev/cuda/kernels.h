/* kernels.h - the kernels of this folder: their names, and the struct of arguments of each.  A new kernel is a line of
 * the list, a struct, and a function in a .cu file. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(name): struct NAME_args, and KERNEL(NAME) in a .cu file. */
#define CUDA_KERNELS(X)                                                                            \
    X(k_map)                                                                                       \
    X(k_norm)                                                                                      \
    X(k_scale_rows)                                                                                \
    X(k_rope)                                                                                      \
    X(k_move)                                                                                      \
    X(k_cut)                                                                                       \
    X(k_rows)                                                                                      \
    X(k_unfold)                                                                                    \
    X(k_choose)                                                                                    \
    X(k_add_rows)                                                                                  \
    X(k_spread)                                                                                    \
    X(k_sum_experts)                                                                               \
    X(k_embed)                                                                                     \
    X(k_quantize)                                                                                  \
    X(k_product)                                                                                   \
    X(k_product_q)                                                                                 \
    X(k_tensor)                                                                                    \
    X(k_tensor_wide)                                                                               \
    X(k_tensor_q)                                                                                  \
    X(k_tensor_q_wide)                                                                             \
    X(k_write)                                                                                     \
    X(k_atom)                                                                                      \
    X(k_merge)                                                                                     \
    X(k_scores)                                                                                    \
    X(k_atom_coded)                                                                                \
    X(k_merge_coded)                                                                               \
    X(k_scores_coded)                                                                              \
    X(k_seal_rows)                                                                                 \
    X(k_seal_ranges)                                                                               \
    X(k_seal_codes)                                                                                \
    X(k_seal_float8)                                                                               \
    X(k_seal_levels)                                                                               \
    X(k_conv)                                                                                      \
    X(k_scan)                                                                                      \
    X(k_delta)
enum cuda_kernel {
#define CUDA_KERNEL_ID(name) CUDA_##name,
    CUDA_KERNELS(CUDA_KERNEL_ID)
#undef CUDA_KERNEL_ID
        CUDA_KERNEL_COUNT
};

/* --- k_values.cu: a thread for each value, or a block for each row */
struct k_map_args { /* kind: enum dev_map */
    float *x;
    const float *y;
    uint32_t kind, dim;
    bool shared;
    float p, q;
    size_t n;
};
struct k_norm_args { /* a block is a row; kind: enum dev_norm */
    const float *x, *w, *b;
    float *out;
    float eps;
    uint32_t kind, dim;
};
struct k_scale_rows_args {
    float *x;
    const float *by;
    uint32_t dim;
    size_t n;
};
struct k_rope_args { /* a thread is a pair */
    float *x;
    size_t ldx;
    const float *cos, *sin;
    uint32_t heads, dim, half;
    bool interleaved;
    size_t n;
};
/* --- k_rows.cu */
struct k_move_args { /* a thread is a byte */
    unsigned char *to;
    const unsigned char *from;
    size_t bytes, stride, n;
};
struct k_cut_args {
    const float *x;
    float *out;
    size_t ldx, ldo, n;
    uint32_t stride, width, parts;
};
struct k_rows_args { /* a thread is a column, so that out may be x */
    const float *x;
    float *out;
    const uint32_t *id;
    uint32_t n, dim;
};
struct k_unfold_args {
    const float *x;
    float *out;
    uint32_t n_x, channels, taps, step;
    size_t n;
};
struct k_choose_args { /* a thread is a token */
    const float *score;
    uint32_t *chosen;
    float *weight;
    uint32_t n, n_experts, top;
    bool share;
};
struct k_add_rows_args { /* out[row[i]] += y[i]; no two rows of a call are equal */
    const float *y;
    float *out;
    const uint32_t *row;
    uint32_t dim;
    size_t n;
};
struct k_spread_args { /* out[i] = x[i / each] */
    const float *x;
    float *out;
    uint32_t dim, each;
    size_t n;
};
/* out[t] = the sum of y[t * top + i], in ascending order of the experts */
struct k_sum_experts_args {
    const float *y;
    const uint32_t *chosen;
    float *out;
    uint32_t dim, top;
    size_t n;
};
/* --- k_product.cu */
struct k_weight { /* type: enum dtype */
    const unsigned char *data;
    size_t row_bytes;
    uint32_t type;
};
struct k_embed_args {
    struct k_weight w;
    const int32_t *id;
    float *out;
    uint32_t cols;
    size_t n;
};
#define K_GROUP 256u /* columns under one scale of activations */
struct k_group {     /* q = 256 * hi + lo; the size is a multiple of 16 bytes */
    int8_t hi[K_GROUP];
    uint8_t lo[K_GROUP];
    float d;
    uint32_t unused[3];
};
struct k_quantize_args { /* block (x, y) is group x of token y */
    const float *x;
    size_t ldx;
    struct k_group *out;
    uint32_t k, groups;
};
/* Experts of a layer.  A slot is a token and one of its choices: y of the grid is the slot, its input is row slot /
 * share of x, and its result is row slot of y. */
struct k_expert { /* weights of gate, up and down; bias NULL: none */
    const unsigned char *w[3];
    const float *bias[3];
};
struct k_pick { /* the expert of each slot; expert NULL: all tokens have one weight */
    const struct k_expert *expert;
    const uint32_t *chosen;
    uint32_t which, share;
};
#define K_ROWS   16u /* rows of a weight that a block multiplies */
#define K_TOKENS 8u  /* tokens that a block multiplies them with */
struct k_product_args {
    struct k_weight w;
    const float *x, *bias;
    float *y;
    size_t ldx, ldy;
    uint32_t rows, k, n;
    bool round; /* x is rounded to bf16 first */
    struct k_pick pick;
};
struct k_product_q_args {
    struct k_weight w;
    const struct k_group *x;
    const float *bias;
    float *y;
    size_t ldy;
    uint32_t rows, k, n, groups;
    struct k_pick pick;
};
/* --- k_tensor.cu: block (x, y) has 16 rows of the weight (wide: 128) and tile y of tokens */
#define K_FEW  32u     /* tokens of a tile */
#define K_MANY 64u     /* tokens of a wide tile */
struct k_tensor_args { /* a weight of bf16 */
    struct k_weight w;
    const float *x, *bias;
    float *y;
    size_t ldx, ldy;
    uint32_t rows, k, n;
    struct k_pick pick; /* not used by the wide kernel */
};
struct k_tensor_wide_args {
    struct k_tensor_args a;
};
struct k_tensor_q_args {
    struct k_product_q_args a;
};
struct k_tensor_q_wide_args {
    struct k_product_q_args a;
};
/* --- k_attn.cu: views of the cache (view.h) */
struct k_affine { /* struct kv_affine; bits 0: rows lie in tiles as in raw blocks */
    uint32_t bits, unit, group;
    bool zero_first;
};
/* struct kv_coded; bits 0: the plane has no levels; run 0: rows are not rotated */
struct k_levels {
    uint32_t bits, seed, run;
    float turn;
    bool key, mean;
    int8_t level[16];
};
struct k_form {
    unsigned char *base;
    size_t grain, offset;
    const uint32_t *table;
    uint32_t rows, stride;
};
struct k_plane { /* K or V */
    struct k_form raw, sealed;
    uint32_t heads, dim, type;
    /* coded: the plane has a codec; float8: its codec stores floats of 8 bits */
    bool strips, coded, float8;
    struct k_affine affine;
    struct k_levels levels;
};
struct k_write_args { /* a thread is a value of a head */
    struct k_plane p;
    const float *x;
    size_t ldx;
    const uint32_t *dst;
    size_t n;
};
/* Which rows of a piece the tokens read.  The arrays are those of the view, on the device or on the host. */
struct k_walk {
    const uint32_t *slot, *lane, *pos, *lo, *hi, *edge;
    uint32_t row0, row1, raw0, raw1, sinks, lead;
    bool lossy, tiled;
};
struct k_query {
    const float *q, *q_sink;
    size_t ldq;
    uint32_t n_heads, group;
    float scale, softcap;
    const float *bias; /* [n_heads][back + 1 + ahead], or NULL */
    uint32_t back, ahead;
};
#define K_DIM     1024u /* most values of a head */
#define K_QUERIES 8u    /* most queries of a block; all of them use the same kv head */
#define K_STATE                                                                                    \
    3u /* floats of a state before its values: M, L, and 1 if the values are still rotated */
struct k_atom_args { /* block (x, y): x is a few queries (k_attn.cu), y an atom of the wave */
    struct k_plane k, v;
    struct k_walk walk;
    struct k_query query;
    float *part;    /* [token][head][wave][state] */
    uint32_t first; /* number of the wave's first atom in the piece */
    uint32_t wave, state;
    uint32_t n, heads, tokens; /* n: tokens of the step; heads, tokens: of a block */
};
struct k_merge_args { /* a block for each token and head */
    struct k_walk walk;
    const float *part, *sink_logit;
    float *run, *out; /* run: [token][head][state]; out NULL: more pieces follow */
    size_t ldo;
    uint32_t n_heads, dim, first, wave, state;
    bool begins;
};
struct k_scores_args { /* block (x, y): x is a token and head, y an atom */
    struct k_plane k;
    struct k_walk walk;
    struct k_query query;
    float *out; /* [token][head][columns] */
    uint32_t columns;
};
/* --- k_attn_coded.cu: the same kernels for planes that are coded.  Merging is here if V is coded. */
struct k_atom_coded_args {
    struct k_atom_args a;
};
struct k_merge_coded_args {
    struct k_merge_args a;
    struct k_plane v;
};
struct k_scores_coded_args {
    struct k_scores_args a;
};
/* --- k_seal.cu: y is a tile that the step seals; a thread for each value, group, or byte of codes */
struct k_seal {
    struct k_plane p;
    const uint32_t *slot, *enc;
    uint32_t lead;
};
struct k_seal_rows_args {
    struct k_seal s;
    size_t n;
};
struct k_seal_ranges_args {
    struct k_seal s;
    size_t n;
};
struct k_seal_codes_args {
    struct k_seal s;
    size_t n;
};
struct k_seal_float8_args { /* x: 16 rows of a head */
    struct k_seal s;
};
struct k_seal_levels_args { /* k_seal_coded.cu; x: a unit of a head */
    struct k_seal s;
    float edge[8], of_rms, of_top;
};
/* --- k_state.cu: a thread for each channel, or column of a head's matrix; y is the lane */
struct k_state {
    unsigned char *base;
    size_t grain, offset;
    const uint32_t *lane, *pos, *dst, *from;
    uint32_t n; /* tokens of the step */
};
struct k_conv_args {
    struct k_state s;
    const float *x, *w, *bias;
    float *out;
    uint32_t taps, channels;
};
struct k_scan_args {
    struct k_state s;
    const float *x, *dt, *b, *c, *a, *d;
    float *out;
    size_t ldx, ldb;
    uint32_t channels, heads, groups, n;
    bool one_decay;
};
struct k_delta_args {
    struct k_state s;
    const float *q, *k, *v, *dt, *beta, *a;
    float *out;
    size_t ldq, ldv;
    float scale;
    uint32_t heads, key_heads, keys, values;
};
