/* view.h - what a kernel sees of the cache: the only way to read or write a K or V row.
 *
 * The store (kv, floor 3) fills a view; kernels (floor 2) read it, so it is declared here.  A row is one
 * position of one sequence at one site (layer).  Its bytes exist RAW (pages of `rows` rows) and,
 * under a codec, SEALED (tiles of `rows` rows).  Query token t of lane i reads rows
 * [0, min(sinks, lo[t])) and [lo[t], hi[t]); row j is read sealed iff lead <= j < edge[t], else raw.
 * (lo is 0 where the sinks touch the window, so the two ranges never overlap.)
 *
 * Raw layout of a page, per plane, in the plane's dtype:
 *   KV_STRIPS (K)  [head][rows/16][dim][16]   lanes are rows: one vector load is one d of 16 rows
 *   KV_ROWMAJOR (V) [head][rows][dim]         lanes are dims
 *   KV_FLAT (state) heads * dim values, any order the op likes
 * Rows at or past hi, and rows on null pages, hold garbage (NaN included): never let them reach a
 * sum, not even times zero.  Arrays live at fixed addresses; only their contents change per step. */
#pragma once
#include "base/base.h"
#include "base/dtype.h"

#define KV_MAX_PLANES 4u
#define KV_STRIP      16u  /* rows of a K strip */
#define KV_ATOM       256u /* absolute span an attention atom may not cross */

struct kv_codec;
struct kv_reader;
enum kv_layout { KV_STRIPS, KV_ROWMAJOR, KV_FLAT };
struct kv_shape {
    uint32_t heads, dim;
    enum dtype dtype; /* DT_F32, DT_F16 or DT_BF16 */
    enum kv_layout layout;
};
/* How tiles are encoded, for devices that have kernels for it; their bytes are those of `encode`. */
enum kv_encoder {
    KV_BY_CODEC,  /* by `encode` alone */
    KV_BY_COPY,   /* rows as in a raw block */
    KV_BY_RANGE,  /* codes spread over the range of a group (affine.h) */
    KV_BY_LEVEL,  /* levels (coded.h) */
    KV_BY_FLOAT8, /* floats of 8 bits (float8.h) */
};
#define KV_CODEC_TEXT 96u /* bytes of what an instance says of itself, with the final 0 */
/* One instance of a codec.  Encoding is a pure function of the tile's raw rows, `lead` and the parameters. */
struct kv_codec {
    const char *name;
    /* The kind that made the instance and closes it (kv_codec_open); NULL: nothing to close. */
    const struct kv_codec_kind *kind;
    const void *param;
    /* Rows of a tile: 1, 2, 4, 8 or a multiple of 16. */
    uint32_t tile;
    /* At least this many first rows of a sequence stay raw for ever. */
    uint32_t lead;
    /* The order of sums.  True: a decoded tile has exactly the raw bytes, and attention sums sealed and raw rows
     * in one order, so that results equal native ones bit for bit; tile is then a multiple of 16.  False: sealed
     * rows make atoms of their own, before all raw ones, and may be summed by other arithmetic. */
    bool lossless;
    /* Writes, as snprintf does, every parameter that decides a byte of a tile, a decoded value or the order of sums, apart
     * from the name, the tile and the shape.  Tiles of two instances of a name with equal texts mean the same: session
     * files, prefix directories and the prefix index rely on it.  "" if there is no parameter.  Mandatory. */
    int (*describe)(const struct kv_codec *c, char *out, size_t n);
    /* Returns the bytes of one tile of a plane, all heads. */
    size_t (*bytes)(const struct kv_codec *c, const struct kv_shape *s);
    /* Writes one head of a tile to dst, the tile of the plane, whose bytes are 0 before the first head (kv_tile_encode).
     * raw[i] is this head of the i-th raw block of `block_rows` rows; there are tile / block_rows blocks, or one block of
     * which the tile is the part from row `first` on.  The first `lead` rows of this tile (0 for most tiles) stay raw for
     * ever: they take part in no statistic and are never read from dst. */
    void (*encode)(const struct kv_codec *c, const struct kv_shape *s, uint32_t head, void *dst,
                   const void *const *raw, uint32_t block_rows, uint32_t first, uint32_t lead);
    /* Writes one head of a tile to rows [first, first + tile) of dst, one head in the plane's raw layout.  Other
     * rows of dst stay as they are. */
    void (*decode)(const struct kv_codec *c, const struct kv_shape *s, uint32_t head, void *dst,
                   uint32_t first, const void *src);
    /* [DEV_ISAS] how attention reads sealed rows (reader.h); NULL, the default: decoded. */
    const struct kv_reader *const *reader;
    enum kv_encoder encoder; /* 0, the default: KV_BY_CODEC */
};
struct kv_form {
    unsigned char *base; /* page p of this site begins at base + p * grain */
    size_t grain;
    uint32_t rows;   /* per page; 0: the group has no such form */
    uint32_t stride; /* entries of one table row */
    /* [slot][stride] page ids; row j of a lane: table[slot*stride + j/rows] */
    const uint32_t *table;
    size_t offset[KV_MAX_PLANES]; /* of a plane inside a page */
};
/* Arrays of views lie in blocks of n values, in memory of the host.  A device that cannot read them there has the
 * value host[i] at at[i].  The store copies all blocks of a step to the device before the first view of the step. */
