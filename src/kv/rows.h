/* rows.h - the one reader of rows as f32 arrays: of a sequence, site by site, and of the views of a
 * step that is open.
 *
 * A row is read in the form in which attention reads it: raw rows are converted, sealed rows are
 * dequantized.  Pages that stream arrive as pieces of a view, so a reader takes of every piece what
 * that piece covers. */
#pragma once
#include "kv/kv.h"

/* Asks for rows [0, sinks) and then [lo, to) of a lane.  All of them must be within the reach of `token`. */
struct rows_ask {
    uint32_t lane;
    /* index of a token of the step; each row is read in the form in which this token reads it */
    uint32_t token;
    uint32_t sinks, lo, to;
    float *plane[2]; /* [heads][ld][dim] of keys and values; the first row goes to row `at` */
    size_t ld, at;
    void *scratch; /* rows_scratch() bytes */
};
/* Returns the bytes of scratch for reading rows of a group. */
size_t rows_scratch(const struct kv_group *g);
/* Writes the rows that this piece of the view covers and leaves other rows of the arrays
 * unchanged. */
void rows_read(const struct kv_view *v, const struct rows_ask *a);

/* Reads the rows that the next token of a sequence can see.  Until rows_close the reader holds an open step of one
 * more row, so no other step can begin; rows_close aborts that step. */
struct rows_reader {
    struct kv_step *step;
    uint32_t len, cross; /* rows of the sequence; frozen ones */
};
int rows_open(struct kv *kv, kv_seq s, struct rows_reader *r);
/* Returns how many rows of a site the next token sees: the sinks, then the rows from *lo on. */
uint32_t rows_seen(const struct kv_group *g, uint32_t len, uint32_t *sinks, uint32_t *lo);
/* Writes the rows of one site of group g that the next token sees, [heads][rows_seen][dim] each. */
int rows_site(struct rows_reader *r, const struct kv_group *g, uint32_t site, float *keys,
              float *values);
/* Returns a plane [heads][dim] of a page in the view of a state group, or NULL for page 0.  room: floats for one
 * plane. */
const float *rows_state(const struct kv_view *v, uint32_t page, uint32_t plane, float *room);
/* Writes a plane of a page, which is not page 0. */
void rows_state_put(const struct kv_view *v, uint32_t page, uint32_t plane, const float *x);
/* Ends reading.  Returns an error of the device, after which the rows that were read are undefined. */
int rows_close(struct rows_reader *r);

/* Copies n rows of x, [heads][ld][dim] from row `at`, to out [n][heads][dim] as dev_kv_write takes
 * them. */
void rows_pack(const float *x, size_t ld, size_t at, uint32_t n, uint32_t heads, uint32_t dim,
               float *out);
