/* interrupt.c - Ctrl-C.  The first one sets a flag that the hooks read between tokens.  A second one before the flag is
 * cleared ends the process at once.  System calls are not restarted after the handler, so a waiting read returns. */
#include "cli/terminal.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

static volatile sig_atomic_t seen;

static void on_interrupt(int sig)
{
    (void)sig;
    if (seen) {
        terminal_restore();
        _exit(EXIT_INTERRUPTED);
    }
    seen = 1;
}

void interrupt_catch(void)
{
    struct sigaction a = {.sa_handler = on_interrupt};
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
}

void interrupt_release(void)
{
    sigaction(SIGINT, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
}

int interrupt_poll(struct pollfd *p, unsigned n, int ms)
{
    struct timespec most = {ms / 1000, ms % 1000 * 1000000L};
    sigset_t held, before;
    int ready = 0;
    sigemptyset(&held);
    sigaddset(&held, SIGINT);
    sigprocmask(SIG_BLOCK, &held, &before); /* from here on a signal waits for ppoll */
    if (!seen) ready = ppoll(p, n, ms < 0 ? NULL : &most, &before);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return ready;
}

bool interrupt_seen(void)
{
    return seen;
}

void interrupt_clear(void)
{
    seen = 0;
}
