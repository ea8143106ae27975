/* interrupt_at.c - a library to preload: Ctrl-C comes just before one call of the C library, which no test can hit by chance.
 *
 * KVIK_TEST_CALL names the function (read, ppoll, tcgetattr, fflush), KVIK_TEST_NTH which of its calls: 1 for the first one after
 * the file that KVIK_TEST_AFTER names is there.  The file KVIK_TEST_DONE is made when the signal has been raised. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

static void before(const char *name)
{
    static int left = -1;
    static int busy;
    const char *call = getenv("KVIK_TEST_CALL"), *after = getenv("KVIK_TEST_AFTER");
    if (busy || !call || strcmp(call, name) != 0 || !after || access(after, F_OK) != 0) return;
    if (left < 0) left = atoi(getenv("KVIK_TEST_NTH"));
    if (left == 0 || --left > 0) return;
    busy = 1;
    int fd = open(getenv("KVIK_TEST_DONE"), O_CREAT | O_WRONLY, 0600);
    if (fd >= 0) close(fd);
    raise(SIGINT);
    busy = 0;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t read(int fd, void *to, size_t n)
{
    if (fd == STDIN_FILENO) before("read");
    return REAL(read)(fd, to, n);
}

int fflush(FILE *f)
{
    before("fflush");
    return REAL(fflush)(f);
}

int tcgetattr(int fd, struct termios *t)
{
    if (fd == STDIN_FILENO) before("tcgetattr");
    return REAL(tcgetattr)(fd, t);
}

int ppoll(struct pollfd *fd, nfds_t n, const struct timespec *limit, const sigset_t *set)
{
    before("ppoll");
    return REAL(ppoll)(fd, n, limit, set);
}
