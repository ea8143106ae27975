/* base.h - floor 0: error codes, the error sentence of a thread, checked arithmetic, small macros.  Every library
 * function returns 0 (or a count) or a negative ERR_* code.  Its sentence for people is kept for the thread until
 * its next error.  A function that fails leaves its results untouched.  Nothing here prints or exits. */
#pragma once
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ERR_MAP(X)                                                                                 \
    X(NOMEM, -1, "out of memory")                                                                  \
    X(ARG, -2, "invalid argument")                                                                 \
    X(IO, -3, "input/output error")                                                                \
    X(FORMAT, -4, "malformed input")                                                               \
    X(UNSUPPORTED, -5, "not supported")                                                            \
    X(FULL, -6, "cache budget exhausted")                                                          \
    X(LIMIT, -7, "limit exceeded")                                                                 \
    X(BUSY, -8, "busy")                                                                            \
    X(LOST, -9, "rows no longer held")                                                             \
    X(NOTFOUND, -10, "not found")                                                                  \
    X(CANCELLED, -11, "cancelled")                                                                 \
    X(STALE, -12, "stale handle")

enum err_code {
#define ERR_ENUM(n, v, s) ERR_##n = v,
    ERR_MAP(ERR_ENUM)
#undef ERR_ENUM
};

/* Sets the thread's error sentence, cut at 1023 bytes, and returns `code`. */
int err_set(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Puts "fmt: " in front of the error sentence, for context; returns `code`. */
int err_prefix(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *err_last(void);     /* this thread's last message, or ""; valid until its next error */
const char *err_name(int code); /* "NOMEM", ... or "OK" */
/* Returns `code`, and tells the compiler that it is negative: the compiler then sees which results stay unset
 * after an error. */
static inline int err_pass(int code, int same)
{
    (void)same;
    return code;
}
#define ERR(code, ...) err_pass(ERR_##code, err_set(ERR_##code, __VA_ARGS__))
#define TRY(expr)                                                                                  \
    do {                                                                                           \
        int e_ = (expr);                                                                           \
        if (e_ < 0) return e_;                                                                     \
    } while (0) /* only where nothing needs cleanup */

#define countof(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)  ((a) < (b) ? (a) : (b))
#define MAX(a, b)  ((a) > (b) ? (a) : (b))

/* Add or multiply sizes: set *out and return true, or return false on overflow. */
static inline bool ck_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}
static inline bool ck_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* The only allocation functions of the library, so that tests can count calls and make the k-th one fail.
 * Each returns NULL on failure, with the sentence set; the caller returns ERR_NOMEM. */
void *mem_alloc(size_t n);                      /* zeroed */
void *mem_array(size_t n, size_t size);         /* zeroed, overflow checked */
void *mem_grow(void *p, size_t n, size_t size); /* realloc to n*size; old block kept on failure */
void *mem_aligned(size_t n);                    /* zeroed, 64-byte aligned; mem_free */
char *mem_strdup(const char *s);
char *mem_strndup(const char *s, size_t n); /* copies n bytes and adds NUL */
void mem_free(void *p);
uint64_t mem_calls(void); /* allocations this process made with these functions */
/* Returns how many allocations have failed in this thread.  A function that cannot return an error compares the
 * count before and after: if it has grown, its result is incomplete. */
uint64_t mem_failures(void);
void mem_fail_at(int64_t k, bool persistent); /* test hook: the k-th call from now fails; <0 off */

double median_of(
    double *v,
    size_t n); /* sorts v in place; with even n the upper of the two middle values; 0 if n is 0 */
double now_seconds(void); /* monotonic clock; for durations only */
struct timespec;
int64_t nanoseconds(const struct timespec *t);
