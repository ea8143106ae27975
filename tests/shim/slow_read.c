/* slow_read.c - stands before the C library: reads of files below a directory slow-... wait until the file $KVIK_TEST_GATE exists, as reads
 * of a disk that hangs do.  Makes the file $KVIK_TEST_GATE.reached when one waits. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_slow(int fd)
{
    char link[64], path[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t k = readlink(link, path, sizeof path - 1);
    if (k <= 0) return 0;
    path[k] = 0;
    return strstr(path, "/slow-") != NULL;
}

ssize_t pread(int fd, void *to, size_t bytes, off_t at)
{
    static ssize_t (*next)(int, void *, size_t, off_t);
    const char *gate = getenv("KVIK_TEST_GATE");
    static int tired;
    char reached[512];
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, "pread");
    if (gate && !tired && is_slow(fd) && access(gate, F_OK) < 0) {
        snprintf(reached, sizeof reached, "%s.reached", gate);
        close(open(reached, O_CREAT | O_WRONLY, 0600));
        for (int i = 0; i < 30000 && access(gate, F_OK) < 0; i++) /* at most 300 s */
            usleep(10000);
        if (access(gate, F_OK) < 0) {
            tired = 1;
            snprintf(reached, sizeof reached, "%s.tired", gate);
            close(open(reached, O_CREAT | O_WRONLY, 0600));
        }
    }
    return next(fd, to, bytes, at);
}

ssize_t pread64(int fd, void *to, size_t bytes, off_t at)
{
    return pread(fd, to, bytes, at);
}
