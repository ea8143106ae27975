/* interrupt.c - Ctrl-C.  The first one sets a flag that the hooks read between tokens.  A second one before the flag is
 * cleared ends the process at once.  System calls are not restarted after the handler, so a waiting read returns. */
#include "cli/terminal.h"

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

bool interrupt_seen(void)
{
    return seen;
}

void interrupt_clear(void)
{
    seen = 0;
}
