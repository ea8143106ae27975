/* convert.h - recordings that the library does not read, such as m4a, webm and video: another program decodes them. */
#pragma once
#include "cli/spool.h"

/* --- foreign.c: which formats there are */
struct foreign {
    const char *name;    /* for messages */
    const char *demuxer; /* what ffmpeg calls the format */
    uint8_t at, n;       /* the file has these bytes at this place */
    const char *bytes;
    uint8_t at_more, n_more; /* and these; 0: no others */
    const char *more;
};
/* Returns the format of a file by its bytes; NULL: none of those that another program has to decode. */
const struct foreign *foreign_find(int fd);
#define FOREIGN_HEAD 192
/* True if a recording may begin with these n bytes: of a format of the library, of one of the others, or with less than
 * FOREIGN_HEAD bytes. */
bool foreign_recording(const uint8_t *head, size_t n);

/* --- child.c: a program that reads a descriptor and writes a pipe */
struct child {
    int pid, out, err;
    double last; /* when output came */
    bool first;  /* set by the caller: its first line of errors counts, not the last */
    char said[240], line[240];
    size_t n; /* bytes of `line` */
};
/* Starts a program, without a shell, with `in` as its standard input and a process group of its own.  It may use `seconds` of
 * processor time, 2 GiB of memory, and write files of at most 64 MiB.  Returns 0 or an errno. */
int child_start(struct child *c, const char *program, const char *const *argv, int in,
                uint64_t seconds);
/* Reads what it writes.  Returns the bytes; 0 at the end; -EINTR after Ctrl-C; -ETIMEDOUT if nothing came for a minute. */
int64_t child_read(struct child *c, void *bytes, size_t n);
/* Ends it (stop: at once; else it has ten seconds to end) with all that it has started, and waits for it.  Returns its status,
 * as waitpid does; c->said has what it said last. */
int child_end(struct child *c, bool stop);

/* --- convert.c */
/* Decodes a recording of a foreign format to a file without a name, which becomes *via.  Reads the file *via if there is one,
 * else `path`.  Leaves other recordings alone.  Returns an exit status. */
int convert_take(const char *name, const char *path, struct spool *via);
