/* spool.h - files that replace recordings from pipes. */
#pragma once
#include "cli/sound.h"

/* A file that can be read twice in place of the recording.  All zeros: none. */
struct spool {
    int fd;        /* owned; 0: the recording itself is a file */
    char path[40]; /* a path that opens the descriptor */
};
/* If standard input is a file, takes it as the recording.  Returns false if the recording comes through a pipe. */
bool spool_redirected(struct spool *out);
/* Copies a recording to a file without a name in $TMPDIR or /var/tmp.  At most SOUND_HEAD bytes of it were read
 * before.  Waits for its end.  Returns an exit status: EXIT_INTERRUPTED after Ctrl-C. */
int spool_fill(struct sound *from, struct spool *out);
/* Makes a file without a name in *dir, which is $TMPDIR or /var/tmp.  -1: errno says why. */
int spool_make(const char **dir);
/* Writes n bytes at the end of a file that has `size` bytes; false if that fails, and errno says why. */
bool spool_append(int to, uint64_t size, const uint8_t *bytes, size_t n);
/* Makes a spool of a descriptor, and takes it over. */
void spool_use(int fd, struct spool *out);
void spool_drop(struct spool *s);
