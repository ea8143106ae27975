/* terminal.c - modes of the terminal, and signals that concern it.  The original mode is restored when the process
 * is stopped (Ctrl-Z), killed, or ended by a second Ctrl-C.  Handlers call only functions that are safe in a
 * handler. */
#include "cli/terminal.h"
#include "cli/screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static const char paste_on[] = "\033[?2004h", paste_off[] = "\033[?2004l";
/* Every signal that ends a process and can be caught, except that of Ctrl-C (interrupt.c). */
static const int fatal[] = {SIGTERM, SIGHUP,  SIGQUIT, SIGPIPE,   SIGALRM, SIGUSR1,
                            SIGUSR2, SIGXCPU, SIGXFSZ, SIGVTALRM, SIGPROF, SIGSYS,
                            SIGTRAP, SIGABRT, SIGSEGV, SIGILL,    SIGFPE};

static struct termios before;  /* valid while `taken` */
static struct termios editing; /* valid while `edits` */
static volatile sig_atomic_t taken, edits, event;
static bool marks_pastes, registered;

static void send_code(const char *code)
{
    if (marks_pastes) (void)!write(STDERR_FILENO, code, strlen(code));
}

void terminal_restore(void)
{
    if (!taken) return;
    taken = 0;
    send_code(paste_off);
    tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

void terminal_quiet(void)
{
    struct termios t;
    edits = 0;
    if (!taken || tcgetattr(STDIN_FILENO, &t) < 0) return;
    t.c_lflag &= ~(tcflag_t)(ECHO | ICANON);
    t.c_cc[VMIN] = 1;
    t.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &t);
}

/* True if this process owns the terminal.  A background job that sets the mode would be stopped. */
static bool in_foreground(void)
{
    return tcgetpgrp(STDIN_FILENO) == getpgrp();
}

static void on_fatal(int sig)
{
    if (in_foreground()) terminal_restore();
    signal(sig, SIG_DFL);
    raise(sig);
}

static void on_resize(int sig)
{
    (void)sig;
    if (event == TERMINAL_SAME) event = TERMINAL_RESIZED;
}

/* Sets a handler.  An ignored signal stays ignored, as nohup wants; a sanitizer keeps its own handlers. */
static void catch (int sig, void (*handler)(int))
{
    /* without SA_RESTART, so that a waiting read returns */
    struct sigaction a = {.sa_handler = handler}, old;
    sigemptyset(&a.sa_mask);
    if (sigaction(sig, NULL, &old) == 0 && old.sa_handler != SIG_DFL) return;
    sigaction(sig, &a, NULL);
}

/* Stops the process after restoring the shell's mode, and sets the mode again afterwards. */
static void on_stop(int sig)
{
    struct termios now;
    sigset_t set;
    int kept = errno;
    bool held = taken && tcgetattr(STDIN_FILENO, &now) == 0;
    terminal_restore();
    signal(sig, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, sig);
    raise(sig);
    sigprocmask(SIG_UNBLOCK, &set, NULL); /* stops here */
    sigprocmask(SIG_BLOCK, &set, NULL);
    catch (sig, on_stop);
    if (held) {
        tcsetattr(STDIN_FILENO, TCSANOW, &now);
        taken = 1;
        send_code(paste_on);
    }
    event = TERMINAL_CONTINUED;
    errno = kept;
}

void terminal_edits(void)
{
    edits = 0;
    if (!taken || tcgetattr(STDIN_FILENO, &editing) < 0) return;
    if (!(editing.c_lflag & ICANON) && editing.c_cc[VMIN]) {
        editing.c_cc[VMIN] = 0;
        tcsetattr(STDIN_FILENO, TCSANOW, &editing);
    }
    edits = 1;
}

bool terminal_wait(void)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    static const int ends[] = {SIGINT, SIGWINCH, SIGCONT, SIGTSTP};
    sigset_t held, before_wait;
    int n = 1;
    sigemptyset(&held);
    for (size_t i = 0; i < countof(ends); i++)
        sigaddset(&held, ends[i]);
    sigprocmask(SIG_BLOCK, &held,
                &before_wait); /* from here on a signal waits for ppoll, which delivers it */
    if (!interrupt_seen() && event == TERMINAL_SAME) n = ppoll(&p, 1, NULL, &before_wait);
    sigprocmask(SIG_SETMASK, &before_wait, NULL);
    return n <= 0 || !(p.revents & (POLLHUP | POLLERR | POLLNVAL));
}

/* Sets the mode again after a stop that no handler sees (SIGSTOP), because the shell has set its own mode. */
static void on_continue(int sig)
{
    int kept = errno;
    (void)sig;
    if (taken && in_foreground()) {
        if (edits)
            tcsetattr(STDIN_FILENO, TCSANOW, &editing);
        else
            terminal_quiet();
        send_code(paste_on);
        event = TERMINAL_CONTINUED;
    }
    errno = kept;
}

bool terminal_moves(void)
{
    const char *term = getenv("TERM");
    return term && strcmp(term, "dumb") != 0;
}

void terminal_open(void)
{
    if (tcgetattr(STDIN_FILENO, &before) < 0) return;
    marks_pastes = isatty(STDERR_FILENO) && terminal_moves();
    taken = 1;
    for (size_t i = 0; i < countof(fatal); i++)
        catch (fatal[i], on_fatal);
    if (!registered) registered = atexit(terminal_restore) == 0;
    catch (SIGTSTP, on_stop);
    catch (SIGCONT, on_continue);
    catch (SIGWINCH, on_resize);
    terminal_quiet();
    send_code(paste_on);
}

void terminal_close(void)
{
    terminal_restore();
}

enum terminal_event terminal_event(void)
{
    enum terminal_event what = (enum terminal_event)event;
    event = TERMINAL_SAME;
    return what;
}

unsigned terminal_columns(FILE *of)
{
    struct winsize w;
    if (!terminal_moves()) return 0;
    return ioctl(screen_fd(of), TIOCGWINSZ, &w) == 0 ? w.ws_col : 0;
}
