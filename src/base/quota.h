/* quota.h - how many processors' time the control group of the process may use. */
#pragma once

/* Returns the smallest share of the group and of the groups around it, in processors; 0 without a limit.
 * groups: the file that names the groups of the process; root: the directory in which groups are directories. */
double cpu_quota(const char *groups, const char *root);
#define CPU_GROUPS "/proc/self/cgroup"
#define CPU_ROOT   "/sys/fs/cgroup"
