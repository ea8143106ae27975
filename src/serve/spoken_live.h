/* spoken_live.h - reports a call while its text comes: first its name, then its arguments as the model writes them. */
#pragma once
#include "serve/spoken.h"

enum live_at {
    LIVE_NO,        /* the text does not name the function yet */
    LIVE_ARGUMENTS, /* inside the arguments */
    LIVE_TAIL,      /* after the arguments, inside the object around them */
    LIVE_OVER
};
struct live {
    enum live_at at;
    size_t from; /* bytes of the text that were read */
    int depth;
    bool quoted, escaped, wrapped; /* wrapped: an object has the name and the arguments */
};
/* Reads the text of a call, of which body[0..n) has come, and reports what is new.  name: the function if it is
 * known already, else NULL.  known: only functions of the tools count. */
void live_read(struct live *l, const struct spoken_options *o, const char *name, bool known,
               const char *body, size_t n);
/* Ends a call that has begun.  Returns where the text behind the call begins. */
size_t live_end(struct live *l, const struct spoken_options *o, const char *body, size_t n);
