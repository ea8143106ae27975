/* backlog.h - what comes through a pipe, read by a thread of its own while the program computes. */
#pragma once
#include "base/base.h"

struct backlog;
/* Begins to read a descriptor, which the caller closes after backlog_close.  Returns an error code. */
int backlog_open(int fd, struct backlog **out);
void backlog_close(struct backlog *b);
/* Returns at most n bytes, in their order, and waits for the first of them; 0: the end.  -EINTR: Ctrl-C has come, before this
 * call or in it, and there may be bytes.  Less: a read has failed with that errno. */
int64_t backlog_read(struct backlog *b, void *bytes, size_t n);
/* Ends the reading where it is, if that was not done, and returns as backlog_read, but only what is there: 0 if that is all. */
int64_t backlog_rest(struct backlog *b, void *bytes, size_t n);
