// host.h - what the machine and its cgroup give this process: cores, CPU quota, memory. Read from /proc and /sys.
#pragma once

#include <stddef.h>

enum { HOST_MAX_CPUS = 1024 };

// The process's cpuset as it was when this was first called (pinning a thread later does not shrink it). Returns the
// number of cores and writes at most `max` of their numbers, ascending.
int host_cpus(int *ret_cpus, int max);

// CPU quota of the cgroup (v2 or v1, the tightest of the path) in cores; 0: none.
double host_quota(void);

// RAM, or the cgroup's limit when that is smaller, in bytes.
size_t host_memory(void);
