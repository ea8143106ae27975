/* reader.h - how attention reads the sealed rows of a plane: the functions that a codec names in its row.
 *
 * A query walks over the rows of a tile in one of three ways:
 *   in place     the rows of a head lie in a tile as in a raw block of as many rows, and are read there; so are raw pages
 *   strips       the reader makes strips of 16 rows in raw layout out of tiles
 *   score, add   the reader sums over the bytes of a tile
 * Rows in place and strips are summed by attention, in the order of raw rows (dev.h).  A reader that sums states its
 * own order, and many queries may meet a tile that it has opened.  What is the same whatever the way: a query is prepared
 * before it meets rows, and the sum over all of them is ended. */
#pragma once
#include "dev/dev.h"

struct kv_reader;
/* A plane, and who reads it. */
struct kv_reading {
    const struct kv_codec *codec; /* NULL: raw pages */
    const struct kv_shape *shape;
    enum dev_isa isa; /* of the device */
    const struct kv_reader *reader;
};
/* Rows [r0, r1) of one head, counted from the first row of tile[0].  All of them lie in one atom of attention. */
struct kv_piece {
    /* The tiles that hold these rows, one after another: of the plane, all heads; each 64-byte aligned.  A reader
     * that sums gets one.  Of tiles with fewer than 16 rows these are all of a strip; one without a row of the piece
     * is replaced by another, so that a kernel may read 16 rows. */
    const unsigned char *tile[KV_STRIP];
    uint32_t head, r0, r1;
    /* For a reader that sums, one tile: where the bytes lie that are read after those of this head, about as many; a kernel
     * asks the cache for them as it goes.  NULL: not known. */
    const unsigned char *then;
    /* For a reader that sums: what its `open` made of the rows of tile[0] from row `open0` on, or NULL. */
    const unsigned char *open;
    uint32_t open0;
};
#define KV_OPEN_ROW(dim) (2 * (dim) + 64) /* bytes of room for a row that is opened */
/* The functions for one instruction set.  A score depends on the query and the row alone, an addition on the query's
 * probabilities and on the rows of the piece, neither on the other queries of the call; all sets give the same bits. */
struct kv_reader {
    /* Where few queries read a row, so many rows are taken at once; 0: those of a tile or strip. */
    uint32_t rows;
    /* Of keys: prepares a query of dim values for strips, or for `score`, which takes room for dim floats.  NULL: as
     * it is. */
    void (*query)(const struct kv_reading *r, const float *q, float *out);
    /* Writes the strips of a piece to room, one after another, and returns where the first lies.  Rows outside the
     * piece may be anything.  room: for all tiles of the piece, or for a strip. */
    const void *(*strips)(const struct kv_reading *r, const struct kv_piece *at, void *room);
    /* Of a reader that sums: makes of the rows of a piece, all that their tile has in an atom, what many queries meet faster than
     * the tile: in room, KV_OPEN_ROW bytes for each row.  Returns it, or NULL if the tile is best as it is.  NULL: never. */
    const unsigned char *(*open)(const struct kv_reading *r, const struct kv_piece *at, void *room);
    /* Of keys: p[i * ldp + j - r0] = scale * (query i . row j) for n queries q[n][dim]. */
    void (*score)(const struct kv_reading *r, const struct kv_piece *at, const float *q, uint32_t n,
                  float scale, float *p, size_t ldp);
    /* Of values: o[i * ldo + d] += the sum over j of p[i * ldp + j - r0] * row j [d], for n queries. */
    void (*add)(const struct kv_reading *r, const struct kv_piece *at, const float *p, size_t ldp,
                uint32_t n, float *o, size_t ldo);
    /* Of values: ends the sum o[dim] of one query over all sealed rows, whose atoms have been merged.  NULL: as it is. */
    void (*end)(const struct kv_reading *r, float *o);
    /* Called every few hundred cycles by a thread that works on what the functions above have returned and will call them again:
     * keeps what makes their products ready.  NULL: nothing. */
    void (*awake)(const struct kv_reading *r);
    /* A thread reads no more for now: what of the processor it holds for its products is given back.  NULL: nothing. */
    void (*rest)(const struct kv_reading *r);
};

/* Tables [DEV_ISAS] by the instruction set or kind of device; one without an entry takes the entry below, and
 * [DEV_REF], the scalar reference, is in each.  Those that codecs share: */
extern const struct kv_reader *const kv_read_in_place[DEV_ISAS];
/* Of tiles as affine.h says; codec->param is their struct kv_affine. */
extern const struct kv_reader *const kv_read_affine[DEV_ISAS];
/* Of tiles as coded.h says; codec->param is their struct kv_coded. */
extern const struct kv_reader *const kv_read_coded[DEV_ISAS];
/* Of tiles as float8.h says. */
extern const struct kv_reader *const kv_read_float8[DEV_ISAS];
/* Of any tiles, by codec->decode. */
extern const struct kv_reader *const kv_read_decoded[DEV_ISAS];

/* Finds the reader of a codec for an instruction set; of raw pages if c is NULL. */
struct kv_reading kv_reading(const struct kv_codec *c, const struct kv_shape *s, enum dev_isa isa);
