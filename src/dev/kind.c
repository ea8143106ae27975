/* kind.c - the kinds of device that this program has, and which of them dev_open opens. */
#include "base/built.h"
#include "dev/dev.h"

#include <stdlib.h>
#include <string.h>

extern const struct dev_kind *const __start_kvik_dev[] __attribute__((visibility("hidden")));
extern const struct dev_kind *const __stop_kvik_dev[] __attribute__((visibility("hidden")));

int dev_open(const char *name, struct dev **out)
{
    const char *given = name;
    if (!given) name = getenv("KVIK_DEVICE");
    if (!name || !*name) name = "cpu";
    for (const struct dev_kind *const *k = __start_kvik_dev; k < __stop_kvik_dev; k++)
        if (strcmp((*k)->name, name) == 0) return (*k)->open(out);
    return ERR(UNSUPPORTED, "there is no device '%.40s'%s; it can be cpu or cuda", name,
               given ? "" : " ($KVIK_DEVICE)");
}

static int names(struct buf *b)
{
    for (const struct dev_kind *const *k = __start_kvik_dev; k < __stop_kvik_dev; k++)
        TRY(buf_printf(b, "%s%s", k > __start_kvik_dev ? ", " : "", (*k)->name));
    return 0;
}
BUILT(kinds, BUILT_DEVICES, names);
