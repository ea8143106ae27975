/* curl.c - loads libcurl, in a build that does not link it. */
#ifdef KVIK_CURL_LOAD
#define CURL_LOADS
#include "hub/curl.h"

#include <dlfcn.h>

struct curl_functions curl_functions;

int curl_load(void)
{
    /* the second name is Debian's name of libcurl with GnuTLS */
    static const char *const file[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    static const char *const name[] = {
#define NAME(name) "curl_" #name,
        CURL_FUNCTIONS(NAME)
#undef NAME
    };
    struct curl_functions found;
    void *library = NULL;
    if (curl_functions.version) return 0;
    for (size_t i = 0; !library && i < countof(file); i++)
        library = dlopen(file[i], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return ERR(UNSUPPORTED, "downloads need libcurl, which is not on this machine: install it "
                                "(Debian: libcurl4 or libcurl3-gnutls)");
    for (size_t i = 0; i < countof(name); i++) {
        void *f = dlsym(library, name[i]);
        if (!f) {
            dlclose(library);
            return ERR(UNSUPPORTED, "the libcurl of this machine is too old: it has no %s",
                       name[i]);
        }
        memcpy((char *)&found + i * sizeof f, &f, sizeof f);
    }
    curl_functions = found; /* the library stays loaded */
    return 0;
}
#endif
