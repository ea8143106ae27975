/* sound.h - a recording that comes through a pipe, as its bytes come. */
#pragma once
#include "cli/backlog.h"
#include "cli/cli.h"

#include <sys/types.h>

enum { SOUND_HEAD = 1 << 16 };
struct sound {
    int fd;                  /* -1: the recording does not come through a pipe */
    bool owned;              /* sound_close closes the descriptor */
    const char *name;        /* for messages */
    int failed;              /* errno of a read that has failed, or 0 */
    bool cut;                /* Ctrl-C has ended the recording */
    struct backlog *backlog; /* owned */
    uint64_t n;              /* bytes that were read */
    uint8_t *head;           /* owned [SOUND_HEAD]: the first bytes */
};
/* Opens a recording that is a FIFO or standard input (name "-", standard_input), and ignores all others.  Does not
 * wait for a writer.  Returns an exit status. */
int sound_open(const char *name, bool standard_input, struct sound *out);
void sound_close(struct sound *s);
/* Reads bytes like a kvik_on_sound.  The first Ctrl-C ends the recording after the bytes so far: KVIK_CANCELLED if
 * there are none. */
int64_t sound_read(struct sound *s, void *bytes, size_t n);
