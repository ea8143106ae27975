/* guard.h - who may use a handle: the process that opened it, and one thread at a time.
 *
 * A fork copies memory, but neither threads nor files: both processes would write into one spill file, and the child would
 * wait for threads that it does not have.  So every public call enters the guard of its handle first. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct guard {
    pid_t pid; /* the process that opened the handle; 0: memory alone, which a fork has as well */
    atomic_uintptr_t thread; /* whose call uses the handle; 0: none */
    uint32_t depth;          /* calls of that thread, each in a callback of the one before */
};
void guard_init(struct guard *g);
/* True if another process opened the handle, and this one is its child. */
bool guard_foreign(const struct guard *g);
/* Begins a call of this thread; calls nest.  ERR_BUSY for another process, and while another thread is in a call.
 * `what` names the handle in the error: "cache". */
int guard_enter(struct guard *g, const char *what);
/* As guard_enter, without an error text: false where that is an error. */
bool guard_try(struct guard *g);
/* Ends the call.  Returns true for the outermost one: the handle is free again. */
bool guard_leave(struct guard *g);
