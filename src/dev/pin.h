/* pin.h - pinned memory of the host: some devices copy faster to and from it, beside operations (dev_put_begin). */
#pragma once
#include "dev/dev.h"

/* Registered with one line by a kind of device that pins memory; other kinds register nothing. */
struct dev_pins {
    const struct dev_kind *kind;
    void (*pin)(struct dev *d, void *host, size_t n, bool on);
};
#define DEV_PINS(ident, ptr)                                                                       \
    const struct dev_pins *const kvik_pins_##ident                                                 \
        __attribute__((section("kvik_pins"), used, visibility("hidden"))) = ptr

/* Pins memory, or unpins it.  The memory is whole pages of the device (dev_page).  `on` comes before the first copy,
 * and off when no copy is under way.  One copy may reach over several such ranges.  It is a hint: copies of other
 * memory work, too. */
void dev_pin(struct dev *d, void *host, size_t n, bool on);
