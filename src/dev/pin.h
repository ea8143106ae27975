/* pin.h - memory of the host that copies beside operations (dev_put_begin) name: some devices copy faster where it is pinned. */
#pragma once
#include "dev/dev.h"

/* What a kind of device that pins memory registers with one line; the others need none. */
struct dev_pins {
    const struct dev_kind *kind;
    void (*pin)(struct dev *d, void *host, size_t n, bool on);
};
#define DEV_PINS(ident, ptr)                                                                       \
    const struct dev_pins *const kvik_pins_##ident                                                 \
        __attribute__((section("kvik_pins"), used, visibility("hidden"))) = ptr

/* Memory in pages of the device (dev_page) that begins at a multiple of their size: `on` before the first copy of it, off when
 * none is under way.  One copy may reach over several of them.  A hint: copies of other memory work, too. */
void dev_pin(struct dev *d, void *host, size_t n, bool on);
