// task.c - making and freeing a task. Its maker owns it until submit accepts it, then the engine does.
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/task.h"

static const char *const breakers[] = {"\n", ":", "\"", "*"};

// What is off has llama-server's defaults beside it, for who turns it on.
static const struct sampling plain = {
    .temperature = 1, .top_p = 1, .repetition_penalty = 1,
    .xtc_threshold = 0.1f,
    .dry_base = 1.75f, .dry_allowed_length = 2, .dry_last_n = -1, .dry_breakers = breakers,
    .ndry_breakers = sizeof breakers / sizeof *breakers,
    .mirostat_tau = 5, .mirostat_eta = 0.1f,
    .dynatemp_exponent = 1,
};

static void generate_defaults(struct generate *g)
{
    g->prompt.add_generation_prompt = true;
    g->sampling = plain;
    g->sampling.seed = rng_os();
    g->max_tokens = -1;
    g->n = 1;
    g->logprobs = g->prompt_logprobs = -1;
    g->reasoning_max = -1;
}

struct task *task_new(enum task_kind kind)
{
    struct task *t = mem_new(sizeof *t);
    t->kind = kind;
    t->arrived_ns = clock_ns();
    t->weight = 1;
    switch (kind) {
    case TASK_GENERATE:
        generate_defaults(&t->generate);
        break;
    case TASK_TRANSCRIBE:
        t->transcribe.seed = rng_os();
        break;
    case TASK_SPEAK:
        t->speak.sampling = (struct sampling){.temperature = 0.6f, .top_p = 0.8f, .repetition_penalty = 1.1f,
                                              .seed = rng_os()};
        break;
    case TASK_IMAGE:
        t->image.n = 1;
        t->image.guidance = -1;
        t->image.seed = rng_os();
        break;
    case TASK_EMBED:
    case TASK_DECIDE:
        break;
    default:
        t->tokenize.prompt.add_generation_prompt = true;
    }
    return t;
}

void task_free(struct task *t)
{
    if (!t)
        return;
    arena_done(&t->arena);
    free(t);
}
