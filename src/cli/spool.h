/* spool.h - recordings that come through a pipe, as files. */
#pragma once
#include "cli/sound.h"

/* A recording as a file that can be read twice.  Zeros: none. */
struct spool {
    int fd;        /* owned; 0: the recording is a file of its own */
    char path[40]; /* that opens the descriptor */
};
/* Takes a recording that is standard input as a file, if it is one.  Returns false if it comes through a pipe. */
bool spool_redirected(struct spool *out);
/* Copies a recording, of which at most SOUND_HEAD bytes were read, to a file without a name in $TMPDIR or /var/tmp.  Waits for
 * its end.  Returns an exit status: EXIT_INTERRUPTED after Ctrl-C. */
int spool_fill(struct sound *from, struct spool *out);
/* Makes a file without a name in *dir, which is $TMPDIR or /var/tmp.  -1: errno says why. */
int spool_make(const char **dir);
/* Writes n bytes at the end of a file that has `size` bytes; false if that fails, and errno says why. */
bool spool_append(int to, uint64_t size, const uint8_t *bytes, size_t n);
/* Gives a descriptor to a spool. */
void spool_use(int fd, struct spool *out);
void spool_drop(struct spool *s);
