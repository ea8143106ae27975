/* guard.h - who may use a handle: the process that opened it, and one thread at a time.  A fork copies memory, but
 * neither threads nor files.  Parent and child would write into one spill file, and the child would wait for
 * threads that it does not have.  So every public call enters the guard of its handle first. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct guard {
    /* process that opened the handle; 0: the handle is memory alone, which a fork copies, so any process may use
     * it */
    pid_t pid;
    atomic_uintptr_t thread; /* the thread whose call uses the handle; 0: none */
    /* nested calls of that thread: each but the first comes from a callback of the one before */
    uint32_t depth;
};
void guard_init(struct guard *g);
/* True if another process opened the handle, and this one is its child. */
bool guard_foreign(const struct guard *g);
/* Begins a call of this thread; calls nest.  ERR_BUSY for another process, and while another thread is in a call.
 * `what` names the handle in the error: "cache". */
int guard_enter(struct guard *g, const char *what);
/* As guard_enter, but returns false instead of an error and sets no sentence. */
bool guard_try(struct guard *g);
/* Ends the call.  Returns true for the outermost one: the handle is free again. */
bool guard_leave(struct guard *g);
