/* offload.c - decoding with a cache of which a quarter is in memory, next to the same cache in memory.
 *
 *     build/release/bench_offload MODEL [THREADS] [cold]
 *
 *     offload,depth,tokens a second in memory,offloaded,ratio,MiB read a token
 *     cold,depth,tokens a second,MB/s read,MB/s of the storage,ratio
 *     trace,depth,ms of a cold step,of them computing,share of the computing during which a read was in flight
 *
 * The spill file is in the page cache, as it is after it was written.  With `cold` it is thrown out of the page cache
 * before each token, and the rate of reading is compared with that of the storage: a file without holes of the same size,
 * cold, read in order in pieces of 1 MiB by four threads.  Caches alternate token by token, so that a machine that slows down slows both.
 * The text is not computed: its rows are filled with one value (uncomputed.h).
 *
 * One more cold token is traced, read through copies (KVIK_SPILL_MAP=0), where kvik starts the reads itself and the trace has
 * an event for each.  The trace is build/offload-DEPTH.json. */
#include "base/json.h"
#include "base/trace.h"
#include "generate/handle.h"
#include "steady.h"
#include "uncomputed.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEP = 64, TOKENS = 25, COLD_TOKENS = 15, READERS = 4, PIECE = 1 << 20 };
static const uint32_t depths[] = {2048, 7000};

/* --- The spill file --------------------------------------------------------------------------- */

/* Returns a second descriptor of the newest file without a name that this process has open; -1: there is none. */
static int spill_file(void)
{
    for (int fd = 255; fd > 2; fd--) {
        struct stat st;
        char path[64];
        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink || !st.st_size) continue;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        return open(path, O_RDONLY | O_CLOEXEC);
    }
    return -1;
}

/* Throws the file out of the page cache, which keeps pages that are mapped. */
static void cool(int fd)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    struct stat st;
    char line[512];
    if (fstat(fd, &st) < 0) return;
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long from, to, inode;
        if (sscanf(line, "%lx-%lx %*s %*s %*s %lu", &from, &to, &inode) == 3 && inode == st.st_ino)
            madvise((void *)from, to - from, MADV_DONTNEED);
    }
    if (maps) fclose(maps);
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

struct reader {
    pthread_t thread;
    int fd, first;
};

static void *read_some(void *arg)
{
    const struct reader *r = arg;
    char *mem = malloc(PIECE);
    off_t at = (off_t)r->first * PIECE;
    while (mem && pread(r->fd, mem, PIECE, at) > 0)
        at += (off_t)READERS * PIECE;
    free(mem);
    return NULL;
}

/* Makes a file without holes that has as many bytes on the disk as the spill file. */
static int plain_file(int spill)
{
    const char *dir = getenv("TMPDIR") ? getenv("TMPDIR") : "/var/tmp";
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    struct stat st;
    char *mem = malloc(PIECE);
    if (fd < 0 || !mem || fstat(spill, &st) < 0) return -1;
    memset(mem, 0x5A, PIECE);
    for (off_t at = 0; at < 512 * (off_t)st.st_blocks; at += PIECE)
        if (pwrite(fd, mem, PIECE, at) != PIECE) return -1;
    free(mem);
    return fd;
}

/* Returns bytes a second of a cold file without holes. */
static double storage_rate(int fd)
{
    struct reader r[READERS] = {{0}};
    struct stat st;
    cool(fd);
    double t = now_seconds();
    for (int i = 0; i < READERS; i++) {
        r[i].fd = fd;
        r[i].first = i;
        if (pthread_create(&r[i].thread, NULL, read_some, &r[i]) != 0) return 0;
    }
    for (int i = 0; i < READERS; i++)
        pthread_join(r[i].thread, NULL);
    t = now_seconds() - t;
    return fstat(fd, &st) == 0 ? (double)st.st_size / t : 0;
}

/* --- Measuring -------------------------------------------------------------------------------- */

