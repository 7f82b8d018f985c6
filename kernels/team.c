// team.c - the pinned worker threads and handing them a function.
//
// The thread that calls team_run is lane 0; the others are workers. A run is published by changing the word `go` of
// each worker that takes part; it ends when all lanes have passed the gate. Workers own nothing and never allocate.
//
// A pinned team has one worker for each of its cores, also for lane 0's: at each run the caller stands on the first
// core that takes part, and workers on the other ones (cores.h chooses). A worker whose core sits out sleeps; now and
// then it is asked to try whether its core is free, which costs the running lanes nothing.
#include "kernels/team.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kernels/cores.h"
#include "kernels/host.h"
#include "kernels/lane.h"

enum {
    TEAM_MAX = CORES_MAX,
    TEAM_NICE = 10,
    LATE_NS = 200 * 1000,         // a worker may take as long to wake up
    PROBE_NS = 12 * 1000 * 1000,  // longer than a time slice of the kernels in use
    PROBE_LOST_NS = PROBE_NS / 6,
};

enum probed { PROBED_NOT, PROBED_FREE, PROBED_BUSY };

struct worker {
    struct lane_word go;  // counts orders
    struct team *team;
    pthread_t thread;
    int cpu;
    bool started;
    // The order, written before `go` changes: try the core, or be lane `id` of the run.
    bool probe;
    int id;
    int64_t asked_ns;  // when the probe was ordered
    _Atomic int probed;
    int64_t lost_ns;  // of the run that has ended
};

