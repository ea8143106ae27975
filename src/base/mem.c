/* mem.c - the only place that allocates: zeroed blocks with overflow checks.  A counter lets tests prove that
 * generating a token allocates nothing; a fault switch makes the k-th call fail. */
#include "base/base.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if __has_include(<valgrind/memcheck.h>) && !defined(__SANITIZE_ADDRESS__)
#include <valgrind/memcheck.h>
#else
#define VALGRIND_MAKE_MEM_DEFINED(p, n) ((void)0)
#endif

static atomic_uint_fast64_t n_calls;
static _Atomic int64_t fail_in = -1; /* calls left before a failure; <0: never */
static atomic_bool fail_forever;

static bool faulty(void)
{
    atomic_fetch_add_explicit(&n_calls, 1, memory_order_relaxed);
    int64_t left = atomic_load_explicit(&fail_in, memory_order_relaxed);
    if (left < 0) return false;
    if (left == 0 && atomic_load(&fail_forever)) return true;
    return atomic_fetch_sub(&fail_in, 1) == 0;
}

static _Thread_local uint64_t n_failures;

static void *checked(void *p, size_t n)
{
    if (!p) n_failures++;
    if (!p) err_set(ERR_NOMEM, "out of memory: cannot allocate %zu bytes", n);
    return p;
}

/* Blocks of this size and above are whole pages, which the system clears when they are touched first.  Short
 * prompts never touch most of a cache's memory; clearing all of it took a third of the time until a model was
 * ready. */
#define LARGE ((size_t)32 << 10)
#define PAGE  ((size_t)4096)

static void *zeroed(size_t n, size_t unit)
{
    void *p = NULL;
    size_t padded;
    if (n >= LARGE) unit = PAGE;
    if (!ck_add(n, unit - 1, &padded)) return checked(NULL, n);
    padded &= ~(unit - 1);
    if (faulty() || posix_memalign(&p, unit, padded ? padded : unit) != 0) return checked(NULL, n);
    if (n >= LARGE && madvise(p, padded, MADV_DONTNEED) == 0) {
        /* valgrind does not know that the pages are zeros */
        (void)VALGRIND_MAKE_MEM_DEFINED(p, padded);
        return p;
    }
    return memset(p, 0, padded);
}

void *mem_alloc(size_t n)
{
    if (n >= LARGE) return zeroed(n, PAGE);
    return checked(faulty() ? NULL : calloc(1, n ? n : 1), n);
}

void *mem_array(size_t n, size_t size)
{
    size_t total;
    if (!ck_mul(n, size, &total)) return checked(NULL, SIZE_MAX);
    return mem_alloc(total);
}

void *mem_grow(void *p, size_t n, size_t size)
{
    size_t total;
    if (!ck_mul(n, size, &total)) return checked(NULL, SIZE_MAX);
    return checked(faulty() ? NULL : realloc(p, total ? total : 1), total);
}

void *mem_aligned(size_t n)
{
    return zeroed(n, 64);
}

char *mem_strndup(const char *s, size_t n)
{
    char *p = n < SIZE_MAX ? mem_alloc(n + 1) : NULL;
    if (p) memcpy(p, s, n);
    return p;
}

char *mem_strdup(const char *s)
{
    return mem_strndup(s, strlen(s));
}

void mem_free(void *p)
{
    free(p);
}

uint64_t mem_calls(void)
{
    return atomic_load_explicit(&n_calls, memory_order_relaxed);
}

uint64_t mem_failures(void)
{
    return n_failures;
}

void mem_fail_at(int64_t k, bool persistent)
{
    atomic_store(&fail_forever, persistent);
    atomic_store(&fail_in, k);
}
