// cpu.c - which instruction set runs, and what the machine is. Called at start by one thread.
#include "kernels/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "base/mem.h"
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/neon.h"
#include "kernels/cpu/ref.h"
#include "kernels/host.h"
#include "kernels/team.h"

// What the CPU has, by name; the kernels of an instruction set need some of them.
struct feature {
    const char *name;
    bool has;
};

enum { FEATURES = 12 };

#if defined(__x86_64__)
static bool has_f16c(void)  // not every compiler's __builtin_cpu_supports knows it
{
    unsigned a = 1, b, c = 0, d;
    __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return c >> 29 & 1;
}
#elif defined(__aarch64__)
// Bits of the kernel's words of features; older headers do not name all of them.
enum { CAP_DOTPROD = 1 << 20, CAP2_BF16 = 1 << 14, CAP2_I8MM = 1 << 13 };
#endif

static void list_features(struct feature f[FEATURES])
{
    memset(f, 0, FEATURES * sizeof *f);
#if defined(__x86_64__)
    f[0] = (struct feature){"avx2", __builtin_cpu_supports("avx2")};
    f[1] = (struct feature){"fma", __builtin_cpu_supports("fma")};
    f[2] = (struct feature){"f16c", has_f16c()};
    f[3] = (struct feature){"avx512f", __builtin_cpu_supports("avx512f")};
    f[4] = (struct feature){"avx512bw", __builtin_cpu_supports("avx512bw")};
    f[5] = (struct feature){"avx512vl", __builtin_cpu_supports("avx512vl")};
    f[6] = (struct feature){"avx512dq", __builtin_cpu_supports("avx512dq")};
    f[7] = (struct feature){"avx512vnni", __builtin_cpu_supports("avx512vnni")};
    f[8] = (struct feature){"avx512bf16", __builtin_cpu_supports("avx512bf16")};
#elif defined(__aarch64__)
    f[0] = (struct feature){"neon", true};
    f[1] = (struct feature){"dotprod", getauxval(AT_HWCAP) & CAP_DOTPROD};
    f[2] = (struct feature){"i8mm", getauxval(AT_HWCAP2) & CAP2_I8MM};
    f[3] = (struct feature){"bf16", getauxval(AT_HWCAP2) & CAP2_BF16};
#endif
}

// Best first. needs: how many of the features above, from the first.
static const struct {
    const struct cpu_ops *ops;
    int needs;
} tables[] = {
#if defined(__x86_64__)
    {&avx512_ops, 8},
    {&avx2_ops, 3},
#elif defined(__aarch64__)
    {&neon_i8mm_ops, 3},
    {&neon_dotprod_ops, 2},
    {&neon_ops, 1},
#endif
    {&ref_ops, 0},
};

// The first feature the CPU lacks of those a table needs; NULL: it runs.
static const char *lacks(int table)
{
    struct feature f[FEATURES];
    list_features(f);
    for (int i = 0; i < tables[table].needs; i++) {
        if (!f[i].has)
            return f[i].name;
    }
    return NULL;
}

enum { TABLES = sizeof tables / sizeof tables[0] };

const char *cpu_isa(int i)
{
    return i >= 0 && i < TABLES ? tables[i].ops->isa : NULL;
}

static err_code unknown(const char *isa, err *e)
{
    char names[64] = "auto";
    for (int i = 0; i < TABLES; i++) {
        size_t len = strlen(names);
        snprintf(names + len, sizeof names - len, "%s%s", i + 1 < TABLES ? ", " : " or ", tables[i].ops->isa);
    }
    return err_set_param(e, ERR_UNSUPPORTED, "isa", "'%s' is no instruction set of this build, expected %s", isa, names);
}

