// gate.c - see the header. Whoever waits here naps: a lock that others wait for is held by nobody.
#include "tests/helpers/gate.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>
#include <time.h>

#include "tests/helpers/client.h"

static void nap(void)
{
    nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static void on_event(struct task *t, const struct event *ev)
{
    struct gate *g = t->ud;
    if (ev->kind == EVENT_END) {
        g->error = ev->error;
        atomic_store(&g->ended, 1);
        return;
    }
    atomic_store(&g->held, 1);
    while (!atomic_load(&g->open))
        nap();
}

static void begin(struct gate *g, struct engine *en, struct task *t)
{
    err e = {0};
    memset(g, 0, sizeof *g);
    t->on_event = on_event;
    t->ud = g;
    if (engine_submit(en, t, &g->ticket, &e))
        fail_msg("%s", e.text);
}

static void wait_held(const struct gate *g)
{
    while (!atomic_load(&g->held) && !atomic_load(&g->ended))
        nap();
    if (!atomic_load(&g->held))
        fail_msg("%s", g->error.text);
}

void gate_close(struct gate *g, struct engine *en, const char *model)
{
    static const int32_t id = 1;
    struct task *t = client_task(model, &id, 1);
    t->generate.max_tokens = 1;
    begin(g, en, t);
    wait_held(g);
}

void gate_open(struct gate *g)
{
    atomic_store(&g->open, 1);
    while (!atomic_load(&g->ended))
        nap();
    if (g->error.code)
        fail_msg("%s", g->error.text);
}

void gate_prep(struct gate g[GATE_PREPARERS], struct engine *en, const char *model)
{
    for (int i = 0; i < GATE_PREPARERS; i++) {
        struct task *t = task_new(TASK_LOAD);
        t->model = model;
        begin(&g[i], en, t);
    }
    for (int i = 0; i < GATE_PREPARERS; i++)
        wait_held(&g[i]);
}

void gate_prep_open(struct gate g[GATE_PREPARERS])
{
    for (int i = 0; i < GATE_PREPARERS; i++)
        gate_open(&g[i]);
}

// The line is served in order, and these two are with different threads at the same time: what came before is prepared.
void gate_prepared(struct engine *en, const char *model)
{
    struct gate g[GATE_PREPARERS];
    gate_prep(g, en, model);
    gate_prep_open(g);
}
