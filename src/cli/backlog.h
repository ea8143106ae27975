/* backlog.h - reads a pipe on a thread of its own while the program computes. */
#pragma once
#include "base/base.h"

struct backlog;
/* Begins to read a descriptor, which the caller closes after backlog_close.  Returns an error code. */
int backlog_open(int fd, struct backlog **out);
void backlog_close(struct backlog *b);
/* Returns at most n bytes in order, and waits for the first of them; 0 at the end.  -EINTR: Ctrl-C has come,
 * before this call or in it; more bytes may be there.  Other negative numbers: the errno of a failed read. */
int64_t backlog_read(struct backlog *b, void *bytes, size_t n);
/* Stops reading and returns the bytes that are there, like backlog_read; 0 if there are no more. */
int64_t backlog_rest(struct backlog *b, void *bytes, size_t n);
