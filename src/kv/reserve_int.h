/* reserve_int.h - inside the store: what slots hold beside their contents: pages that a reserve promises (reserve.c), those
 * that marks need (family.c), and the metadata that each slot is charged for (metadata.c). */
#pragma once
#include "kv/pages_int.h"

struct slot;

/* reserve.c */
/* Returns how many pages of form i % FORMS of group i / FORMS the slot's reserve must hold.  With them neither
 * growing nor ending the slot's marks takes a page from the pool. */
uint32_t reserve_need(const struct kv *kv, uint32_t slot, uint32_t i);
/* Contents that a slot with marks has, or gets back by a rollback.  foreign: other slots own or mark these contents,
 * too. */
struct member {
    const struct seq *s;
    uint32_t mine, own, lead, from; /* scratch of family.c */
    bool foreign;
};
/* Contents of one slot: member 0 has the slot, and marks remember the others. */
struct family {
    struct member *of;
    uint32_t n, reserve; /* reserve: the most rows that a mark promises */
};
/* What reserve_need_as has to know of the slot. */
struct reserve_for {
    uint32_t reserve; /* rows promised to the slot */
    bool marked;
    const struct family *family; /* a page that only these contents hold counts as the slot's own */
};
/* As reserve_need, for a slot that owns s and grows from `len` rows on. */
uint32_t reserve_need_as(const struct kv *kv, const struct seq *s, uint32_t gi, uint32_t form,
                         uint32_t len, const struct reserve_for *r);
/* Gives back the pages that the slot's reserve does not need, and takes those that it lacks.
 * Charges the slot for its metadata.  ERR_FULL if the budget has no room; then nothing is taken. */
int reserve_fill(struct kv *kv, uint32_t slot, const char *what);
/* As reserve_fill, and in the same attempt makes room for the metadata of slot `beside` and charges that slot. */
int reserve_fill_beside(struct kv *kv, uint32_t slot, uint32_t beside, const char *what);
/* Does what reserve_fill does, and begins to stream if that makes the room. */
int reserve_make(struct kv *kv, uint32_t slot, const char *what);
/* Charges the slot for what it has, and fills its reserve, after an operation that made room for both.  Only a
 * failing tier can prevent this.  Then the reserve gets what the budget has room for, and the next call that takes
 * pages tries again first. */
void reserve_refill(struct kv *kv, uint32_t slot);
int reserve_fill_all(struct kv *kv, const char *what);
/* Fills the reserves that lack pages because the tier failed or a mark was rolled back. */
int reserve_settle(struct kv *kv);
/* Gives back the pages that the reserve does not need. */
void reserve_spare(struct kv *kv, uint32_t slot);
/* Returns the bytes that the slot's reserve lacks (negative: can spare) once its sequence is cut to `len`.  gain_cut
 * has just counted the pages of that cut, which go to the reserve.  The reserve of a marked sequence spares nothing,
 * because a rollback may need it. */
ptrdiff_t reserve_short(const struct kv *kv, uint32_t slot, uint32_t len);

/* family.c: what a slot with marks needs */
/* True if only the family holds page `id`, which is in cell i. */
bool family_alone(const struct kv *kv, const struct family *f, uint32_t gi, uint32_t form,
                  uint32_t i, uint32_t id);
/* Returns the pages that a marked slot's reserve needs so that it lacks none after its marks end, if its own
 * contents are cut to `len` now.  0 for pages that may leave memory: writing others to the tier makes room for them. */
uint32_t family_need(const struct kv *kv, uint32_t slot, uint32_t gi, uint32_t form, uint32_t len);

/* metadata.c */
/* Ids that each contents need beside one for each cell of a table.  A copied block has two ids until the step ends, and
 * a reserve has ids for copies. */
#define KV_SPARE_IDS 3u
/* Returns the bytes of the record of one page.  moves: with the page's places in the queue and in the staging plan. */
size_t meta_record(bool moves);
/* Returns the bytes of tokens, turns, keys, tables, snapshots and page records of contents of `rows` rows, rounded up. */
size_t meta_unit(const struct kv *kv, uint32_t rows);
/* Returns the bytes that contents without a slot are charged. */
size_t meta_alone(const struct kv *kv, const struct seq *s);
/* Returns how many bytes the slot's charge grows by if its contents get `rows` rows. */
ptrdiff_t meta_change(const struct kv *kv, uint32_t slot, uint32_t rows);
/* Returns the bytes that the slot's charge lacks for what the slot has. */
size_t meta_lacks(const struct kv *kv, uint32_t slot);
/* Raises the slot's charge for a step that ends at `rows` rows; the caller has made room. */
void meta_grow(struct kv *kv, uint32_t slot, uint32_t rows);
/* Charges the slot for exactly what it has.  The caller has made room if meta_lacks is not 0. */
void meta_settle(struct kv *kv, uint32_t slot);
/* Charges the marks of a slot that is being dropped, each for its own contents. */
void meta_orphan(struct kv *kv, struct slot *slot);
/* Recounts the charges for kv_check. */
bool meta_check(const struct kv *kv);
