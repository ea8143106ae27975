/* spool.h - recordings that come through a pipe. */
#pragma once
#include "cli/cli.h"

/* A recording as a file that can be read twice.  Zeros: none. */
struct spool {
    int fd;        /* owned; 0: the recording is a file of its own */
    char path[40]; /* that opens the descriptor */
};
/* Copies standard input (name "-", standard_input) or a FIFO to a file without a name in $TMPDIR or /var/tmp; other names are left
 * alone.  Waits for a writer and for the end.  Returns an exit status: EXIT_INTERRUPTED after Ctrl-C. */
int spool_take(const char *name, bool standard_input, struct spool *out);
void spool_drop(struct spool *s);
