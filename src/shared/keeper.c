/* keeper.c - opens what an address names. */
#include "shared/keeper.h"
#include "shared/link.h"

int keeper_open(const struct address *a, const atomic_bool *stop, struct keeper **out)
{
    if (a->tls && !link_has_tls())
        return ERR(UNSUPPORTED,
                   "%s: this build has no TLS: install libgnutls28-dev and build again", a->shown);
    return a->redis ? redis_open(a, stop, out) : keeper_files_open(a, out);
}
