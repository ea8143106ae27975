/* pages_int.h - inside the store: pages, that is ids, references and memory (pool.c), and the order in which pages may leave
 * memory (queue.c). */
#pragma once
#include "kv/kv.h"

struct group;
struct kv;
struct seq;

enum { RAW, SEALED, FORMS };

#define KV_RUN  16u /* ids of an aligned run: 256 rows of 16-row blocks */
#define KV_NONE UINT32_MAX

struct page {
    uint32_t refs;   /* table cells, snapshots and step entries that name the page */
    uint32_t stage;  /* index in the staged pages of the piece that is shown (stage.c) */
    uint8_t spilled; /* its contents are in the tier only */
    bool picked;     /* scratch of spill.c, else false */
};
struct id_run {          /* ids [16k, 16k+16) */
    uint32_t prev, next; /* in the list of runs with the same number of free ids */
    uint16_t free, backed;
    uint16_t stale; /* ids whose bytes in the tier nobody needs any more */
    uint16_t bare;  /* ids whose memory, or some of it, was given back */
};
/* Where a page stands in the queue of its form (queue.c). */
struct queue_place {
    /* 1 + the cell of the page, which is the same in every table; 0: the page cannot leave memory */
    uint32_t cell;
    uint32_t tails;      /* number of idle contents that have the page in their tail */
    uint32_t stays;      /* number of reserves and plans that need the page in memory */
    uint32_t key;        /* the list that the page is in; 0: none */
    uint32_t prev, next; /* ring of the pages of that list */
};
/* The pages of a form that may leave memory, as lists.  Pages of the list with the highest number leave first. */
struct queue {
    struct queue_place *at; /* [n_ids]; NULL: no page of the form ever leaves */
    uint32_t *head;         /* [2 * cells + 1] first page of each list; 0: the list is empty */
    uint32_t cells;
    uint32_t top;    /* no list with a higher number has pages */
    uint32_t first;  /* pages of lower cells stay in memory */
    uint32_t picked; /* scratch of spill.c: chain of pages that are about to leave */
};
/* The pages of one group in one form.  Page p of the group's i-th site lies at base + i * span + p
 * * grain.  An id is taken and given back for all sites at once. */
struct pages {
    struct dev *dev;           /* pages lie in its memory */
    unsigned char *base;       /* a range of n_sites * span bytes */
    bool mapped;               /* the range is a mapping of its own; else it lies in the arena */
    size_t span, grain, bytes; /* bytes: grain * n_sites, the cost of one id */
    uint32_t n_sites, n_ids, n_runs;
    /* ids for the pages of sequences; the ids behind them are for pages of kept contents */
    uint32_t n_own;
    uint32_t index;    /* group * FORMS + form */
    uint32_t n_live;   /* ids that have references or are promised to reserves */
    uint32_t fresh;    /* number of the first run that was never used */
    uint32_t usable;   /* number of runs that are readable and writable */
    size_t huge;       /* bytes of a site up to which memory was considered for huge pages */
    uint32_t hand;     /* run at which the next release of memory begins */
    uint32_t n_backed; /* free ids that still hold memory */
    uint32_t n_promised;
    uint32_t freed; /* scratch of gain_cut and reserve_short: pages that a cut frees */
    uint32_t n_spilled, n_stale;
    struct queue queue;
    uint32_t list[KV_RUN + 1];
    bool state;
    struct page *page;  /* [n_ids] */
    struct id_run *run; /* [n_runs] */
    uint32_t *seen;     /* [n_ids] scratch of kv_check and of the eviction plan; 0 between calls */
};
/* The pages of one group and form that are promised to the reserve of a slot.  Only a step decides which pages these
 * are. */
struct stash {
    uint32_t n;    /* pages that the slot may still take */
    uint32_t lent; /* pages that the open step has taken from n */
};

/* pool.c */
/* Computes the sizes of p, whose `dev` is set.  *total: bytes of address space. */
int pages_size(struct pages *p, uint32_t n_ids, size_t grain, uint32_t n_sites, size_t *total);
/* Reserves address space of a device without memory; NULL if the system refuses. */
void *pool_reserve(struct dev *dev, size_t bytes);
/* Opens the pages at `at`, a reserved range of addresses.  With NULL it reserves a range of the device. */
int pages_open(struct pages *p, void *at);
void pages_close(struct pages *p);
/* Takes a page with one reference for cell `index` of a table: page `after` + 1 if that page is free, else the
 * index-th of a free run, else any.  0 if the system has no memory for a page.  The caller has checked the
 * budget. */
uint32_t pages_take(struct kv *kv, struct pages *p, uint32_t after, uint32_t index);
/* Returns the error of a take that got no page. */
int no_page(const struct pages *p);
void page_ref(struct kv *kv, struct pages *p, uint32_t id);
void page_unref(struct kv *kv, struct pages *p, uint32_t id);
/* Promises the slot n pages of the form.  -1: the system refuses the memory; the caller has checked
 * the budget.  Cannot fail if n is not more than before. */
int pages_promise(struct kv *kv, struct pages *p, uint32_t slot, uint32_t n);
/* Takes a page as pages_take does, from the slot's promised pages if it has any. */
uint32_t stash_take(struct kv *kv, struct pages *p, uint32_t slot, uint32_t after, uint32_t index);
/* Ends what the open step has taken from the slot's reserve.  undo: the pages are free again, and
 * promised again. */
void stash_end(struct kv *kv, uint32_t slot, bool undo);
/* Makes the pages of a form smaller; the device must be the host.  The caller has moved the contents to the new
 * addresses.  Memory behind the last page that was ever used is returned. */
void pages_regrain(struct kv *kv, struct pages *p, size_t grain);
/* Returns memory of free pages to the system while it exceeds the budget. */
void pool_trim(struct kv *kv);
void page_leaves_memory(struct kv *kv, struct pages *p, uint32_t id);
/* Gets memory for a page that was in the tier.  Returns -1 if the system has none. */
int page_comes_back(struct kv *kv, struct pages *p, uint32_t id);
static inline unsigned char *page_at(const struct pages *p, uint32_t site, uint32_t id)
{
    return p->base + site * p->span + id * p->grain;
}

/* queue.c: which pages may leave memory */
int queue_open(struct kv *kv, struct group *g, uint32_t form);
/* Moves a page to its list after a change of its references, or of where its contents are. */
void queue_update(struct kv *kv, struct pages *p, uint32_t id);
/* Notes the cell for which a page was taken.  Every table that names the page does so in that cell. */
void queue_place(struct kv *kv, struct pages *p, uint32_t id, uint32_t cell);
/* Finds the page that leaves next, and returns its form; NULL: none may leave. */
struct pages *queue_next(const struct kv *kv, uint32_t *id);
/* Counts the tail of s for each of its pages, or takes these counts back.  Between the two calls, length and cells
 * must not change.  The tail of a sequence in the open step is not counted. */
void tail_add(struct kv *kv, struct seq *s);
void tail_drop(struct kv *kv, struct seq *s);
/* Decides anew whether the tail of s must stay in memory, after a change of its owners or of a reserve. */
void tail_settle(struct kv *kv, struct seq *s);
/* Pins or unpins pages of s in memory: the pages that a step after `len` rows continues from, and the pages of later
 * rows.  whole: all pages of s, also those of frozen groups. */
void pin_from(struct kv *kv, const struct seq *s, uint32_t len, bool whole, bool pin);
/* Checks the queues for kv_check. */
bool queue_check(const struct kv *kv);