struct side {
    kvik_cache *c;
    kvik_seq s;
    float *logits;
};

static int side_open(kvik_model *m, int threads, uint64_t memory, struct side *out)
{
    const kvik_cache_config k = {.size = sizeof k,
                                 .max_cache_len = depths[countof(depths) - 1] + 4 * STEP,
                                 .step_tokens = STEP,
                                 .max_sequences = 1,
                                 .threads = threads,
                                 .cache_memory = memory,
                                 .cache_implementation = memory ? "offloaded" : "dynamic",
                                 .no_prefix_cache = true};
    TRY(kvik_cache_open(m, &k, &out->c));
    TRY(kvik_cache_new(out->c, &out->s));
    out->logits = mem_array(out->c->x->m->vocab, sizeof *out->logits);
    return out->logits ? 0 : ERR_NOMEM;
}

static void side_close(struct side *s)
{
    kvik_cache_close(s->c);
    mem_free(s->logits);
}

static int token(struct side *s, double *seconds)
{
    const int32_t id = 7;
    const kvik_span span = {.size = sizeof span, .seq = s->s, .ids = &id, .n = 1};
    double t = now_seconds();
    int e = kvik_forward(s->c, &span, 1, false, s->logits);
    *seconds = now_seconds() - t;
    return e;
}

static uint64_t tier_read(const struct side *s)
{
    kvik_usage u = {.size = sizeof u};
    (void)kvik_cache_usage(s->c, &u);
    return u.tier_read;
}

static int warm(struct side *in, struct side *off, uint32_t depth)
{
    static double a[TOKENS], b[TOKENS];
    double first;
    TRY(token(in, &first));
    TRY(token(off, &first));
    uint64_t before = tier_read(off);
    for (int i = 0; i < TOKENS; i++) {
        TRY(token(in, &a[i]));
        TRY(token(off, &b[i]));
    }
    double x = 1 / median_of(a, TOKENS), y = 1 / median_of(b, TOKENS);
    printf("%soffload,%u,%.1f,%.1f,%.3f,%.1f\n",
           line_mark(scatters(a, TOKENS) || scatters(b, TOKENS)), depth, x, y, y / x,
           (double)(tier_read(off) - before) / TOKENS / (1 << 20));
    return 0;
}

static int cold(struct side *off, uint32_t depth)
{
    double t[COLD_TOKENS], rate[COLD_TOKENS];
    int fd = spill_file(), plain = fd < 0 ? -1 : plain_file(fd), e = 0;
    if (plain < 0) return ERR(IO, "no spill file was found, or no second file can be made");
    uint64_t before = tier_read(off);
    for (int i = 0; e >= 0 && i < COLD_TOKENS; i++) {
        rate[i] = storage_rate(plain);
        cool(fd);
        e = token(off, &t[i]);
    }
    double bytes = (double)(tier_read(off) - before) / COLD_TOKENS, ratio[COLD_TOKENS];
    for (int i = 0; i < COLD_TOKENS; i++)
        ratio[i] = bytes / t[i] / rate[i];
    double x = median_of(t, COLD_TOKENS), disk = median_of(rate, COLD_TOKENS);
    double share = median_of(ratio, COLD_TOKENS);
    printf("%scold,%u,%.1f,%.0f,%.0f,%.3f\n",
           line_mark(scatters(t, COLD_TOKENS) || scatters(ratio, COLD_TOKENS)), depth, 1 / x,
           bytes / x / 1e6, disk / 1e6, share);
    close(plain);
    close(fd);
    return e;
}

/* --- The trace -------------------------------------------------------------------------------- */

enum { SPANS = 4096 };
struct spans { /* microseconds */
    double from[SPANS], to[SPANS];
    size_t n;
};