struct team {
    struct lane_gate gate;
    team_fn *fn;  // of the present run
    void *arg;
    int count;             // lanes of it
    int64_t published_ns;
    atomic_bool stop;
    bool pin, whole;
    int size;
    pthread_t caller;      // thread that was pinned
    int caller_cpu;        // to this core; -1: none yet
    struct cores cores;
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

// ---- what a lane loses

struct meter {
    int64_t cpu, parked;
};

static int64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static struct meter meter_start(void)
{
    return (struct meter){cpu_ns(), lane_parked_ns()};
}

// Time since `from` in which this thread neither ran nor waited for the others. begun is when the meter was started.
static int64_t meter_lost(const struct meter *m, int64_t from, int64_t begun)
{
    int64_t late = begun - from, now = clock_ns();
    int64_t ran = cpu_ns() - m->cpu, parked = lane_parked_ns() - m->parked;
    return (now - begun) - ran - parked + (late > LATE_NS ? late : 0);
}

// ---- workers

// Spins for longer than a time slice. Whoever shares the core takes its part of that; a free core takes nothing.
static enum probed probe(void)
{
    int64_t start = clock_ns(), cpu = cpu_ns(), lost = 0, spent = 0;
    while (spent < PROBE_NS && lost < PROBE_LOST_NS) {
        for (int i = 0; i < 500; i++)
            lane_relax();
        spent = clock_ns() - start;
        lost = spent - (cpu_ns() - cpu);
    }
    return lost < PROBE_LOST_NS ? PROBED_FREE : PROBED_BUSY;
}

static void do_probe(struct worker *w)
{
    bool late = clock_ns() - w->asked_ns > PROBE_LOST_NS;
    atomic_store(&w->probed, late ? PROBED_BUSY : probe());
}

static void do_run(struct worker *w)
{
    struct team *t = w->team;
    struct lane lane = {.team = t, .id = w->id, .count = t->count};
    if (t->pin) {
        int64_t begun = clock_ns();
        struct meter m = meter_start();
        t->fn(&lane, t->arg);
        w->lost_ns = meter_lost(&m, t->published_ns, begun);
    } else {
        t->fn(&lane, t->arg);
    }
    lane_pass(&t->gate);
}

// A nice value that the process was started with is somebody's will and stays. On Linux it belongs to the thread;
// raising it needs no privilege.
static void set_nice(void)
{
    id_t self = (id_t)syscall(SYS_gettid);
    errno = 0;
    if (getpriority(PRIO_PROCESS, self) == 0 && errno == 0)
        setpriority(PRIO_PROCESS, self, TEAM_NICE);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct team *t = w->team;
    if (t->pin) {
        char name[16];
        snprintf(name, sizeof name, "lane-%d", (int)(w - t->workers) % 1000);
        pthread_setname_np(pthread_self(), name);
        pin_to(w->cpu);
    }
    set_nice();
    for (uint32_t seen = 0;; seen++) {
        lane_wait(&w->go, seen);
        if (atomic_load(&t->stop))
            return NULL;
        if (w->probe)
            do_probe(w);
        else
            do_run(w);
    }
}

static void order(struct worker *w)
{
    lane_change(&w->go, atomic_load_explicit(&w->go.value, memory_order_relaxed) + 1);
}

// ---- opening and closing

static int default_size(int cpus)
{
    int n = host_cores_for(cpus, host_quota());
    return n > TEAM_MAX ? TEAM_MAX : n;
}

static err_code check_threads(int threads, bool pin, int cpus, err *e)
{
    if (threads < 0 || threads > TEAM_MAX || (pin && threads > cpus))
        return err_set_param(e, ERR_INVALID, "threads", "%d threads asked for, expected 0 to %d (cores of the cpuset)",
                             threads, cpus < TEAM_MAX ? cpus : TEAM_MAX);
    return ERR_OK;
}

err_code team_check(int threads, bool pin, err *e)
{
    int cpus[HOST_MAX_CPUS];
    return check_threads(threads, pin, host_cpus(cpus, HOST_MAX_CPUS), e);
}

err_code team_open(int threads, bool pin, struct team **ret_team, err *e)
{
    int cpus[HOST_MAX_CPUS], n = host_cpus(cpus, HOST_MAX_CPUS);
    if (check_threads(threads, pin, n, e))
        return e ? e->code : ERR_INVALID;
    // Zeroed memory from malloc is not aligned to a cache line; the struct asks for it.
    struct team *t = aligned_alloc(64, (sizeof *t + 63) / 64 * 64);
    if (!t)
        return err_set(e, ERR_MEMORY, "no memory for a team of threads");
    memset(t, 0, sizeof *t);
    t->size = threads ? threads : default_size(n);
    t->pin = pin && t->size > 1;
    t->caller_cpu = -1;
    cores_init(&t->cores, t->size);
    for (int i = 0; i < t->size; i++) {
        struct worker *w = &t->workers[i];
        w->team = t;
        w->cpu = cpus[i % n];
        if (i == 0 && !t->pin)  // nobody ever stands in for the caller
            continue;
        if (pthread_create(&w->thread, NULL, work, w)) {
            team_close(t);
            return err_set(e, ERR_MEMORY, "worker thread %d could not be started", i);
        }
        w->started = true;
    }
    *ret_team = t;
    return ERR_OK;
}

void team_close(struct team *t)
{
    if (!t)
        return;
    atomic_store(&t->stop, true);
    for (int i = 0; i < t->size; i++) {
        if (!t->workers[i].started)
            continue;
        order(&t->workers[i]);
        pthread_join(t->workers[i].thread, NULL);
    }
    if (t->caller_cpu >= 0 && pthread_equal(t->caller, pthread_self()))
        unpin();
    free(t);
}

int team_size(const struct team *t)
{
    return t->size;
}

void team_keep_whole(struct team *t, bool whole)
{
    t->whole = whole;
}

// ---- runs

static void stand_on(struct team *t, int cpu)
{
    if (t->caller_cpu == cpu && pthread_equal(t->caller, pthread_self()))
        return;
    t->caller = pthread_self();
    t->caller_cpu = cpu;
    pin_to(cpu);
}

// Takes the answers of workers that tried their cores, and asks those that are due.
static void try_cores(struct team *t)
{
    for (int i = 0; i < t->size; i++) {
        struct worker *w = &t->workers[i];
        int probed = atomic_load(&w->probed);
        if (probed != PROBED_NOT) {
            atomic_store(&w->probed, PROBED_NOT);
            cores_probed(&t->cores, i, t->published_ns, probed == PROBED_FREE);
        }
        if (cores_wants_probe(&t->cores, i, t->published_ns)) {
            w->probe = true;
            w->asked_ns = t->published_ns;
            order(w);
        }
    }
}

// The workers of this run, in the order of their lanes from 1; the first core is the caller's own.
static int choose(struct team *t, int *list)
{
    if (t->pin) {
        t->published_ns = clock_ns();
        if (t->cores.left_out)
            try_cores(t);
    }
    if (t->pin && !t->whole)
        return cores_active(&t->cores, list);
    for (int i = 0; i < t->size; i++)
        list[i] = i;
    return t->size;
}

static void account(struct team *t, const int *list, int64_t own)
{
    int64_t lost[TEAM_MAX], now = clock_ns();
    lost[list[0]] = own;
    for (int i = 1; i < t->count; i++)
        lost[list[i]] = t->workers[list[i]].lost_ns;
    cores_ran(&t->cores, now, now - t->published_ns, lost);
}

void team_run(struct team *t, team_fn *fn, void *arg)
{
    int list[TEAM_MAX];
    if (t->size == 1) {
        fn(&(struct lane){.team = t, .id = 0, .count = 1}, arg);
        return;
    }
    t->count = t->gate.count = choose(t, list);
    t->fn = fn;
    t->arg = arg;
    if (t->pin)
        stand_on(t, t->workers[list[0]].cpu);
    for (int i = 1; i < t->count; i++) {
        struct worker *w = &t->workers[list[i]];
        w->probe = false;
        w->id = i;
        order(w);
    }
    struct lane lane = {.team = t, .id = 0, .count = t->count};
    struct meter m = t->pin ? meter_start() : (struct meter){0};
    fn(&lane, arg);
    int64_t own = t->pin ? meter_lost(&m, t->published_ns, t->published_ns) : 0;
    lane_pass(&t->gate);
    if (t->pin && !t->whole)
        account(t, list, own);
}

struct lane_gate *team_gate(struct team *t)
{
    return &t->gate;
}

struct cores *team_cores(struct team *t)
{
    return &t->cores;
}
