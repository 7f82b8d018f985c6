// host.h - what the machine and its cgroup give this process: cores, CPU quota, memory. Read from /proc and /sys.
#pragma once

#include <stddef.h>

enum { HOST_MAX_CPUS = 1024 };

// The process's cpuset as it was when this was first called (pinning a thread later does not shrink it). Returns the
// number of cores and writes at most `max` of their numbers, ascending.
int host_cpus(int *ret_cpus, int max);

// CPU quota of the cgroup (v2 or v1, the tightest of the path) in cores; 0: none.
double host_quota(void);

// Threads to use on so many cores under a quota: a part of a core counts as one.
int host_cores_for(int cores, double quota);

// RAM, or the cgroup's limit when that is smaller, in bytes.
size_t host_memory(void);
size_t host_ram(void);

// The same of a machine whose /proc and /sys lie under root ("" for this one). Memory: the limit, 0 when there is none.
double host_quota_at(const char *root);
size_t host_memory_at(const char *root);
