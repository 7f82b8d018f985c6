// open.c - opening a model from the page cache: open MODEL [REPS]
//
// One JSON line: the fastest wall time of opening, its CPU time, and the most memory in use meanwhile beside what is in
// use afterwards (resident, mapped file pages included). Each repetition is a process of its own.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/model.h"

struct figures {
    double wall, cpu, peak_mb, final_mb, file_mb;
};

static double status_mb(const char *key)
{
    char line[256];
    double kb = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f)) {
        if (!strncmp(line, key, strlen(key)))
            kb = atof(line + strlen(key) + 1);
    }
    if (f)
        fclose(f);
    return kb / 1024;
}

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static void read_all(const char *path)
{
    static char buffer[1 << 20];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && read(fd, buffer, sizeof buffer) > 0)
        ;
    if (fd >= 0)
        close(fd);
}

static int measure(const char *path, struct figures *f)
{
    struct model_options o = {.math = MAT_INT8, .kv = KV_F16};
    const struct cpu_ops *ops;
    struct model *m;
    err e = {0};
    double start = clock_s(), cpu = cpu_s();
    if (cpu_select("auto", &ops, &e) || model_open(path, &o, ops, &m, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    f->wall = clock_s() - start;
    f->cpu = cpu_s() - cpu;
    f->peak_mb = status_mb("VmHWM:");
    f->final_mb = status_mb("VmRSS:");
    f->file_mb = status_mb("RssFile:");
    model_close(m);
    return 0;
}

int main(int argc, char **argv)
{
    struct figures best = {.wall = 1e9}, f;
    int reps = argc > 2 ? atoi(argv[2]) : 5;
    if (argc < 2)
        return 2;
    read_all(argv[1]);
    for (int i = 0; i < reps; i++) {
        int fd[2], status;
        if (pipe(fd))
            return 1;
        pid_t pid = fork();
        if (pid == 0)
            _exit(measure(argv[1], &f) || write(fd[1], &f, sizeof f) != sizeof f);
        close(fd[1]);
        bool got = read(fd[0], &f, sizeof f) == sizeof f;
        close(fd[0]);
        waitpid(pid, &status, 0);
        if (!got)
            return 1;
        double peak = f.peak_mb - f.final_mb > best.peak_mb - best.final_mb || i == 0 ? f.peak_mb : best.peak_mb;
        if (f.wall < best.wall)
            best = f;
        best.peak_mb = peak;
    }
    printf("{\"bench\": \"open\", \"wall_s\": %.3f, \"cpu_s\": %.3f, \"peak_mb\": %.0f, \"final_mb\": %.0f, \"over_mb\": %.1f, "
           "\"file_pages_mb\": %.1f, \"model\": \"%s\"}\n",
           best.wall, best.cpu, best.peak_mb, best.final_mb, best.peak_mb - best.final_mb, best.file_mb, argv[1]);
    return 0;
}