/* Adds up the time that the two have in common; those of one do not overlap each other. */
static double common(const struct spans *a, const struct spans *b)
{
    double sum = 0;
    for (size_t i = 0; i < a->n; i++)
        for (size_t k = 0; k < b->n; k++) {
            double from = a->from[i] > b->from[k] ? a->from[i] : b->from[k];
            double to = a->to[i] < b->to[k] ? a->to[i] : b->to[k];
            if (to > from) sum += to - from;
        }
    return sum;
}

/* Gathers the events of a name; what overlaps the one before is joined with it. */
static double gather(const json_t *trace, const char *name, struct spans *s)
{
    const json_t *e;
    size_t i;
    double sum = 0;
    s->n = 0;
    json_array_foreach(json_object_get(trace, "traceEvents"), i, e)
    {
        if (strcmp(json_string_value(json_object_get(e, "name")), name) != 0) continue;
        double from = json_number_value(json_object_get(e, "ts"));
        double to = from + json_number_value(json_object_get(e, "dur"));
        if (s->n && from < s->to[s->n - 1]) from = s->to[s->n - 1];
        if (to <= from || s->n == SPANS) continue;
        s->from[s->n] = from;
        s->to[s->n++] = to;
        sum += to - from;
    }
    return sum;
}

static int traced(struct side *off, uint32_t depth)
{
    static struct spans fetch, wait, step;
    char path[64];
    double t;
    json_t *trace;
    int fd = spill_file();
    if (fd < 0) return ERR(IO, "no spill file was found");
    snprintf(path, sizeof path, "build/offload-%u.json", depth);
    TRY(token(off, &t));
    cool(fd);
    close(fd);
    TRY(trace_begin());
    TRY(token(off, &t));
    TRY(trace_end(path));
    TRY(json_read(path, 64 << 20, &trace));
    double whole = gather(trace, "forward", &step), waits = gather(trace, "wait", &wait);
    double reads = gather(trace, "fetch", &fetch), idle = common(&fetch, &wait);
    printf("trace,%u,%.1f,%.1f,%.2f\n", depth, whole * 1e-3, (whole - waits) * 1e-3,
           whole > waits ? (reads - idle) / (whole - waits) : 0);
    json_decref(trace);
    return 0;
}

static int run(const char *path, int threads, bool with_cold)
{
    kvik_model *m;
    TRY(kvik_model_open(path, &m));
    int e = 0;
    for (uint32_t i = 0; e >= 0 && i < countof(depths); i++) {
        struct side in = {0}, off = {0};
        kvik_usage u = {.size = sizeof u};
        e = side_open(m, threads, 0, &in);
        if (e >= 0) e = grow(in.c->x, in.s, depths[i], STEP);
        if (e >= 0) e = kvik_cache_usage(in.c, &u);
        if (e >= 0) e = side_open(m, threads, u.live / 4 + u.metadata, &off);
        if (e >= 0) e = grow(off.c->x, off.s, depths[i], STEP);
        if (e >= 0) e = warm(&in, &off, depths[i]);
        if (e >= 0 && with_cold) e = cold(&off, depths[i]);
        side_close(&off);
        if (e >= 0 && with_cold) {
            off = (struct side){0};
            setenv("KVIK_SPILL_MAP", "0", 1);
            e = side_open(m, threads, u.live / 4 + u.metadata, &off);
            unsetenv("KVIK_SPILL_MAP");
            if (e >= 0) e = grow(off.c->x, off.s, depths[i], STEP);
            if (e >= 0) e = traced(&off, depths[i]);
            side_close(&off);
        }
        fflush(stdout);
        side_close(&in);
    }
    kvik_model_close(m);
    return e;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: bench_offload MODEL [THREADS] [cold]\n");
        return 2;
    }
    bool with_cold = strcmp(argv[argc - 1], "cold") == 0;
    long threads = argc - with_cold > 2 ? strtol(argv[2], NULL, 10) : 0;
    if (run(argv[1], (int)threads, with_cold) < 0) {
        fprintf(stderr, "bench_offload: %s\n", kvik_last_error());
        return 1;
    }
    return 0;
}
