/* pin.c - finds the kind of device that pins memory for a device. */
#include "dev/pin.h"

extern const struct dev_pins *const __start_kvik_pins[] __attribute__((visibility("hidden")));
extern const struct dev_pins *const __stop_kvik_pins[] __attribute__((visibility("hidden")));

void dev_pin(struct dev *d, void *host, size_t n, bool on)
{
    for (const struct dev_pins *const *p = __start_kvik_pins; p < __stop_kvik_pins; p++)
        if ((*p)->kind == d->kind) (*p)->pin(d, host, n, on);
}
