/* guard.c - who may use a handle; see guard.h. */
#include "base/guard.h"
#include "base/base.h"

#include <unistd.h>

static uintptr_t this_thread(void)
{
    static _Thread_local char mine;
    return (uintptr_t)&mine;
}

void guard_init(struct guard *g)
{
    g->pid = getpid();
    g->depth = 0;
    atomic_store(&g->thread, 0);
}

bool guard_foreign(const struct guard *g)
{
    return g->pid && g->pid != getpid();
}

bool guard_try(struct guard *g)
{
    uintptr_t none = 0, me = this_thread();
    if (guard_foreign(g)) return false;
    if (atomic_load_explicit(&g->thread, memory_order_relaxed) != me &&
        !atomic_compare_exchange_strong(&g->thread, &none, me))
        return false;
    g->depth++;
    return true;
}

int guard_enter(struct guard *g, const char *what)
{
    if (guard_try(g)) return 0;
    if (guard_foreign(g))
        return ERR(BUSY,
                   "this %s was opened by process %ld, of which this process is a fork; open what "
                   "the child needs in the child",
                   what, (long)g->pid);
    return ERR(BUSY, "another thread is in a call with this %s; one thread at a time can use it",
               what);
}

bool guard_leave(struct guard *g)
{
    if (--g->depth) return false;
    atomic_store(&g->thread, 0);
    return true;
}
