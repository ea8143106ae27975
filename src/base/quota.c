/* quota.c - reads the limit of processor time that a container has.  A process in a container sees all processors of the
 * machine, but when its group has used its share, all its threads stop until the next period begins.
 *
 * Version 2 of control groups has one tree and a file "cpu.max" with share and period.  Version 1 has a tree for the
 * controller "cpu", and two files.  Inside a container the named group can be absent, and its files are at the root. */
#include "base/quota.h"
#include "base/base.h"
#include "base/descriptor.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 1024, TEXT = 8192 };

/* Reads the beginning of a small file of the system into the caller's memory: thread counts are read where nothing
 * may be allocated. */
static bool read_small(const char *path, char *out, size_t size)
{
    int fd = fd_open(path, O_RDONLY, 0);
    size_t n = 0;
    if (fd < 0) return false;
    for (ssize_t k = 1; k > 0 && n + 1 < size; n += k > 0 ? (size_t)k : 0)
        k = read(fd, out + n, size - 1 - n);
    close(fd);
    out[n] = 0;
    return n > 0;
}

/* Returns the number at the beginning of a file; 0 if there is none. */
static double number_in(const char *dir, const char *name)
{
    char path[PATH + 32], text[64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return read_small(path, text, sizeof text) ? strtod(text, NULL) : 0;
}

/* Returns the share of one group; 0 without a limit. */
static double share_of(const char *dir, bool second)
{
    char path[PATH + 32], text[64], *end;
    double share, period;
    if (second) {
        snprintf(path, sizeof path, "%s/cpu.max", dir);
        if (!read_small(path, text, sizeof text) || !strncmp(text, "max", 3)) return 0;
        share = strtod(text, &end);
        period = strtod(end, NULL);
    } else {
        share = number_in(dir, "cpu.cfs_quota_us"); /* -1: no limit */
        period = number_in(dir, "cpu.cfs_period_us");
    }
    return share > 0 && period > 0 ? share / period : 0;
}

/* Returns the smallest share among a group and its parents, up to the root of the tree. */
static double least_on_way(const char *tree, const char *group, bool second)
{
    char dir[PATH];
    double least = 0;
    size_t root = strlen(tree);
    if (snprintf(dir, sizeof dir, "%s%s", tree, group) >= (int)sizeof dir) return 0;
    for (;;) {
        double share = share_of(dir, second);
        if (share > 0 && (!(least > 0) || share < least)) least = share;
        char *slash = strrchr(dir + root, '/');
        if (!slash) return least;
        *slash = 0;
    }
}

/* True if a list such as "cpu,cpuacct" has the controller cpu. */
static bool has_cpu(const char *list)
{
    for (const char *s = list; s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL)
        if (!strncmp(s, "cpu", 3) && (!s[3] || s[3] == ',')) return true;
    return false;
}

double cpu_quota(const char *groups, const char *root)
{
    char text[TEXT], tree[PATH], *rest = text;
    double least = 0;
    if (!read_small(groups, text, sizeof text)) return 0;
    for (char *line; (line = strsep(&rest, "\n"));) { /* NUMBER:CONTROLLERS:GROUP */
        (void)strsep(&line, ":");
        const char *controllers = strsep(&line, ":");
        if (!controllers || !line) continue;
        bool second = !*controllers;
        if (!second && !has_cpu(controllers)) continue;
        if (snprintf(tree, sizeof tree, "%s%s", root, second ? "" : "/cpu") >= (int)sizeof tree)
            continue;
        double share = least_on_way(tree, line, second);
        if (share > 0 && (!(least > 0) || share < least)) least = share;
    }
    return least;
}
