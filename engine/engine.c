// engine.c - the door: opens and closes the parts, and passes on. Any thread.
//
// Threads: the loader and the keeper (catalog.c), the prep threads, the scheduler.
#include "engine/engine.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/mem.h"
#include "engine/catalog.h"
#include "engine/memory.h"
#include "engine/model.h"
#include "engine/sched/line.h"
#include "engine/sched/prep.h"
#include "engine/sched/sched.h"
#include "engine/sched/slot.h"
#include "kernels/cpu.h"
#include "kernels/team.h"

enum { DEFAULT_WAITING = 256, DEFAULT_RUNNING = 16, MAX_RUNNING = 1024, PREP_THREADS = 2 };

struct engine {
    const struct cpu_ops *ops;
    struct memory memory;
    struct slot_table *slots;
    struct line *line;
    struct sched *sched;
    struct prep *prep;
    struct catalog *catalog;
    atomic_bool draining;
};

// ---- open and close

static err_code start(struct engine *en, const struct engine_config *c, err *e)
{
    int waiting = c->max_waiting > 0 ? c->max_waiting : DEFAULT_WAITING;
    int running = c->max_running > 0 ? c->max_running : DEFAULT_RUNNING;
    if (running > MAX_RUNNING)
        return err_set_param(e, ERR_INVALID, "max_running", "max_running is %d, at most %d", c->max_running, MAX_RUNNING);
    en->slots = slot_open(&(struct slot_limits){waiting, running, c->max_waiting_tokens, c->max_waiting_bytes});
    struct sched_config sc = {c->threads, c->pin, running, c->prefill_chunk, &en->memory};
    en->line = line_new(PREP_THREADS);
    if (sched_open(&sc, en->slots, en->line, &en->sched, e))
        return e->code;
    en->prep = prep_open(PREP_THREADS, en->line, en->sched);
    if (!en->prep)
        return err_set(e, ERR_MEMORY, "the engine's threads cannot be started");
    struct catalog_config cc = {
        .ops = en->ops,
        .slots = en->slots,
        .sched = en->sched,
        .prep = en->prep,
        .memory = &en->memory,
        .kv_bytes = c->kv_percent ? memory_total(&en->memory) / 100 * (size_t)c->kv_percent : c->kv_bytes,
        .load_timeout_s = c->load_timeout_s,
        .idle_unload_s = c->idle_unload_s,
        .on_model = c->on_model,
        .on_model_arg = c->on_model_arg,
    };
    return catalog_open(&cc, &en->catalog, e);
}

err_code engine_check_isa(const char *isa, err *e)
{
    const struct cpu_ops *ops;
    return cpu_select(isa, &ops, e);
}

err_code engine_check_threads(int threads, bool pin, err *e)
{
    return team_check(threads, pin, e);
}

err_code engine_open(const struct engine_config *c, struct engine **ret_engine, err *e)
{
    err local = {0};
    e = e ? e : &local;
    struct engine *en = mem_new(sizeof *en);
    memory_init(&en->memory, c->memory_percent ? memory_share(c->memory_percent) : memory_budget(c->memory));
    if (cpu_select(c->isa, &en->ops, e) || start(en, c, e)) {
        engine_close(en);
        return e->code;
    }
    *ret_engine = en;
    return ERR_OK;
}

void engine_close(struct engine *en)
{
    if (!en)
        return;
    atomic_store(&en->draining, true);
    catalog_stop(en->catalog);
    prep_close(en->prep);
    sched_close(en->sched);
    catalog_free(en->catalog);
    sched_free(en->sched);
    line_free(en->line);
    slot_close(en->slots);
    memory_done(&en->memory);
    free(en);
}

// ---- models

err_code engine_add_model(struct engine *en, const struct model_config *c, err *e)
{
    err local = {0};
    return catalog_add(en->catalog, c, e ? e : &local);
}

err_code engine_add_open_model(struct engine *en, const char *name, struct model *m, err *e)
{
    err local = {0};
    return catalog_add_open(en->catalog, name, m, e ? e : &local);
}

err_code engine_add_alias(struct engine *en, const char *alias, const char *name, err *e)
{
    err local = {0};
    return catalog_alias(en->catalog, alias, name, e ? e : &local);
}

int engine_models(struct engine *en, struct model_info *ret_infos, int max)
{
    return catalog_list(en->catalog, ret_infos, max);
}

bool engine_find_model(struct engine *en, const char *name, struct model_info *ret_info)
{
    return catalog_find(en->catalog, name, ret_info);
}

const struct metrics *engine_metrics(struct engine *en, const char *name)
{
    return catalog_metrics(en->catalog, name);
}

err_code engine_wait_model(struct engine *en, const char *name, err *e)
{
    return catalog_wait(en->catalog, name, e);
}

err_code engine_load_model(struct engine *en, const char *name, err *e)
{
    return catalog_load(en->catalog, name, e);
}

err_code engine_unload_model(struct engine *en, const char *name, err *e)
{
    return catalog_unload(en->catalog, name, e);
}

// ---- tasks

err_code engine_submit(struct engine *en, struct task *t, struct ticket *ret_ticket, err *e)
{
    err local = {0};
    e = e ? e : &local;
    if (atomic_load(&en->draining))
        return err_set(e, ERR_DRAINING, "the server is shutting down");
    return catalog_submit(en->catalog, t, ret_ticket, e);
}

err_code engine_room(struct engine *en, const char *account, size_t bytes, err *e)
{
    if (atomic_load(&en->draining))
        return err_set(e, ERR_DRAINING, "the server is shutting down");
    return slot_room(en->slots, &(struct slot_load){account, 1, 0, bytes}, e);
}

void engine_cancel(struct engine *en, struct ticket ticket)
{
    if (!slot_cancel(en->slots, ticket))
        return;
    sched_wake(en->sched);
    catalog_cancelled(en->catalog);
}

void engine_wake(struct engine *en)
{
    sched_wake(en->sched);
}

void engine_drain(struct engine *en)
{
    atomic_store(&en->draining, true);
    catalog_drain(en->catalog);
}

void engine_memory(struct engine *en, struct engine_memory *ret_memory)
{
    ret_memory->total = memory_total(&en->memory);
    ret_memory->weights = memory_used(&en->memory, MEMORY_WEIGHTS);
    ret_memory->kv = memory_used(&en->memory, MEMORY_KV);
    ret_memory->step = memory_used(&en->memory, MEMORY_STEP);
    ret_memory->works = memory_used(&en->memory, MEMORY_WORKS);
}

void engine_stats(struct engine *en, struct engine_stats *ret_stats)
{
    *ret_stats = (struct engine_stats){
        .waiting = slot_waiting(en->slots),
        .free_slots = slot_unused(en->slots),
        .heartbeat_ns = sched_heartbeat_ns(en->sched),
    };
    engine_memory(en, &ret_stats->memory);
    catalog_stats(en->catalog, ret_stats);
}

int64_t engine_heartbeat_ns(const struct engine *en)
{
    return sched_heartbeat_ns(en->sched);
}

bool engine_check(struct engine *en, bool flush)
{
    return sched_check(en->sched, flush);
}
