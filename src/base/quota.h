/* quota.h - how many processors' time the control group of the process may use. */
#pragma once

/* Returns the smallest share of the process's group and its parents, in processors; 0: no limit.  groups: file
 * that names the groups of the process; root: directory of the control groups. */
double cpu_quota(const char *groups, const char *root);
#define CPU_GROUPS "/proc/self/cgroup"
#define CPU_ROOT   "/sys/fs/cgroup"
