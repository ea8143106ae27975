/* limit.c - another budget for an open store, so that several stores can share one.
 *
 * Arrays and ranges of addresses are as large as the budget at the opening could fill (store.c), so a later budget is at
 * most that one. */
#include "base/bytes.h"
#include "kv/kv_int.h"

int kv_limit(struct kv *kv, size_t bytes)
{
    char asked[16], most[16];
    size_t was = kv->pool;
    uint32_t tries = 0;
    int e = 0;
    if (kv->step.open) return ERR(BUSY, "the limit of a cache cannot change inside a step");
    if (bytes > kv->pool_most)
        return ERR(LIMIT, "cache: a limit of %s is more than the %s that it was opened with",
                   bytes_text(bytes, asked), bytes_text(kv->pool_most, most));
    kv->pool = bytes;
    while (room_try_encode(kv, &tries, e))
        e = make_room(kv, 0, 0, "what the sequences hold");
    if (e < 0)
        kv->pool = was;
    else if (pool_held(kv) + kv->backed > kv->pool)
        pool_trim(kv);
    return e;
}
