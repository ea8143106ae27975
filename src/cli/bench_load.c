/* bench_load.c - how busy other programs kept the machine during a measurement, from the kernel's count of processor
 * time since boot.  Where /proc/stat is absent or counts nothing, as in some sandboxes, the load is unknown. */
#include "base/descriptor.h"
#include "cli/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

bool bench_load_parse(const char *line, double ticks_per_second, struct bench_load *l)
{
    enum { USER, NICE, SYSTEM, IDLE, WAIT, IRQ, SOFT, STEAL, COLUMNS };
    double seconds[COLUMNS];
    if (strncmp(line, "cpu ", 4) != 0) return false;
    line += 4;
    for (int i = 0; i < COLUMNS; i++) {
        char *end;
        seconds[i] = (double)strtoull(line, &end, 10) / ticks_per_second;
        if (end == line) return false;
        line = end;
    }
    l->used = seconds[USER] + seconds[NICE] + seconds[SYSTEM] + seconds[IRQ] + seconds[SOFT] +
              seconds[STEAL];
    l->idle = seconds[IDLE] + seconds[WAIT];
    return l->used + l->idle > 0;
}

void bench_load_read(struct bench_load *l)
{
    char line[256];
    struct timespec own;
    FILE *f = fd_stream("/proc/stat");
    *l = (struct bench_load){0};
    if (f && fgets(line, sizeof line, f) && clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own) == 0) {
        l->known = bench_load_parse(line, (double)sysconf(_SC_CLK_TCK), l);
        l->own = (double)own.tv_sec + (double)own.tv_nsec * 1e-9;
    }
    if (f) fclose(f);
}

double bench_load_others(const struct bench_load *from, const struct bench_load *to)
{
    double used = to->used - from->used, all = used + to->idle - from->idle;
    if (!from->known || !to->known || !(all > 0)) return -1;
    return fmin(1, fmax(0, (used - (to->own - from->own)) / all));
}
