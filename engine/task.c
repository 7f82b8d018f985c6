// task.c - making and freeing a task. Its maker owns it until submit accepts it, then the engine does.
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/engine.h"

struct task *task_new(enum task_kind kind)
{
    struct task *t = mem_new(sizeof *t);
    t->kind = kind;
    if (kind != TASK_GENERATE) {
        t->tokenize.prompt.add_generation_prompt = true;
        return t;
    }
    struct generate *g = &t->generate;
    g->prompt.add_generation_prompt = true;
    g->sampling = (struct sampling){.temperature = 1, .top_p = 1, .repetition_penalty = 1, .seed = rng_os()};
    g->max_tokens = -1;
    g->n = 1;
    g->logprobs = -1;
    return t;
}

void task_free(struct task *t)
{
    if (!t)
        return;
    arena_done(&t->arena);
    free(t);
}
