/* built.h - what was built into this program.  A part registers itself with one line, and kvik --version prints all. */
#pragma once
#include "base/buf.h"

enum built_kind {
    BUILT_KERNELS, /* instruction sets */
    BUILT_DEVICES,
    BUILT_LIBRARIES, /* libraries that a build may lack */
    BUILT_KINDS
};
struct built {
    enum built_kind kind;
    int (*names)(struct buf *b); /* appends the names of the parts, with ", " between them */
};
#define BUILT(ident, kind, names)                                                                  \
    static const struct built built_##ident = {kind, names};                                       \
    static const struct built *const built_at_##ident                                              \
        __attribute__((used, section("kvik_built"))) = &built_##ident

/* Appends the names of all parts of a kind, with ", " between them. */
int built_names(enum built_kind kind, struct buf *b);
