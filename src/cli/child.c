/* child.c - runs another program on a file of the user's.  The program is started with posix_spawn, because
 * forking a process with a large model and threads is slow and fragile.  posix_spawn cannot set limits, so prlimit
 * sets them right after the start; what the program has used until then counts.  The program writes to a pipe, so
 * it ends at its next write if this process is killed. */
#include "base/descriptor.h"
#include "base/thread.h"
#include "cli/convert.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MEMORY  ((uint64_t)2 << 30)
#define FILES   ((uint64_t)64 << 20) /* gst-launch writes a list of its plugins once */
#define SILENCE 60                   /* seconds without output */
#define LEAVE   10 /* seconds from the end of the output to the end of the program */

extern char **environ;

static void limit(pid_t pid, int what, uint64_t most)
{
    struct rlimit now, set = {most, most};
    if (prlimit(pid, (enum __rlimit_resource)what, NULL, &now) < 0) return;
    set.rlim_max = MIN(most, now.rlim_max); /* a hard limit can only be lowered */
    set.rlim_cur = MIN(most, now.rlim_cur);
    (void)prlimit(pid, (enum __rlimit_resource)what, &set, NULL);
}

/* Starts the program.  Handlers of this process do not exist in the new one, but ignored and blocked signals would
 * stay so; they are reset. */
static int start(struct child *c, const char *program, const char *const *argv, const int fd[3])
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t none, usual;
    sigemptyset(&none);
    sigfillset(&usual);
    int e = posix_spawn_file_actions_init(&files);
    if (e) return e;
    e = posix_spawnattr_init(&how);
    if (!e) {
        for (int i = 0; i < 3 && !e; i++)
            e = posix_spawn_file_actions_adddup2(&files, fd[i], i);
        (void)posix_spawnattr_setsigmask(&how, &none);
        (void)posix_spawnattr_setsigdefault(&how, &usual);
        (void)posix_spawnattr_setpgroup(&how, 0);
        (void)posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                                 POSIX_SPAWN_SETPGROUP);
        if (!e) e = posix_spawn(&c->pid, program, &files, &how, (char *const *)argv, environ);
        posix_spawnattr_destroy(&how);
    }
    posix_spawn_file_actions_destroy(&files);
    return e;
}

int child_start(struct child *c, const char *program, const char *const *argv, int in,
                uint64_t seconds)
{
    int out[2], err[2];
    *c = (struct child){.out = -1, .err = -1, .last = now_seconds(), .first = c->first};
    if (fd_pipe(out) < 0) return errno;
    if (fd_pipe(err) < 0) {
        int e = errno;
        close(out[0]);
        close(out[1]);
        return e;
    }
    int e = start(c, program, argv, (int[3]){in, out[1], err[1]});
    close(out[1]);
    close(err[1]);
    c->out = out[0];
    c->err = err[0];
    if (e) {
        close(c->out);
        close(c->err);
        return e;
    }
    limit(c->pid, RLIMIT_CPU, seconds);
    limit(c->pid, RLIMIT_DATA, MEMORY);
    limit(c->pid, RLIMIT_FSIZE, FILES);
    limit(c->pid, RLIMIT_CORE, 0);
    return 0;
}

/* Ends a line of the program's standard error. */
static void end_line(struct child *c)
{
    c->line[c->n] = 0;
    if (c->n && !(c->first && c->said[0])) memcpy(c->said, c->line, c->n + 1);
    c->n = 0;
}

/* Reads what the program has written to standard error so far. */
static void listen(struct child *c)
{
    char some[4096];
    ssize_t got = read(c->err, some, sizeof some);
    if (got < 0 && errno == EINTR) return;
    for (ssize_t i = 0; i < got; i++) {
        if (some[i] == '\n' || some[i] == '\r')
            end_line(c);
        else if (some[i] && c->n < sizeof c->line - 1)
            c->line[c->n++] = some[i];
    }
    if (got > 0) return;
    end_line(c);
    close(c->err);
    c->err = -1;
}

int64_t child_read(struct child *c, void *bytes, size_t n)
{
    while (c->out >= 0 || c->err >= 0) {
        struct pollfd p[2] = {{.fd = c->out, .events = POLLIN}, {.fd = c->err, .events = POLLIN}};
        double left = c->last + SILENCE - now_seconds();
        if (left <= 0) return -ETIMEDOUT;
        int ready = interrupt_poll(p, 2, (int)(left * 1000) + 1);
        if (interrupt_seen()) return -EINTR;
        if (ready <= 0) continue;
        if (p[1].revents) listen(c);
        if (!p[0].revents) continue;
        ssize_t got = read(c->out, bytes, n);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -errno;
        c->last = now_seconds();
        if (got) return got;
        close(c->out);
        c->out = -1;
    }
    return 0;
}

/* Waits for the program's end, but leaves the process for waitpid: until then its number, and that of its group,
 * belong to no other process. */
static bool left(const struct child *c)
{
    for (double until = now_seconds() + LEAVE; now_seconds() < until && !interrupt_seen();) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOWAIT | WNOHANG) < 0) return false;
        if (info.si_pid) return true;
        interrupt_poll(NULL, 0, 10);
    }
    return false;
}

int child_end(struct child *c, bool stop)
{
    int status = 0;
    if (c->out >= 0) close(c->out);
    if (c->err >= 0) close(c->err);
    if (!stop) (void)left(c);
    (void)kill(-c->pid, SIGKILL); /* also ends processes that the program has left behind */
    while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}
