/* tiles.h - dot products of bytes by the tile unit of x86-64 (AMX), for blocks of codes as coded.h lays them out: a tile is 16
 * rows of 64 bytes, which is a block of 16 lanes with 16 groups.  Sums are of 32 bits and exact, so they are the same numbers that
 * other kernels find.
 *
 * The system lets a process use tiles only if it asks for them, since they make the frames of signals larger; tiles_here asks once,
 * and says no if the environment has KVIK_AMX=0.  A thread configures its tiles with the first product and gives them back with
 * tiles_rest, so that a switch of threads does not have to save them. */
#pragma once
#include "base/base.h"

#define TILES_QUERIES 16u /* of one call, at most */
#define TILES_FEW     5u  /* fewer queries are faster without tiles */

bool tiles_here(void);
/* Computes sum[i * 128 + 16 * b + lane] for 16 queries, whose codes of 64 * k dims lie `apart` bytes apart, with
 * `blocks` blocks of keys.  Fewer queries need room for 16 (attn.c); the sums of the missing ones mean nothing. */
void tiles_keys(const unsigned char *x, size_t step, uint32_t blocks, uint32_t k,
                const unsigned char *codes, size_t apart, int32_t *sum);
/* Computes low[i * 64 + 16 * b + lane] and high[...] from the low and the high bytes of the weights of 16 queries,
 * [16][2][128], with at most 4 blocks of values of 128 rows. */
void tiles_values(const unsigned char *x, size_t step, uint32_t nb, const unsigned char *w,
                  int32_t *low, int32_t *high);
void tiles_rest(void);
/* Keeps the tile unit awake by a product that nobody needs.  The unit falls asleep after about a thousand cycles
 * without a product and takes 700 to wake, as long as the products of 16 queries with 128 rows.  So a thread that
 * will soon multiply calls this every few hundred cycles. */
void tiles_awake(void);
/* For tests: hides the tiles. */
extern bool tiles_hidden;
