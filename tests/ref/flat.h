/* flat.h - the slow, obvious version of what the store computes. Which rows a query sees, and which
 * of them are sealed; where a value lies in a raw block; the bytes of a row that has a given name. */
#pragma once
#include "kv/kv.h"

/* Returns value i (head * dim + d) of plane `plane` at site `site` of the row with this name. */
uint32_t flat_value(uint64_t name, uint32_t site, uint32_t plane, uint32_t i);
/* Returns the byte offset of a value in one plane of a raw block of `rows` rows. */
size_t flat_offset(const struct kv_shape *s, uint32_t rows, uint32_t head, uint32_t r, uint32_t d);
bool flat_sees(const struct kv_policy *p, uint32_t pos, uint32_t j);
/* Returns the number of rows sealed for a query at pos whose update starts at row `start`.
 * first[j]: the first row of row j's update. */
uint32_t flat_edge(const struct kv_group *g, const uint32_t *first, uint32_t start, uint32_t pos);
/* Writes the row with this name to raw row dst (a view's), or to the state page dst. */
void flat_put_row(const struct kv_view *v, uint32_t site, uint32_t dst, uint64_t name);
/* Tiles of 16, 32, 64, 1, 2, 4 and 8 rows: bytes inverted, rows reversed, leading rows overwritten. */
extern const struct kv_codec flat_codec[8];
/* Two ways to keep tiles of 16, 64 and 128 rows, without loss, in half of the bytes and in few: the rows are in memory that
 * the test gives back at its end. */
extern const struct kv_codec flat_ledger[2][3];
void flat_ledger_close(void);