err_code cpu_select(const char *isa, const struct cpu_ops **ret_ops, err *e)
{
    bool any = !isa || strcmp(isa, "auto") == 0;
    for (int i = 0; i < TABLES; i++) {
        if (!any && strcmp(isa, tables[i].ops->isa))
            continue;
        if (!lacks(i)) {
            *ret_ops = tables[i].ops;
            return ERR_OK;
        }
        if (!any)
            return err_set_param(e, ERR_UNSUPPORTED, "isa", "this machine's CPU does not run %s", isa);
    }
    return unknown(isa, e);
}

static void add(char *text, size_t size, const char *between, const char *a, const char *b, const char *c)
{
    size_t len = strlen(text);
    snprintf(text + len, size - len, "%s%s%s%s", len ? between : "", a, b, c);
}

static void probe_features(struct cpu_info *info)
{
    struct feature f[FEATURES];
    list_features(f);
    for (int i = 0; i < FEATURES; i++) {
        if (f[i].has)
            add(info->features, sizeof info->features, " ", f[i].name, "", "");
    }
    for (int i = 0; i < TABLES && lacks(i); i++)
        add(info->missing, sizeof info->missing, ", ", tables[i].ops->isa, " needs ", lacks(i));
}

// The value of the first line `name : value` of /proc/cpuinfo; false when there is none.
static bool cpuinfo_line(const char *name, char *value, int size)
{
    FILE *f = fopen("/proc/cpuinfo", "re");
    char line[512];
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        char *at = strchr(line, ':');
        if (!at || strncmp(line, name, strlen(name)))
            continue;
        at += strspn(at, ": \t");
        at[strcspn(at, "\n")] = 0;
        snprintf(value, (size_t)size, "%s", at);
        found = true;
    }
    if (f)
        fclose(f);
    return found;
}

#if defined(__aarch64__)
// ARM's own cores; others are told by their numbers.
static const struct {
    long part;
    const char *name;
} parts[] = {
    {0xd03, "Cortex-A53"}, {0xd05, "Cortex-A55"}, {0xd07, "Cortex-A57"}, {0xd08, "Cortex-A72"},
    {0xd09, "Cortex-A73"}, {0xd0a, "Cortex-A75"}, {0xd0b, "Cortex-A76"}, {0xd0c, "Neoverse-N1"},
    {0xd0d, "Cortex-A77"}, {0xd40, "Neoverse-V1"}, {0xd41, "Cortex-A78"}, {0xd44, "Cortex-X1"},
    {0xd46, "Cortex-A510"}, {0xd47, "Cortex-A710"}, {0xd48, "Cortex-X2"}, {0xd49, "Neoverse-N2"},
    {0xd4f, "Neoverse-V2"}, {0xd84, "Neoverse-V3"}, {0xd8e, "Neoverse-N3"},
};

static void probe_model(struct cpu_info *info)
{
    char maker[16] = "?", part[16] = "?";
    bool known = cpuinfo_line("CPU implementer", maker, sizeof maker);
    if (!cpuinfo_line("CPU part", part, sizeof part) || !known) {
        snprintf(info->model, sizeof info->model, "unknown");
        return;
    }
    snprintf(info->model, sizeof info->model, "implementer %s part %s", maker, part);
    for (size_t i = 0; i < sizeof parts / sizeof *parts && strtol(maker, NULL, 0) == 0x41; i++) {
        if (parts[i].part == strtol(part, NULL, 0))
            snprintf(info->model, sizeof info->model, "%s", parts[i].name);
    }
}
#else
static void probe_model(struct cpu_info *info)
{
    if (!cpuinfo_line("model name", info->model, sizeof info->model))
        snprintf(info->model, sizeof info->model, "unknown");
}
#endif

// A line of sysfs about the i-th cache of the first core; "" when there is none.
static void cache_line(int i, const char *what, char text[32])
{
    char path[96];
    text[0] = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", i, what);
    FILE *f = fopen(path, "re");
    if (f && !fgets(text, 32, f))
        text[0] = 0;
    if (f)
        fclose(f);
}

