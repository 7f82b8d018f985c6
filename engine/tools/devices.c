// devices.c - the command `devices`: what this machine and its cgroup give the process, what of it is used and
// why, and how fast it is. Runs on the thread that calls it.
#include "engine/tools.h"

#include "gpu/gpu.h"
#include "kernels/cpu.h"
#include "kernels/host.h"
#include "kernels/team.h"

static void show_isa(const struct cpu_info *c, FILE *out)
{
    fprintf(out, "cpu          %s\nfeatures     %s\n", c->model, c->features);
    fprintf(out, "kernels      %s: the best that this CPU runs%s%s\n", c->isa, c->missing[0] ? "; " : "", c->missing);
}

// "0-3,6"
static void show_list(const int *cpus, int n, FILE *out)
{
    for (int i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && cpus[end] == cpus[end - 1] + 1; end++)
            ;
        fprintf(out, i ? ",%d" : "%d", cpus[i]);
        if (end > i + 1)
            fprintf(out, "-%d", cpus[end - 1]);
    }
}

static void show_cores(const struct cpu_info *c, int asked, int used, FILE *out)
{
    int cpus[HOST_MAX_CPUS], n = host_cpus(cpus, HOST_MAX_CPUS);
    fprintf(out, "cores        %d online, %d in the cpuset (", c->cores, n);
    show_list(cpus, n < HOST_MAX_CPUS ? n : HOST_MAX_CPUS, out);
    if (c->quota > 0)
        fprintf(out, "), the cgroup's quota is %.2f", c->quota);
    else
        fprintf(out, "), the cgroup has no quota");
    if (asked)
        fprintf(out, "; %d used: --threads %d\n", used, asked);
    else
        fprintf(out, "; %d used: %s\n", used, used < n ? "the quota, rounded up" : "one thread for each core of the cpuset");
}

static void show_size(const char *name, size_t bytes, FILE *out)
{
    if (bytes == 0)
        fprintf(out, "%s unknown", name);
    else if (bytes % (1 << 20) == 0)
        fprintf(out, "%s %zu MB", name, bytes >> 20);
    else
        fprintf(out, "%s %zu KB", name, bytes >> 10);
}

static void show_memory(const struct cpu_info *c, FILE *out)
{
    fprintf(out, "caches       ");
    show_size("L1d", c->l1d, out);
    show_size(", L2", c->l2, out);
    show_size(", L3", c->l3, out);
    fprintf(out, "\nmemory       %.1f GB", (double)host_ram() * 1e-9);
    if (c->memory < host_ram())
        fprintf(out, "; the cgroup's limit is %.1f GB\n", (double)c->memory * 1e-9);
    else
        fprintf(out, "; the cgroup has no limit\n");
}

static err_code show_speed(int threads, FILE *out, err *e)
{
    struct cpu_speed s;
    err_code code = cpu_measure(threads, &s, e);
    if (!code)
        fprintf(out, "measured     %d thread%s: %.1f GB/s read, %.0f GFLOP/s f32, %.0f GFLOP/s bf16, %.0f GOP/s int8\n",
                threads, threads > 1 ? "s" : "", s.read_gb_s, s.fma_gflop_s, s.bf16_gflop_s, s.int8_gop_s);
    return code;
}

static void show_gpus(FILE *out)
{
    struct gpu_info gpus[GPU_MAX];
    const char *why;
    int n = gpu_probe(gpus, GPU_MAX, &why);
    if (n == 0)
        fprintf(out, "gpu          none: %s\n", why);
    for (int i = 0; i < n && i < GPU_MAX; i++)
        fprintf(out, "gpu %-8d %s, %.1f GB, compute capability %d.%d; not used yet\n", i, gpus[i].name,
                (double)gpus[i].memory * 1e-9, gpus[i].major, gpus[i].minor);
}

err_code tools_devices(int threads, FILE *out, err *e)
{
    struct cpu_info c;
    struct team *team;
    cpu_probe(&c);
    err_code code = team_open(threads, true, &team, e);
    if (code)
        return code;
    int used = team_size(team);
    team_close(team);
    show_isa(&c, out);
    show_cores(&c, threads, used, out);
    show_memory(&c, out);
    code = show_speed(1, out, e);
    if (!code && used > 1)
        code = show_speed(used, out, e);
    if (!code)
        show_gpus(out);
    return code;
}
