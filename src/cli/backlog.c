/* backlog.c - reads a recording from a pipe while a window is computed.  A recorder that had to wait would lose
 * sound.  So a thread reads the pipe into blocks, up to a limit; beyond it the recorder has to wait. */
#include "cli/backlog.h"
#include "base/descriptor.h"
#include "base/thread.h"
#include "cli/cli.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define MOST  ((size_t)32 << 20) /* bytes: 17 minutes of one channel of 16 bits at 16 kHz */
#define BLOCK ((size_t)1 << 16)

struct backlog_block {
    struct backlog_block *next;
    size_t at, n; /* bytes [at, n) were not taken yet */
    uint8_t bytes[BLOCK];
};
struct backlog {
    int fd;
    int bell;  /* eventfd: bytes or the end have come */
    int leave; /* eventfd: tells the thread to end */
    pthread_t thread;
    bool runs;
    uint8_t bytes[BLOCK]; /* used by the thread only */
    pthread_mutex_t lock; /* guards all fields below */
    pthread_cond_t room;
    struct backlog_block *first, *last;
    size_t n; /* number of bytes that were not taken yet */
    bool over, leaves;
    int failed; /* errno of a read that has failed, or 0 */
    int left;   /* set when the thread has ended: bytes in the pipe that belong to the recording */
};

static void ring_bell(int bell)
{
    uint64_t one = 1;
    while (write(bell, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

/* Waits until there is room.  False: the thread must end. */
static bool find_room(struct backlog *b)
{
    pthread_mutex_lock(&b->lock);
    while (b->n >= MOST && !b->leaves)
        pthread_cond_wait(&b->room, &b->lock);
    bool stays = !b->leaves;
    pthread_mutex_unlock(&b->lock);
    return stays;
}

/* Adds bytes behind those that were not taken yet.  Returns 0 or ENOMEM. */
static int append_bytes(struct backlog *b, const uint8_t *bytes, size_t n)
{
    while (n) {
        struct backlog_block *k = b->last;
        if (!k || k->n == BLOCK) {
            struct backlog_block *fresh = mem_alloc(sizeof *fresh);
            if (!fresh) return ENOMEM;
            if (k)
                k->next = fresh;
            else
                b->first = fresh;
            b->last = k = fresh;
        }
        size_t part = MIN(n, BLOCK - k->n);
        memcpy(k->bytes + k->n, bytes, part);
        k->n += part;
        b->n += part;
        bytes += part;
        n -= part;
    }
    return 0;
}

/* Takes at most n bytes of the first block. */
static size_t take_first(struct backlog *b, void *bytes, size_t n)
{
    struct backlog_block *k = b->first;
    if (!k) return 0;
    n = MIN(n, k->n - k->at);
    memcpy(bytes, k->bytes + k->at, n);
    k->at += n;
    b->n -= n;
    if (k->at < k->n) return n;
    b->first = k->next;
    if (!b->first) b->last = NULL;
    mem_free(k);
    return n;
}

static void *fill_blocks(void *arg)
{
    struct backlog *b = arg;
    uint8_t *bytes = b->bytes;
    bool over = false;
    while (!over && find_room(b)) {
        struct pollfd p[2] = {{.fd = b->fd, .events = POLLIN}, {.fd = b->leave, .events = POLLIN}};
        if (poll(p, 2, -1) < 0 || p[1].revents) continue;
        ssize_t got = read(b->fd, bytes, BLOCK);
        if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        int failed = got < 0 ? errno : 0;
        pthread_mutex_lock(&b->lock);
        if (got > 0) failed = append_bytes(b, bytes, (size_t)got);
        b->failed = failed;
        b->over = over = got <= 0 || failed;
        pthread_mutex_unlock(&b->lock);
        ring_bell(b->bell);
    }
    return NULL;
}

int backlog_open(int fd, struct backlog **out)
{
    struct backlog *b = mem_alloc(sizeof *b);
    if (!b) return KVIK_NOMEM;
    b->fd = fd;
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->room, NULL);
    b->bell = fd_take(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    b->leave = fd_take(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    int e = b->bell < 0 || b->leave < 0 ? ERR(IO, "eventfd: %s", fd_error(errno)) : 0;
    if (!e) {
        int failed = thread_start(&b->thread, NULL, fill_blocks, b);
        b->runs = !failed;
        if (failed) e = ERR(IO, "a thread cannot be started: %s", fd_error(failed));
    }
    if (e)
        backlog_close(b);
    else
        *out = b;
    return e;
}

/* Ends the thread.  Bytes that are in the pipe at that time still belong to the recording. */
static void stop(struct backlog *b)
{
    if (!b->runs) return;
    pthread_mutex_lock(&b->lock);
    b->leaves = true;
    pthread_cond_signal(&b->room);
    pthread_mutex_unlock(&b->lock);
    ring_bell(b->leave);
    pthread_join(b->thread, NULL);
    b->runs = false;
    if (b->over || ioctl(b->fd, FIONREAD, &b->left) < 0) b->left = 0;
}

void backlog_close(struct backlog *b)
{
    if (!b) return;
    stop(b);
    if (b->bell >= 0) close(b->bell);
    if (b->leave >= 0) close(b->leave);
    pthread_cond_destroy(&b->room);
    pthread_mutex_destroy(&b->lock);
    for (struct backlog_block *k = b->first, *next; k; k = next) {
        next = k->next;
        mem_free(k);
    }
    mem_free(b);
}

/* Takes at most n bytes.  *over: the recording has no more. */
static int64_t take_bytes(struct backlog *b, void *bytes, size_t n, bool *over)
{
    pthread_mutex_lock(&b->lock);
    n = take_first(b, bytes, n);
    if (n) pthread_cond_signal(&b->room);
    *over = !n && b->over;
    int failed = *over ? b->failed : 0;
    pthread_mutex_unlock(&b->lock);
    return failed ? -failed : (int64_t)n;
}

int64_t backlog_read(struct backlog *b, void *bytes, size_t n)
{
    for (;;) {
        bool over;
        uint64_t news;
        if (interrupt_seen()) return -EINTR;
        int64_t got = take_bytes(b, bytes, n, &over);
        if (got || over) return got;
        struct pollfd p = {.fd = b->bell, .events = POLLIN};
        if (interrupt_poll(&p, 1, -1) > 0) (void)!read(b->bell, &news, sizeof news);
    }
}

int64_t backlog_rest(struct backlog *b, void *bytes, size_t n)
{
    bool over;
    stop(b);
    int64_t got = take_bytes(b, bytes, n, &over);
    if (got || over || b->left <= 0) return got;
    got = read(b->fd, bytes, MIN(n, (size_t)b->left));
    b->left = got > 0 ? b->left - (int)got : 0;
    return got < 0 ? -errno : got;
}