// Where sysconf has no answer.
static size_t sysfs_cache(int level)
{
    char type[32], text[32];
    for (int i = 0; i < 8; i++) {
        cache_line(i, "level", text);
        cache_line(i, "type", type);
        if (strtol(text, NULL, 10) != level || type[0] == 'I')  // instructions
            continue;
        cache_line(i, "size", text);
        return (size_t)strtol(text, NULL, 10) << 10;  // "512K"
    }
    return 0;
}

static size_t cache_bytes(int name, int level)
{
    long v = sysconf(name);
    return v > 0 ? (size_t)v : sysfs_cache(level);
}

void cpu_probe(struct cpu_info *ret_info)
{
    struct cpu_info info = {0};
    const struct cpu_ops *ops = &ref_ops;
    int cpus[1];
    if (cpu_select("auto", &ops, NULL) == ERR_OK)
        info.isa = ops->isa;
    probe_model(&info);
    probe_features(&info);
    info.cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    info.usable = host_cpus(cpus, 1);
    info.quota = host_quota();
    info.memory = host_memory();
    info.l1d = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, 1);
    info.l2 = cache_bytes(_SC_LEVEL2_CACHE_SIZE, 2);
    info.l3 = cache_bytes(_SC_LEVEL3_CACHE_SIZE, 3);
    *ret_info = info;
}

// ---- ceilings

enum { MEASURE_LANES = 256, MEASURE_REPS = 8 };

struct measure {
    const struct cpu_ops *ops;
    uint8_t *memory;
    size_t bytes;
    long rounds;
    enum int8_sums sums;
    uint64_t seen[MEASURE_LANES];  // keeps the reads
    double rate[MEASURE_LANES];    // operations per second of each lane's own CPU time
};

// A lane counts the time it ran, not the time a neighbour had its core: a ceiling is the machine's, not the moment's.
static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void touch(struct lane *lane, void *arg)
{
    struct measure *m = arg;
    int lo, hi, pages = (int)(m->bytes >> 12);
    lane_split(lane, pages, 1, &lo, &hi);
    for (int i = lo; i < hi; i++)
        m->memory[(size_t)i << 12] = 1;
}

static void run_read(struct lane *lane, void *arg)
{
    struct measure *m = arg;
    int lo, hi, pages = (int)(m->bytes >> 12);
    lane_split(lane, pages, 1, &lo, &hi);
    double start = cpu_seconds();
    m->seen[lane->id] = m->ops->mat->peak_read(m->memory + ((size_t)lo << 12), (size_t)(hi - lo) << 12);
    m->rate[lane->id] = (double)(hi - lo) * 4096 / (cpu_seconds() - start);
}

static void run_fma(struct lane *lane, void *arg)
{
    struct measure *m = arg;
    double start = cpu_seconds(), done = m->ops->mat->peak_fma(m->rounds);
    m->rate[lane->id] = done / (cpu_seconds() - start);
}

static void run_int8(struct lane *lane, void *arg)
{
    struct measure *m = arg;
    double start = cpu_seconds(), done = m->ops->mat->peak_int8(m->rounds);
    m->rate[lane->id] = done / (cpu_seconds() - start);
}

static void run_bf16(struct lane *lane, void *arg)
{
    struct measure *m = arg;
    double start = cpu_seconds(), done = m->ops->mat->peak_bf16(m->rounds);
    m->rate[lane->id] = done / (cpu_seconds() - start);
}

static void run_sums(struct lane *lane, void *arg)
{
    struct measure *m = arg;
    double start = cpu_seconds(), done = m->ops->peak_sums(m->rounds, m->sums);
    m->rate[lane->id] = done / (cpu_seconds() - start);
}

// Of all lanes together, in 1e9 a second.
static double run_rate(struct team *t, team_fn *fn, struct measure *m)
{
    double rate = 0;
    team_run(t, fn, m);
    for (int l = 0; l < team_size(t); l++)
        rate += m->rate[l] * 1e-9;
    return rate;
}

