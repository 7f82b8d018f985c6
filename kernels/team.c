// team.c - the pinned worker threads and handing them a function.
//
// team_open creates size - 1 workers; the thread that calls team_run is lane 0. A run is published by changing the word
// `run`; it ends when all lanes have passed the gate. Workers own nothing and never allocate.
#include "kernels/team.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "kernels/host.h"
#include "kernels/lane.h"

enum { TEAM_MAX = 256, TEAM_NICE = 10 };

struct worker {
    struct team *team;
    pthread_t thread;
    int id, cpu;
};

struct team {
    struct lane_gate gate;
    struct lane_word run;  // counts runs
    team_fn *fn;           // of the current run; written before `run` changes
    void *arg;
    bool stop, pin;
    int size, started;
    int cpu0;              // lane 0's core
    pthread_t caller;      // thread that was pinned to it
    bool caller_pinned;
    struct worker workers[TEAM_MAX];
};

static void pin_to(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (cpu < CPU_SETSIZE) {
        CPU_SET(cpu, &set);
        pthread_setaffinity_np(pthread_self(), sizeof set, &set);  // refused in some sandboxes: slower, not wrong
    }
}

static void unpin(void)
{
    int cpus[HOST_MAX_CPUS], n = host_cpus(cpus, HOST_MAX_CPUS);
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < n && i < HOST_MAX_CPUS; i++) {
        if (cpus[i] < CPU_SETSIZE)
            CPU_SET(cpus[i], &set);
    }
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct team *t = w->team;
    if (t->pin) {
        char name[16];
        snprintf(name, sizeof name, "lane-%d", w->id);
        pthread_setname_np(pthread_self(), name);
        pin_to(w->cpu);
    }
    // On Linux the nice value belongs to the thread. Raising it needs no privilege.
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), TEAM_NICE);
    struct lane lane = {.team = t, .id = w->id, .count = t->size};
    for (uint32_t seen = 0;; seen++) {
        lane_wait(&t->run, seen);
        if (t->stop)
            return NULL;
        t->fn(&lane, t->arg);
        lane_pass(&t->gate);
    }
}

static int default_size(int cpus)
{
    double quota = host_quota();
    int n = cpus;
    if (quota > 0 && quota < n) {
        n = (int)quota;
        n += n < quota;
    }
    return n > TEAM_MAX ? TEAM_MAX : n;
}

err_code team_open(int threads, bool pin, struct team **ret_team, err *e)
{
    int cpus[HOST_MAX_CPUS], n = host_cpus(cpus, HOST_MAX_CPUS);
    if (threads < 0 || threads > TEAM_MAX || (pin && threads > n))
        return err_set_param(e, ERR_INVALID, "threads", "%d threads asked for, expected 0 to %d (cores of the cpuset)",
                             threads, n < TEAM_MAX ? n : TEAM_MAX);
    // Zeroed memory from malloc is not aligned to a cache line; the struct asks for it.
    struct team *t = aligned_alloc(64, (sizeof *t + 63) / 64 * 64);
    if (!t)
        return err_set(e, ERR_MEMORY, "no memory for a team of threads");
    memset(t, 0, sizeof *t);
    t->pin = pin;
    t->size = threads ? threads : default_size(n);
    t->gate.count = t->size;
    t->cpu0 = cpus[0];
    for (int i = 1; i < t->size; i++) {
        struct worker *w = &t->workers[i];
        *w = (struct worker){.team = t, .id = i, .cpu = cpus[i % n]};
        if (pthread_create(&w->thread, NULL, work, w)) {
            team_close(t);
            return err_set(e, ERR_MEMORY, "worker thread %d could not be started", i);
        }
        t->started = i;
    }
    *ret_team = t;
    return ERR_OK;
}

void team_close(struct team *t)
{
    if (!t)
        return;
    t->stop = true;
    lane_change(&t->run, atomic_load(&t->run.value) + 1);
    for (int i = 1; i <= t->started; i++)
        pthread_join(t->workers[i].thread, NULL);
    if (t->caller_pinned && pthread_equal(t->caller, pthread_self()))
        unpin();
    free(t);
}

int team_size(const struct team *t)
{
    return t->size;
}

// Lane 0 is whoever calls; it is pinned once, by its first run.
static void pin_caller(struct team *t)
{
    if (!t->pin || (t->caller_pinned && pthread_equal(t->caller, pthread_self())))
        return;
    t->caller = pthread_self();
    t->caller_pinned = true;
    pin_to(t->cpu0);
}

void team_run(struct team *t, team_fn *fn, void *arg)
{
    struct lane lane = {.team = t, .id = 0, .count = t->size};
    if (t->size == 1) {
        fn(&lane, arg);
        return;
    }
    pin_caller(t);
    t->fn = fn;
    t->arg = arg;
    lane_change(&t->run, atomic_load_explicit(&t->run.value, memory_order_relaxed) + 1);
    fn(&lane, arg);
    lane_pass(&t->gate);
}

struct lane_gate *team_gate(struct team *t)
{
    return &t->gate;
}
