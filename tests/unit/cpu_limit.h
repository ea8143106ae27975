/* cpu_limit.h - ends a test program that computes for too long.  Tests of hostile input choose sizes that take
 * minutes without a limit, or if time grows with the square.  The limit is CPU time of the whole program, so a
 * busy machine does not matter. */
#pragma once
#include <sys/resource.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                               \
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { CPU_FACTOR = 5 };
#else
enum { CPU_FACTOR = 1 };
#endif

/* From now on the kernel ends the process with SIGXCPU after so many seconds of CPU time, or five
 * times as many with a sanitizer. */
static inline void cpu_limit(rlim_t seconds)
{
    seconds *= CPU_FACTOR;
    setrlimit(RLIMIT_CPU, &(struct rlimit){seconds, seconds});
}
