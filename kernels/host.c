// host.c - cpuset, cgroup quota and memory limit. Any thread; nothing here is called inside a step.
#include "kernels/host.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int cpus[HOST_MAX_CPUS], ncpus;

static void read_cpuset(void)
{
    size_t bytes = CPU_ALLOC_SIZE(HOST_MAX_CPUS);
    cpu_set_t *set = CPU_ALLOC(HOST_MAX_CPUS);
    if (set && sched_getaffinity(0, bytes, set) == 0) {
        for (int i = 0; i < HOST_MAX_CPUS; i++) {
            if (CPU_ISSET_S(i, bytes, set))
                cpus[ncpus++] = i;
        }
    }
    CPU_FREE(set);
    if (ncpus == 0)
        cpus[ncpus++] = 0;
}

int host_cpus(int *ret_cpus, int max)
{
    pthread_once(&once, read_cpuset);
    for (int i = 0; i < ncpus && i < max; i++)
        ret_cpus[i] = cpus[i];
    return ncpus;
}

// First line of a small file; false when it cannot be read.
static bool read_line(const char *path, char *line, int size)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    bool ok = fgets(line, size, f) != NULL;
    fclose(f);
    return ok;
}

// The process's path in the v2 hierarchy (controller NULL) or in a v1 controller's; "" when it has none.
static bool cgroup_path(const char *controller, char *path, int size)
{
    FILE *f = fopen("/proc/self/cgroup", "re");
    char line[PATH_MAX];
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        char *names = strchr(line, ':'), *at = names ? strchr(names + 1, ':') : NULL;
        if (!at)
            continue;
        *at++ = 0;
        at[strcspn(at, "\n")] = 0;
        names++;
        if (!controller) {
            found = *names == 0;
        } else {
            char *save = NULL;
            for (char *n = strtok_r(names, ",", &save); n && !found; n = strtok_r(NULL, ",", &save))
                found = strcmp(n, controller) == 0;
        }
        if (found)
            snprintf(path, (size_t)size, "%s", at);
    }
    if (f)
        fclose(f);
    return found;
}

// Calls get for the cgroup's folder and each of its ancestors, down to the mount point itself, and returns the smallest
// positive answer, 0 when there is none. Inside a container the path may not exist: only the mount point answers then.
static double tightest(const char *mount, const char *controller, double (*get)(const char *folder))
{
    char path[PATH_MAX] = "", folder[2 * PATH_MAX];
    double best = 0;
    if (!cgroup_path(controller, path, sizeof path))
        return 0;
    for (;;) {
        snprintf(folder, sizeof folder, "%s%s", mount, path);
        double v = get(folder);
        if (v > 0 && (best == 0 || v < best))
            best = v;
        char *slash = strrchr(path, '/');
        if (!slash)
            return best;
        *slash = 0;
    }
}

static bool read_number(const char *folder, const char *name, double *ret_value)
{
    char path[2 * PATH_MAX + 64], line[128], *end;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!read_line(path, line, sizeof line))
        return false;
    double v = strtod(line, &end);
    if (end == line)
        return false;
    *ret_value = v;
    return true;
}

static double quota_v2(const char *folder)
{
    char path[2 * PATH_MAX + 64], line[128];
    double quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (!read_line(path, line, sizeof line) || sscanf(line, "%lf %lf", &quota, &period) != 2 || period <= 0)
        return 0;
    return quota / period;
}

static double quota_v1(const char *folder)
{
    double quota, period;
    if (!read_number(folder, "cpu.cfs_quota_us", &quota) || !read_number(folder, "cpu.cfs_period_us", &period))
        return 0;
    return quota > 0 && period > 0 ? quota / period : 0;
}

double host_quota(void)
{
    double v2 = tightest("/sys/fs/cgroup", NULL, quota_v2);
    double v1 = tightest("/sys/fs/cgroup/cpu", "cpu", quota_v1);
    if (v1 == 0)
        v1 = tightest("/sys/fs/cgroup/cpu,cpuacct", "cpu", quota_v1);
    return v2 == 0 ? v1 : v1 == 0 ? v2 : v1 < v2 ? v1 : v2;
}

static double memory_v2(const char *folder)
{
    double v;
    return read_number(folder, "memory.max", &v) ? v : 0;
}

static double memory_v1(const char *folder)
{
    double v;
    return read_number(folder, "memory.limit_in_bytes", &v) ? v : 0;
}

size_t host_memory(void)
{
    double best = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    double v2 = tightest("/sys/fs/cgroup", NULL, memory_v2);
    double v1 = tightest("/sys/fs/cgroup/memory", "memory", memory_v1);
    if (v2 > 0 && v2 < best)
        best = v2;
    if (v1 > 0 && v1 < best)
        best = v1;
    return (size_t)best;
}