struct kv_block {
    const uint32_t *host;
    uint32_t *at;
    size_t n;
};
#define KV_BLOCKS 4u
/* Rows [a, b) of table row `slot`, which another sequence computed.  The tokens of a lane read them too, with
 * queries turned back by `by`: for these queries the rows stand at positions a + by and so on. */
struct kv_borrowed {
    uint32_t slot, a, b;
    int32_t by;
};
struct dev_queue;
struct kv_view {             /* one piece of one site; resident groups have one piece */
    struct dev_queue *queue; /* queue of the store; the pages are memory of its device */
    struct kv_form raw, sealed;
    uint32_t n_planes;
    struct kv_shape shape[KV_MAX_PLANES];        /* k, v | conv, ssm */
    const struct kv_codec *codec[KV_MAX_PLANES]; /* NULL: native */
    /* The rows that this piece covers, in whole atoms.  Under a lossy codec [row0, row1) are read sealed and [raw0,
     * raw1) are read raw, and pieces of sealed rows come first.  Otherwise the two ranges are the same. */
    uint32_t row0, row1, raw0, raw1;
    bool first, last; /* piece of the site; writes and seals happen with the first */
    uint32_t sinks, lead;
    const uint32_t *counts;         /* {lanes, tokens, encodes} of this step */
    const uint32_t *slot;           /* [lane] table row */
    const uint32_t *len;            /* [lane] rows present after this step */
    const uint32_t *lane;           /* [token] */
    const uint32_t *pos;            /* [token] its row */
    const uint32_t *lo, *hi, *edge; /* [token] */
    /* [token] raw row to write: page * rows + row in page; the null page's rows (< rows) swallow writes. State
     * groups: page to write after this token, 0: none */
    const uint32_t *dst;
    /* [encode][2] {lane, tile}: tiles whose last row is written in this step */
    const uint32_t *enc;
    const uint32_t *from; /* [lane] state groups: page to read, 0: zeros */
    /* Borrowed rows, in memory of the host: those of lane i are borrowed[borrowed0[i]] up to borrowed0[i + 1], of which the
     * rows before borrowed_edge are read sealed.  They come before the lane's own rows of their form.  NULL: no lane of the
     * step has any. */
    const uint32_t *borrowed0, *borrowed_edge;
    const struct kv_borrowed *borrowed;
    struct kv_block block[KV_BLOCKS]; /* where the arrays and tables above lie; n 0: unused */
};
