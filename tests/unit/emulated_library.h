/* emulated_library.h - the emulated device (tests/cuda), whose library stands beside a test. */
#pragma once
#include "../cuda/emulated.h"
#include "base/base.h"
#include "dev/cuda/rt.h"
#include "testing.h"

#include <dlfcn.h>

/* Lets models and tests find the library; a test calls it with its argv[0]. */
static inline void emulated_choose(const char *self)
{
    char library[4096];
    const char *slash = strrchr(self, '/');
    snprintf(library, sizeof library, "%.*s/libkvik-cuda-emulated.so",
             slash ? (int)(slash - self) : 1, slash ? self : ".");
    setenv("KVIK_CUDA_LIBRARY", library, 1);
}

/* Returns what it has counted; NULL: the library is that of a GPU. */
static inline struct emulated_counts *emulated_counted(void)
{
    void *library = dlopen(getenv("KVIK_CUDA_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    struct emulated_counts *const *c = library ? dlsym(library, "kvik_emulated_counts") : NULL;
    return c ? *c : NULL;
}

static inline const struct cuda_rt *emulated_rt(void)
{
    void *library = dlopen(getenv("KVIK_CUDA_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    const struct cuda_rt *const *rt = library ? dlsym(library, CUDA_RT_SYMBOL) : NULL;
    assert_non_null(rt);
    return *rt;
}
