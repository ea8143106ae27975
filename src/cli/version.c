/* version.c - kvik --version: the version, and what was built in. */
#include "base/built.h"
#include "cli/cli.h"

#include <string.h>

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown"
#endif
/* The Makefile defines it where the commit is known. */
#ifndef KVIK_COMMIT
#define KVIK_COMMIT "unknown"
#endif

/* Libraries that a build may lack, and what is missing then. */
static const struct {
    const char *name, *gives;
} optional[] = {
    {"liburing", "threads serve the spill file"},
    {"libsndfile", "no recordings are read"},
    {"libevent", "no kvik serve"},
    {"libcurl", "kvik pull downloads nothing"},
    {"hiredis", "no prompts are shared in a Redis"},
    {"libzmq", "kvik serve publishes no events"},
    {"GnuTLS", "a Redis is not reached over TLS"},
};

int print_version(FILE *to)
{
    static const char *const title[BUILT_KINDS] = {"kernels", "devices", "libraries"};
    struct buf b;
    int e = 0;
    fprintf(to, "kvik %s\n%-11s%s\n%-11s%s\n", kvik_version(), "commit:", KVIK_COMMIT,
            "compiler:", COMPILER);
    buf_init(&b, 4096);
    for (enum built_kind k = 0; k < BUILT_KINDS && e >= 0; k++) {
        buf_clear(&b);
        if ((e = built_names(k, &b)) < 0) break;
        fprintf(to, "%s:%*s%s\n", title[k], (int)(10 - strlen(title[k])), "",
                b.len ? b.data : "none");
    }
    for (size_t i = 0; i < countof(optional) && e >= 0; i++)
        if (!b.len || !strstr(b.data, optional[i].name))
            fprintf(to, "%-11s%s: %s\n", "without:", optional[i].name, optional[i].gives);
    buf_done(&b);
    return e < 0 ? EXIT_FAILED : 0;
}
