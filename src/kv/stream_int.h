/* stream_int.h - inside the store: pages that leave memory for the tier (spill.c), and how a step reads them then (stage.c,
 * spill_map.c). */
#pragma once
#include "kv/pages_int.h"
#include "kv/tier.h"

struct kv_step;

/* Rows of a site that one view shows together.  The rows' spilled pages, all of one form, are staged. */
struct piece {
    uint32_t form;
    uint32_t row0, row1;
    uint32_t first; /* index in group.staged of the piece's first page */
};
/* One half of the staging area, and the piece that is read into it. */
struct load {
    unsigned char *mem;
    uint32_t site, piece; /* KV_NONE: nothing */
    uint32_t at, end;     /* range of group.staged whose reads have not started */
    uint32_t n_io;        /* transfers in flight */
    double begun;         /* time at which these transfers began, for a trace */
    struct kv_io *io;     /* [KV_TIER_DEPTH] */
};
/* The state of a store whose pages may leave memory. */
struct stream {
    struct kv_tier *tier;     /* owned; NULL: no page ever leaves memory */
    unsigned char *arena;     /* owned: all ranges, then the staging area */
    size_t arena_bytes, half; /* half: bytes of half the staging area */
    bool active;              /* true if pages leave when a step needs their room */
    bool on_full;             /* streaming becomes active only once the budget is short */
    bool began;               /* true once a page has left */
    uint32_t since, lanes;    /* for kv_usage and kv_step_lanes */
    /* [n_sites] sites as steps visit them; where each site is in that order */
    uint32_t *order, *rank;
    struct load load[2];
    /* Distance from a page in the arena to the same page in the mapping of the tier, a multiple of every grain
     * that moves; 0: no mapping.  arena_all: bytes of the reservation, with the mapping. */
    size_t window, arena_all;
    uint32_t direct;   /* the site whose spilled pages are read in the mapping; KV_NONE: none */
    bool cold, missed; /* a page was not ready: in this step or the one before; in this step */
    /* passed: number of sites that the steps before this one have read.  ahead: number of the first site whose pages were
     * not asked for yet, counted over all steps in the same way. */
    uint64_t passed, ahead;
    /* bytes of pages in the tier only; bytes in the tier that nobody needs */
    size_t spilled, stale;
    size_t queued; /* bytes of the pages in queues */
    size_t doomed; /* bytes of queued pages that the present eviction plan frees */
    uint64_t bytes_read, bytes_written;
};

/* spill.c: pages that leave memory */
int spill_arrays(struct kv *kv, const struct kv_config *c);
/* Returns the bytes that could leave memory beside those that the present eviction plan frees; 0 while a step is
 * open. */
size_t spill_can(const struct kv *kv);
/* Moves that many bytes to the tier, the highest rows first.  No step may be open. */
int spill_out(struct kv *kv, size_t bytes);
/* Brings a page back into memory, because it will be written. */
int spill_back(struct kv *kv, struct pages *p, uint32_t id);
/* Reads a whole page into the memory of page `to`. */
int spill_copy(struct kv *kv, struct pages *p, uint32_t from, uint32_t to);
/* Reads the page's bytes at every site, [n_sites][grain]. */
int spill_read(struct kv *kv, const struct pages *p, uint32_t id, unsigned char *out);
/* Forgets the tier's copy of a page that is freed. */
void spill_forget(struct kv *kv, struct pages *p, uint32_t id);
/* Begins streaming because the budget is short.  True if it had not begun before. */
bool spill_begin(struct kv *kv);
/* Ends streaming if no page has moved yet. */
void spill_call_off(struct kv *kv);

/* stage.c: how a step reads pages that left memory */
bool form_moves(const struct group *g, uint32_t form);
/* Sizes the staging area. */
int stage_room(struct kv *kv, const struct kv_config *c);
int stage_arrays(struct kv *kv);
int stage_open(struct kv *kv, const struct kv_config *c);
/* Plans the pieces of every group and starts to read the first. */
void stage_plan(struct kv_step *st);
/* Fills in the rows and tables of a site's k-th piece. */
int stage_show(struct kv_step *st, uint32_t site, uint32_t k, struct kv_view *v);
/* Waits for the reads in flight. */
void stage_end(struct kv *kv);

/* spill_map.c: returns the distance behind the arena at which a mapping of the tier may begin; 0: there can be none. */
size_t window_distance(const struct kv *kv, const struct kv_tier *tier);
/* Maps the tier, if that is possible; without a mapping all pages are staged. */
void window_open(struct kv *kv, struct kv_tier *tier);
/* Begins a step with spilled pages.  Returns true if its first pages are expected to be ready. */
bool window_step(struct kv *kv);
/* Finds out if the spilled pages of a site can be read in place, and sets stream.direct. */
void window_look(struct kv *kv, uint32_t site);
