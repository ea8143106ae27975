/* tier.c - how fast the spill file can be read and written in pieces: by plain pread, by threads
 * and by io_uring, from the disk and from the page cache. One CSV row per case; best of three
 * rounds.
 *
 *   bench_tier [DIRECTORY [MIB]]     default: $KVIK_SPILL_DIR or /var/tmp, 128 MiB
 *
 * start_us and wait_us are what a piece costs the calling thread; the rest of the thread's time is
 * free for computing. "cold" asks the system to drop the file from the page cache first. On a
 * virtual disk the host may still have the file in memory. */
#include "base/aio.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AHEAD 4u /* pieces in flight */

struct cost {
    double total, start, wait;
};
struct run {
    int fd;
    size_t size, piece;
    unsigned char *mem; /* [AHEAD][piece] */
    bool write;
};

static int plain(const struct run *r, struct cost *c)
{
    double t = now_seconds();
    for (size_t at = 0; at < r->size; at += r->piece)
        for (size_t done = 0; done < r->piece;) {
            off_t to = (off_t)(at + done);
            ssize_t k = r->write ? pwrite(r->fd, r->mem + done, r->piece - done, to)
                                 : pread(r->fd, r->mem + done, r->piece - done, to);
            if (k <= 0) return ERR(IO, "transfer at %zu", at);
            done += (size_t)k;
        }
    c->wait = c->total = now_seconds() - t;
    return 0;
}

static int background(const struct run *r, struct aio *a, struct cost *c)
{
    struct aio_op op[AHEAD];
    size_t n = r->size / r->piece;
    double t0 = now_seconds();
    for (size_t i = 0; i < n + AHEAD; i++) {
        struct aio_op *o = &op[i % AHEAD];
        double t = now_seconds();
        if (i >= AHEAD) {
            aio_wait(a, o);
            c->wait += now_seconds() - t;
            if (o->error) return ERR(IO, "%s", strerror(o->error));
        }
        if (i >= n) continue;
        *o = (struct aio_op){.mem = r->mem + i % AHEAD * r->piece,
                             .at = i * r->piece,
                             .n = r->piece,
                             .write = r->write};
        t = now_seconds();
        aio_start(a, &o, 1);
        c->start += now_seconds() - t;
    }
    c->total = now_seconds() - t0;
    return 0;
}

static int measure(struct run *r, const char *way, const char *what)
{
    struct cost best = {.total = 1e9};
    struct aio *a = NULL;
    if (strcmp(way, "pread") != 0 && aio_open(r->fd, way, &a) < 0) {
        printf("# %s: %s\n", way, err_last());
        return 0;
    }
    for (int round = 0; round < 3; round++) {
        struct cost c = {0};
        if (strcmp(what, "warm") != 0) {
            fdatasync(r->fd);
            posix_fadvise(r->fd, 0, 0, POSIX_FADV_DONTNEED);
        }
        int e = a ? background(r, a, &c) : plain(r, &c);
        if (e < 0) {
            aio_close(a);
            return e;
        }
        if (c.total < best.total) best = c;
    }
    aio_close(a);
    double pieces = (double)(r->size / r->piece);
    printf("%s,%s,%zu,%.2f,%.0f,%.0f\n", what, way, r->piece >> 10,
           (double)r->size / best.total / (1 << 30), best.start / pieces * 1e6,
           best.wait / pieces * 1e6);
    fflush(stdout);
    return 0;
}

static int measure_all(struct run *r)
{
    static const char *const ways[] = {"pread", "threads", "uring"};
    static const char *const what[] = {"write", "cold", "warm"};
    printf("what,way,piece_KiB,GiB/s,start_us,wait_us\n");
    for (size_t k = 0; k < countof(what); k++)
        for (r->piece = 64 << 10; r->piece <= 4 << 20; r->piece *= 4)
            for (size_t w = 0; w < countof(ways); w++) {
                r->write = k == 0;
                TRY(measure(r, ways[w], what[k]));
            }
    return 0;
}

int main(int argc, char **argv)
{
    const char *dir = argc > 1 ? argv[1] : getenv("KVIK_SPILL_DIR");
    struct run r = {.size = (argc > 2 ? strtoul(argv[2], NULL, 10) : 128) << 20};
    if (!dir) dir = "/var/tmp";
    r.size = MAX(r.size, (size_t)4 << 20) & ~(((size_t)4 << 20) - 1);
    r.fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    r.mem = mem_aligned((size_t)AHEAD * (4 << 20));
    if (r.fd < 0 || !r.mem) {
        perror(dir);
        return 1;
    }
    memset(r.mem, 0x55, (size_t)AHEAD * (4 << 20));
    int e = measure_all(&r);
    if (e < 0) fprintf(stderr, "bench_tier: %s\n", err_last());
    mem_free(r.mem);
    close(r.fd);
    return e < 0;
}
