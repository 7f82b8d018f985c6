// fake.h - a fake engine and fake answers for the tests of server/api. Defines what the handlers call, so that the
// linker takes these instead of the real ones; include it in one file of a program only.
#pragma once

#include "tests/unit/server/api/fake_server.h"
#include "tests/unit/server/api/fake_state.h"

// ---- engine

struct task *task_new(enum task_kind kind)
{
    struct task *t = mem_new(sizeof *t);
    t->kind = kind;
    if (kind == TASK_GENERATE) {
        t->generate.sampling = (struct sampling){.temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = 77};
        t->generate.n = 1;
        t->generate.max_tokens = t->generate.logprobs = -1;
    }
    return t;
}

void task_free(struct task *t)
{
    arena_done(&t->arena);
    free(t);
}

err_code engine_submit(struct engine *en, struct task *t, struct ticket *ret_ticket, err *e)
{
    (void)en;
    if (fake.refuse.code && fake.ntasks >= fake.refuse_at) {
        *e = fake.refuse;
        return e->code;
    }
    *ret_ticket = (struct ticket){(uint32_t)fake.ntasks, 1};
    fake.tasks[fake.ntasks++] = t;
    return ERR_OK;
}

void engine_cancel(struct engine *en, struct ticket ticket)
{
    (void)en;
    __atomic_store_n(&fake.cancelled[ticket.slot], true, __ATOMIC_SEQ_CST);
}

int engine_models(struct engine *en, struct model_info *ret_infos, int max)
{
    (void)en;
    for (int i = 0; i < fake.nmodels && i < max; i++)
        ret_infos[i] = fake.models[i];
    return fake.nmodels;
}

bool engine_find_model(struct engine *en, const char *name, struct model_info *ret_info)
{
    (void)en;
    for (int i = 0; i < fake.nmodels; i++)
        if (!strcmp(fake.models[i].name, name)) {
            *ret_info = fake.models[i];
            return true;
        }
    return false;
}

err_code engine_room(struct engine *en, const char *account, size_t bytes, err *e)
{
    (void)en, (void)account;
    assert_true(bytes > 0);
    return fake.room.code ? (*e = fake.room, e->code) : ERR_OK;
}

err_code engine_load_model(struct engine *en, const char *name, err *e)
{
    (void)en;
    fake.loaded = name;
    return fake.refuse.code ? (*e = fake.refuse, e->code) : ERR_OK;
}

err_code engine_unload_model(struct engine *en, const char *name, err *e)
{
    (void)en;
    fake.unloaded = name;
    return fake.refuse.code ? (*e = fake.refuse, e->code) : ERR_OK;
}
