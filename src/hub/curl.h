/* curl.h - libcurl, linked or loaded.  A program that is built for many systems (KVIK_CURL_LOAD) loads libcurl when
 * it first needs it.  So the program starts on machines without libcurl, and contains no copy of a TLS library that
 * would grow old. */
#pragma once
#include "base/base.h"

#ifndef KVIK_CURL_LOAD
#include <curl/curl.h>
static inline int curl_load(void)
{
    return 0;
}
#else
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#undef curl_easy_setopt
#undef curl_easy_getinfo

/* clang-format off */
#define CURL_FUNCTIONS(F) \
    F(version) F(free) F(global_init) F(slist_append) F(slist_free_all) F(easy_init) F(easy_cleanup) \
    F(easy_setopt) F(easy_getinfo) F(easy_perform) F(easy_strerror) F(url) F(url_cleanup) F(url_get) F(url_set)
/* clang-format on */
#define POINTER(name) __typeof__(&curl_##name) name;
extern struct curl_functions {
    CURL_FUNCTIONS(POINTER)
} curl_functions; /* NULL before curl_load has succeeded */
#undef POINTER
/* Loads libcurl if it is not loaded yet.  ERR_UNSUPPORTED: libcurl was not found, and the error says what to
 * install. */
int curl_load(void);
#ifndef CURL_LOADS
#define curl_version        curl_functions.version
#define curl_free           curl_functions.free
#define curl_global_init    curl_functions.global_init
#define curl_slist_append   curl_functions.slist_append
#define curl_slist_free_all curl_functions.slist_free_all
#define curl_easy_init      curl_functions.easy_init
#define curl_easy_cleanup   curl_functions.easy_cleanup
#define curl_easy_setopt    curl_functions.easy_setopt
#define curl_easy_getinfo   curl_functions.easy_getinfo
#define curl_easy_perform   curl_functions.easy_perform
#define curl_easy_strerror  curl_functions.easy_strerror
#define curl_url            curl_functions.url
#define curl_url_cleanup    curl_functions.url_cleanup
#define curl_url_get        curl_functions.url_get
#define curl_url_set        curl_functions.url_set
#endif
#endif
