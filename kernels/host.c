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
static bool cgroup_path(const char *root, const char *controller, char *path, int size)
{
    char line[PATH_MAX];
    snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    FILE *f = fopen(line, "re");
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
static double tightest(const char *root, const char *mount, const char *controller, double (*get)(const char *folder))
{
    char path[PATH_MAX] = "", folder[3 * PATH_MAX];
    double best = 0;
    if (!cgroup_path(root, controller, path, sizeof path))
        return 0;
    for (;;) {
        snprintf(folder, sizeof folder, "%s/sys/fs/cgroup%s%s", root, mount, path);
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
    char path[3 * PATH_MAX + 64], line[128], *end;
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
    char path[3 * PATH_MAX + 64], line[128];
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

// The smaller of two limits, of which 0 is none.
static double smaller(double a, double b)
{
    return a == 0 || (b > 0 && b < a) ? b : a;
}

double host_quota_at(const char *root)
{
    double v2 = smaller(tightest(root, "", NULL, quota_v2), tightest(root, "/unified", NULL, quota_v2));
    double v1 = smaller(tightest(root, "/cpu", "cpu", quota_v1), tightest(root, "/cpu,cpuacct", "cpu", quota_v1));
    return smaller(v1, v2);
}

double host_quota(void)
{
    return host_quota_at("");
}

int host_cores_for(int cores, double quota)
{
    if (quota <= 0 || quota >= cores)
        return cores;
    int n = (int)quota;
    return n < quota ? n + 1 : n;
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

size_t host_memory_at(const char *root)
{
    double v2 = tightest(root, "", NULL, memory_v2), v1 = tightest(root, "/memory", "memory", memory_v1);
    double limit = smaller(v1, v2);
    return limit < 0x1p60 ? (size_t)limit : 0;  // v1 writes "none" as about 2^63
}

size_t host_ram(void)
{
    return (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
}

size_t host_memory(void)
{
    size_t ram = host_ram(), limit = host_memory_at("");
    return limit && limit < ram ? limit : ram;
}