static double best_rate(struct team *t, team_fn *fn, struct measure *m)
{
    double best = 0;
    for (int i = 0; i < MEASURE_REPS; i++) {
        double rate = run_rate(t, fn, m);
        best = rate > best ? rate : best;
    }
    return best;
}

static struct cpu_speed measure_all(struct team *t, struct measure *m)
{
    struct cpu_speed s;
    team_keep_whole(t, true);
    team_run(t, touch, m);
    s.read_gb_s = best_rate(t, run_read, m);
    m->rounds = m->ops == &ref_ops ? 50000 : 1000000;  // 10 to 20 ms
    s.fma_gflop_s = best_rate(t, run_fma, m);
    s.int8_gop_s = best_rate(t, run_int8, m);
    s.bf16_gflop_s = m->ops->mat->peak_bf16 ? best_rate(t, run_bf16, m) : 0;
    if (s.bf16_gflop_s <= 0)
        s.bf16_gflop_s = s.fma_gflop_s;
    m->rounds /= 4;
    for (int i = 0; i < INT8_SUMS; i++) {
        m->sums = (enum int8_sums)i;
        s.sums_gop_s[i] = m->ops->peak_sums ? best_rate(t, run_sums, m) : s.int8_gop_s;
    }
    return s;
}

err_code cpu_measure(int threads, struct cpu_speed *ret_speed, err *e)
{
    const struct cpu_ops *ops;
    err_code code = cpu_select("auto", &ops, e);
    return code ? code : cpu_measure_ops(ops, threads, ret_speed, e);
}

static void measure_free(struct measure *m)
{
    mem_free_pages(m->memory, m->bytes);
    free(m);
}

static err_code measure_new(const struct cpu_ops *ops, struct measure **ret_measure, err *e)
{
    struct measure *m = mem_new(sizeof *m);
    m->ops = ops;
    size_t limit = host_memory() / 8;
    m->bytes = limit < (size_t)128 << 20 ? limit & ~(size_t)4095 : (size_t)128 << 20;  // several times any L3 share
    m->memory = mem_try_pages(m->bytes);
    if (!m->memory) {
        err_set(e, ERR_MEMORY, "no %zu bytes to measure memory with", m->bytes);
        measure_free(m);
        return ERR_MEMORY;
    }
    *ret_measure = m;
    return ERR_OK;
}

err_code cpu_measure_ops(const struct cpu_ops *ops, int threads, struct cpu_speed *ret_speed, err *e)
{
    struct measure *m;
    struct team *t = NULL;
    err_code code = measure_new(ops, &m, e);
    if (code)
        return code;
    code = team_open(threads, true, &t, e);
    if (!code)
        *ret_speed = measure_all(t, m);
    team_close(t);
    measure_free(m);
    return code;
}

struct cpu_meter {
    struct team *team;
    struct measure *m;
};

err_code cpu_meter_open(const struct cpu_ops *ops, struct team *t, struct cpu_meter **ret_meter, err *e)
{
    struct measure *m;
    err_code code = measure_new(ops, &m, e);
    if (code)
        return code;
    team_run(t, touch, m);
    *ret_meter = mem_new(sizeof **ret_meter);
    **ret_meter = (struct cpu_meter){t, m};
    return ERR_OK;
}

void cpu_meter_close(struct cpu_meter *meter)
{
    if (!meter)
        return;
    measure_free(meter->m);
    free(meter);
}

double cpu_meter_read_gb_s(struct cpu_meter *meter)
{
    double rate[3];
    for (int i = 0; i < 3; i++)
        rate[i] = run_rate(meter->team, run_read, meter->m);
    double low = rate[0] < rate[1] ? rate[0] : rate[1], high = rate[0] < rate[1] ? rate[1] : rate[0];
    return rate[2] < low ? low : rate[2] > high ? high : rate[2];
}
