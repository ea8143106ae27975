/* web.h - requests to the hub, by libcurl.  A token goes to the host and port of the hub alone, also behind redirections. */
#pragma once
#include "base/buf.h"
#include "hub/response.h"

struct web;
/* home, name (which errors name) and watch are borrowed until web_close.  ERR_UNSUPPORTED in a build without libcurl. */
int web_open(const struct hub_home *home, const struct hub_name *name,
             const struct hub_watch *watch, struct web **out);
void web_close(struct web *w);
/* Makes an error of an answer whose status is no success. */
int web_refuse(const struct web *w, const struct response *a);

/* The receiver of a file's contents.  begins: called after the headers, before the first byte.  If one of the two
 * functions returns an error, the request ends. */
struct web_sink {
    void *ctx;
    int (*begins)(void *ctx, const struct response *a);
    int (*takes)(void *ctx, const char *data, size_t n);
};
/* Tries once to get a file from byte `from` on.  Returns 1 if the server has sent all that it announced, or a status
 * that is no success; 0 if the connection failed in a way that another try may mend (err_last has the reason); an
 * error of the sink; ERR_CANCELLED if the watch stops; or another error if another try would fail in the same way. */
int web_try(struct web *w, const char *url, uint64_t from, const struct web_sink *sink,
            struct response *a);
/* Gets a text of at most `most` bytes.  Tries again while that may help.  Returns 0 for every answer that came, so
 * the caller checks its status. */
int web_text(struct web *w, const char *url, size_t most, struct buf *out, struct response *a);
/* Waits before the next try; `tries` counts those that were made.  The answer may say how long to wait.  Returns 1
 * to try again, 0 if there were too many tries or the wait is too long, or ERR_CANCELLED. */
int web_wait(struct web *w, const struct response *a, unsigned tries);
/* Appends a part of a URL in which all but letters, digits and "-_.~" is written as %XX; slashes stay if `path`. */
int web_quote(struct buf *b, const char *s, bool path);
