/* multipart.h - the parts of a multipart/form-data body (RFC 7578), read strictly. */
#pragma once
#include "base/base.h"

enum {
    MULTIPART_PARTS = 64,       /* of a body */
    MULTIPART_NAME = 64,        /* bytes of a name, its NUL included */
    MULTIPART_HEADERS = 8 << 10 /* bytes of the headers of a part */
};
struct form_part {
    char name[MULTIPART_NAME];
    const char *file; /* [n_file] borrowed: the file name as it was sent, or NULL */
    size_t n_file;
    const char *data; /* [n] borrowed */
    size_t n;
};
/* Reads the n parts of body[0, size), whose type is the Content-Type of the request (NULL: none was sent).  The parts point
 * into the body.  ERR_FORMAT or ERR_LIMIT with a sentence that says what is wrong. */
int multipart_read(const char *type, const char *body, size_t size,
                   struct form_part part[MULTIPART_PARTS], uint32_t *n);
/* Returns the part with this name, or NULL. */
const struct form_part *multipart_find(const struct form_part *part, uint32_t n, const char *name);
