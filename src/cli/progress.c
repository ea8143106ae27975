/* progress.c - a progress line on standard error.  It is drawn only on a terminal that can erase it, only after a
 * third of a second, and at most ten times a second.  It is erased when the work is done.  Logs and pipes never
 * get it.  It is not drawn if text that went through a pipe might appear inside it. */
#include "base/thread.h"
#include "cli/screen.h"
#include "cli/terminal.h"

#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void progress_begin(struct progress *p, const char *what)
{
    *p = (struct progress){
        .what = what, .begun = now_seconds(), .on = isatty(STDERR_FILENO) && terminal_moves()};
}

/* Draws the line.  total 0: the amount of work is not known, so a mark moves.  The line is cut at the edge of the
 * screen, because a line that the terminal has broken cannot be erased. */
static void draw(const char *what, double elapsed, uint64_t done, uint64_t total)
{
    enum { WIDTH = 30 };
    char bar[WIDTH + 1], line[256];
    unsigned columns = terminal_columns(stderr);
    memset(bar, ' ', WIDTH);
    bar[WIDTH] = 0;
    if (total) {
        memset(bar, '=', (size_t)(WIDTH * MIN(done, total) / total));
        snprintf(line, sizeof line, "%s %llu/%llu [%s]", what, (unsigned long long)done,
                 (unsigned long long)total, bar);
    } else {
        memset(bar + (size_t)(elapsed * 10) % (WIDTH - 3), '=', 3);
        snprintf(line, sizeof line, "%s %.1f s [%s]", what, elapsed, bar);
    }
    if (columns && columns <= strlen(line)) line[columns - 1] = 0;
    screen_code(stderr, "\r");
    fputs(line, stderr);
    fflush(stderr);
}

void progress_show(struct progress *p, uint64_t done, uint64_t total)
{
    double t = now_seconds();
    if (!p->on || t - p->begun < 0.3 || t - p->drawn < 0.1 || screen_is_piped()) return;
    p->drawn = t;
    p->shown = true;
    draw(p->what, t - p->begun, done, total);
}

void progress_end(struct progress *p)
{
    if (p->shown) screen_code(stderr, "\r\033[K");
    p->shown = p->on = false;
}

void progress_hide(struct progress *p)
{
    if (p->shown) screen_code(stderr, "\r\033[K");
    p->shown = false;
}

/* Measures the rate over spans of two seconds, so that a slower line is seen soon. */
static void measure_rate(struct progress *p, double t, uint64_t done)
{
    if (!p->since || done < p->from) {
        p->since = t;
        p->from = done;
    }
    double span = t - p->since, now = span > 0 ? (double)(done - p->from) / span : 0;
    if (!p->rate) p->rate = span > 0.5 ? now : 0;
    if (span < 2) return;
    p->rate = now;
    p->since = t;
    p->from = done;
}

/* Writes "0:07" or "1:02:03". */
static void time_text(double seconds, char out[32])
{
    unsigned long long s = seconds < 1e9 ? (unsigned long long)seconds : 999999999;
    if (s >= 3600)
        snprintf(out, 32, "%llu:%02llu:%02llu", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out, 32, "%llu:%02llu", s / 60, s % 60);
}

void progress_bytes(struct progress *p, const char *what, uint64_t done, uint64_t total)
{
    enum { WIDTH = 20 };
    char have[16], all[16], rate[16], left[32], bar[WIDTH + 1], line[512];
    double t = now_seconds();
    measure_rate(p, t, done);
    if (!p->on || t - p->begun < 0.3 || t - p->drawn < 0.1 || screen_is_piped()) return;
    p->drawn = t;
    p->shown = true;
    memset(bar, ' ', WIDTH);
    bar[WIDTH] = 0;
    memset(bar, '=', (size_t)(WIDTH * MIN((double)done / (double)MAX(total, 1), 1.0)));
    int n = snprintf(line, sizeof line, "%s of %s [%s]", bytes_text(done, have),
                     bytes_text(total, all), bar);
    if (p->rate >= 1) {
        time_text((double)(total - MIN(done, total)) / p->rate, left);
        n += snprintf(line + n, sizeof line - (size_t)n, " %s/s, %s left",
                      bytes_text((uint64_t)p->rate, rate), left);
    }
    snprintf(line + n, sizeof line - (size_t)n, "  %.200s", what);
    unsigned columns = terminal_columns(stderr);
    for (char *c = line; *c; c++)
        *c = screen_one_line(*c);
    if (columns && columns <= strlen(line)) line[columns - 1] = 0;
    screen_code(stderr, "\r");
    fputs(line, stderr);
    screen_code(stderr, "\033[K");
    fflush(stderr);
}

struct ticker {
    struct progress p;
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool over;
};

static void *tick(void *arg)
{
    struct ticker *t = arg;
    pthread_mutex_lock(&t->lock);
    while (!t->over) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 100000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        pthread_cond_timedwait(&t->done, &t->lock, &until);
        if (!t->over) progress_show(&t->p, 0, 0);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

void progress_during(const char *what, void (*fn)(void *ctx), void *ctx)
{
    struct ticker t = {.lock = PTHREAD_MUTEX_INITIALIZER, .done = PTHREAD_COND_INITIALIZER};
    pthread_t thread;
    progress_begin(&t.p, what);
    bool ticking = t.p.on && thread_start(&thread, NULL, tick, &t) == 0;
    fn(ctx);
    if (!ticking) return;
    pthread_mutex_lock(&t.lock);
    t.over = true;
    pthread_cond_signal(&t.done);
    pthread_mutex_unlock(&t.lock);
    pthread_join(thread, NULL);
    progress_end(&t.p);
}
