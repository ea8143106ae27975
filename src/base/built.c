/* built.c - the list of the parts that have registered themselves. */
#include "base/built.h"

/* Bounds of the section; weak, so that a program without parts links. */
extern const struct built *const __start_kvik_built[] __attribute__((weak, visibility("hidden")));
extern const struct built *const __stop_kvik_built[] __attribute__((weak, visibility("hidden")));

int built_names(enum built_kind kind, struct buf *b)
{
    size_t before = b->len;
    for (const struct built *const *p = __start_kvik_built; p < __stop_kvik_built; p++) {
        if ((*p)->kind != kind) continue;
        if (b->len > before) TRY(buf_puts(b, ", "));
        TRY((*p)->names(b));
    }
    return 0;
}
