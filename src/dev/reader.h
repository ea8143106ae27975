/* reader.h - how attention reads the sealed rows of a plane: the functions that a codec's table of readers names.
 *
 * A query meets the rows of a tile in one of three ways:
 *   in place     the rows of a head lie in a tile as in a raw block of as many rows, and are read there; raw pages, too
 *   strips       the reader makes strips of 16 rows in raw layout out of tiles
 *   score, add   the reader sums over the bytes of a tile
 * Attention sums rows in place and strips, in the order of raw rows (dev.h).  A reader that sums states its own order, and can
 * open a tile: convert it once for many queries.  In all three ways `query` prepares a query before it meets rows, and `end`
 * finishes the sum over all of them. */
#pragma once
#include "dev/dev.h"

struct kv_reader;
/* A plane, and the reader of its rows. */
struct kv_reading {
    const struct kv_codec *codec; /* NULL: raw pages */
    const struct kv_shape *shape;
    enum dev_isa isa; /* of the device */
    const struct kv_reader *reader;
};
/* Rows [r0, r1) of one head, counted from the first row of tile[0].  All of them lie in one atom of attention. */
struct kv_piece {
    /* The tiles that hold these rows, one after another.  Each is a tile of the plane with all heads, 64-byte
     * aligned.  A reader that sums gets one tile.  Tiles with fewer than 16 rows are all tiles of a strip.  A tile
     * without a row of the piece is replaced by another tile, so that a kernel can read 16 rows. */
    const unsigned char *tile[KV_STRIP];
    uint32_t head, r0, r1;
    /* Only for a reader that sums: the address of about as many bytes that are read after this head of the tile.  A
     * kernel prefetches them as it goes.  NULL: not known. */
    const unsigned char *then;
    /* Only for a reader that sums: the result of its `open` for the rows of tile[0] from row `open0` on, or NULL. */
    const unsigned char *open;
    uint32_t open0;
};
/* The narrow tiles that are read next: tiles [first, end) of pieces of `per` tiles, each of `bytes` bytes with all heads.  A
 * kernel prefetches them as it goes, and counts `first` up. */
struct kv_next {
    const struct kv_piece *piece;
    uint32_t per, first, end, bytes;
};
#define KV_OPEN_ROW(dim) (2 * (dim) + 64) /* bytes of room for a row that is opened */
/* The functions for one instruction set.  A score depends only on the query and the row.  An addition depends only
 * on the query's probabilities and the rows of the piece.  Other queries of the call change neither.  All sets give
 * the same bits. */
struct kv_reader {
    /* How many rows to read at once when few queries meet them; 0: a whole tile or strip. */
    uint32_t rows;
    /* For keys: prepares a query of dim values for strips or for `score`; out has room for dim floats.  NULL: the
     * query needs no preparation. */
    void (*query)(const struct kv_reading *r, const float *q, float *out);
    /* Writes the strips of a piece to room, one after another, and returns the address of the first.  Rows outside
     * the piece may have any values.  room: for all tiles of the piece, or for one strip. */
    const void *(*strips)(const struct kv_reading *r, const struct kv_piece *at, void *room);
    /* These two do for few queries what `strips` and the kernels of attention do, bit for bit, without strips in
     * memory.  at[n]: the pieces of a run, of at most 4 strips.  They return false, and have written nothing, where
     * strips have to be made: for tiles of other forms, or more queries.  NULL: always.
     * score_few, for keys: p[i * ldp + j] = scale * (query i . row j) for nq queries q[dim][nq] and all 16 rows of
     * every strip; j counts from the first strip's first row.
     * add_few, for values: o[i * ldo + d] += the sum over the rows j of the pieces of p[i * ldp + j] * row j [d].
     * fresh: o counts as 0, whatever it is. */
    bool (*score_few)(const struct kv_reading *r, const struct kv_piece *at, uint32_t n,
                      struct kv_next *next, const float *q, uint32_t nq, float scale, float *p,
                      size_t ldp);
    bool (*add_few)(const struct kv_reading *r, const struct kv_piece *at, uint32_t n,
                    struct kv_next *next, const float *p, size_t ldp, uint32_t nq, bool fresh,
                    float *o, size_t ldo);
    /* Only for a reader that sums: converts the rows of a piece (all rows that the tile has in an atom) to a form
     * that many queries meet faster.  room: KV_OPEN_ROW bytes for each row.  Returns the form, or NULL if the tile
     * itself is as good.  NULL: it never is. */
    const unsigned char *(*open)(const struct kv_reading *r, const struct kv_piece *at, void *room);
    /* For keys: p[i * ldp + j - r0] = scale * (query i . row j) for n queries q[n][dim]. */
    void (*score)(const struct kv_reading *r, const struct kv_piece *at, const float *q, uint32_t n,
                  float scale, float *p, size_t ldp);
    /* For values: o[i * ldo + d] += the sum over j of p[i * ldp + j - r0] * row j [d], for n queries. */
    void (*add)(const struct kv_reading *r, const struct kv_piece *at, const float *p, size_t ldp,
                uint32_t n, float *o, size_t ldo);
    /* For values: finishes the sum o[dim] of one query over all sealed rows, after their atoms were merged.  NULL:
     * nothing to do. */
    void (*end)(const struct kv_reading *r, float *o);
    /* Keeps the processor's unit for products awake.  A thread calls it every few hundred cycles while it works on
     * results of the functions above and will soon call them again.  NULL: nothing to do. */
    void (*awake)(const struct kv_reading *r);
    /* Releases the processor's unit for products, because the thread reads no more rows for now.  NULL: nothing to
     * do. */
    void (*rest)(const struct kv_reading *r);
};

/* Tables [DEV_ISAS] by instruction set or kind of device.  For an entry that is NULL, the next lower instruction set
 * serves.  [DEV_REF], the scalar reference, is never NULL.  These tables are for several codecs. */
extern const struct kv_reader *const kv_read_in_place[DEV_ISAS];
/* Reads tiles that affine.h describes; codec->param is their struct kv_affine. */
extern const struct kv_reader *const kv_read_affine[DEV_ISAS];
/* Reads tiles that coded.h describes; codec->param is their struct kv_coded. */
extern const struct kv_reader *const kv_read_coded[DEV_ISAS];
/* Reads tiles that float8.h describes. */
extern const struct kv_reader *const kv_read_float8[DEV_ISAS];
/* Reads any tiles, by codec->decode. */
extern const struct kv_reader *const kv_read_decoded[DEV_ISAS];

/* Finds the reader of a codec for an instruction set; c NULL: the reader of raw pages. */
struct kv_reading kv_reading(const struct kv_codec *c, const struct kv_shape *s, enum dev_isa isa);
