/* convert.h - recordings in formats that the library does not read, such as m4a, webm and video, which another
 * program decodes. */
#pragma once
#include "cli/spool.h"

/* --- foreign.c: the known formats */
struct foreign {
    const char *name;    /* for messages */
    const char *demuxer; /* name of the format in ffmpeg */
    uint8_t at, n;       /* a file of this format has these bytes at byte `at` */
    const char *bytes;
    uint8_t at_more, n_more; /* and has `more` at byte `at_more`; n_more 0: nothing more */
    const char *more;
};
/* Returns the format of a file by its first bytes.  NULL: none that another program has to decode. */
const struct foreign *foreign_find(int fd);
#define FOREIGN_HEAD 192
/* True if these n bytes may begin a recording: in a format of the library, in a foreign format, or if they are
 * fewer than FOREIGN_HEAD. */
bool foreign_recording(const uint8_t *head, size_t n);

/* --- child.c: a program that reads a descriptor and writes a pipe */
struct child {
    int pid, out, err;
    double last; /* time of the last output */
    bool first;  /* set by the caller: c->said keeps the first line of errors; else the last */
    char said[240], line[240];
    size_t n; /* bytes of `line` */
};
/* Starts a program without a shell, with `in` as its standard input and in a process group of its own.  It may use
 * `seconds` of processor time and 2 GiB of memory, and write files of at most 64 MiB.  Returns 0 or an errno. */
int child_start(struct child *c, const char *program, const char *const *argv, int in,
                uint64_t seconds);
/* Reads the output of the program.  Returns the number of bytes; 0 at the end; -EINTR after Ctrl-C; -ETIMEDOUT if
 * there was no output for a minute. */
int64_t child_read(struct child *c, void *bytes, size_t n);
/* Ends the program and all that it has started, and waits for it.  stop: at once; else it may first take ten
 * seconds to end by itself.  Returns its status like waitpid.  c->said has its last line of errors. */
int child_end(struct child *c, bool stop);

/* --- convert.c */
/* Decodes a recording in a foreign format into a file without a name, which becomes *via.  Reads *via if that is a
 * file already, else `path`.  Other recordings are left alone.  Returns an exit status. */
int convert_take(const char *name, const char *path, struct spool *via);
