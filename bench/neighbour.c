// neighbour.c - decode beside a process that keeps one core busy: neighbour MODEL [SECONDS [FIRST|LAST]]
//
// One JSON line a phase: one thread alone; all threads alone; beside a busy loop at nice 0 and at nice 10, pinned to
// the first or last core of the team; and after it has ended. A loaded machine adds neighbours of its own: the ratios
// to lines of the same run count.
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/tools/runner.h"
#include "kernels/cores.h"
#include "kernels/host.h"
#include "kernels/lane.h"

static struct runner *r;
static double seconds = 3;
static int busy_core;

static pid_t busy_loop(int nice_value)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(busy_core, &set);
    if (sched_setaffinity(0, sizeof set, &set) || setpriority(PRIO_PROCESS, 0, nice_value))
        _exit(1);
    for (volatile long i = 0;; i++)
        ;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void decode(const char *phase, double s)
{
    struct kv_seq seq;
    err e = {0};
    int32_t id = 7;
    int steps = 0, fewer = 0;
    double start = clock_s(), worst = 0;
    kv_seq_init(&seq, r->pool);
    while (clock_s() - start < s) {
        double t = clock_s();
        if (runner_step(r, &(struct piece){&seq, &id, 1, PIECE_LAST}, 1, &e)) {
            fprintf(stderr, "%s\n", e.text);
            exit(1);
        }
        t = clock_s() - t;
        worst = t > worst ? t : worst;
        steps++;
        fewer += team_cores(r->team)->left_out > 0;
        if (seq.len == 64) {
            kv_seq_done(&seq);
            kv_seq_init(&seq, r->pool);
        }
    }
    double rate = steps / (clock_s() - start);
    kv_seq_done(&seq);
    printf("{\"bench\": \"neighbour\", \"phase\": \"%s\", \"threads\": %d, \"tok_s\": %.1f, \"worst_ms\": %.1f, "
           "\"fewer_cores\": %.2f}\n", phase, team_size(r->team), rate, worst * 1e3, (double)fewer / steps);
    fflush(stdout);
}

static void open_runner(const char *path, int threads)
{
    err e = {0};
    struct tools_model m = {.path = path, .threads = threads};
    if (runner_open(&m, 8, 1, 1, 1024, true, &r, &e)) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
    decode("warm up", 0.3);
}

int main(int argc, char **argv)
{
    int cpus[HOST_MAX_CPUS], n = host_cpus(cpus, HOST_MAX_CPUS);
    if (argc < 2)
        return 2;
    if (argc > 2)
        seconds = atof(argv[2]);
    open_runner(argv[1], 1);
    decode("one thread", seconds);
    runner_close(r);
    open_runner(argv[1], 0);
    n = team_size(r->team) < n ? team_size(r->team) : n;
    busy_core = cpus[argc > 3 && strcmp(argv[3], "FIRST") == 0 ? 0 : n - 1];
    decode("all threads", seconds);
    static const int nices[] = {0, 10};
    for (int i = 0; i < 2; i++) {
        char phase[64];
        snprintf(phase, sizeof phase, "beside nice %d", nices[i]);
        pid_t pid = busy_loop(nices[i]);
        decode(phase, seconds);
        end(pid);
        decode("the second after", 1);
        decode("then", seconds);
    }
    runner_close(r);
    return 0;
}
