// sim.h - the scheduler without its thread: jobs arrive on the fake model's clock, and every turn is made by the caller.
// The same jobs give the same times on every machine. All answers are compared with fake_answer.
//
//     struct sim s;
//     sim_open(&s, &(struct sim_config){.models = 1, .pages = 100, .max_running = 8, .cost = {...}});
//     struct sim_job jobs[] = {{.at_s = 0, .nprompt = 100, .max_out = 50}, ...};    // by at_s
//     sim_run(&s, jobs, n);                     // until all ended
//     sim_close(&s);
#pragma once

#include <stdatomic.h>

#include "engine/metrics.h"
#include "engine/sched/served.h"
#include "tests/helpers/fake_model.h"

enum { SIM_MODELS = 3, SIM_CONTEXT = 8192 };

struct sim_config {
    int models, pages, max_running;
    struct fake_cost cost[SIM_MODELS];
};

struct sim {
    struct sched_core core;
    struct served *models[SIM_MODELS];
    struct model *fakes[SIM_MODELS];
    struct metrics metrics[SIM_MODELS];
    int n;
    double start_s;
    uint64_t steps, preempted;
};

struct sim_job {
    // asked
    double at_s;            // seconds after sim_run began
    int model, nprompt, max_out, stem;  // stem: prompts with the same one begin alike; 0: with nobody
    int embed;              // bytes of an embedding instead; 0: text generation
    enum task_class class;
    const char *account;
    float weight;           // 0: 1
    double deadline_s, begin_deadline_s;  // after at_s; 0: none
    int hold_at;            // after so many tokens its reader stops; 0: never
    double hold_s;          // for so long
    // seen; seconds after sim_run began
    double begun_s, first_s, last_s, end_s, gap_s;  // gap_s: the longest between two tokens
    int tokens, ends;
    err_code error;
    // the helper's own
    struct sim *sim;
    atomic_bool held;
    double held_until;
    int32_t *ids, *got;
};

void sim_open(struct sim *s, const struct sim_config *c);
void sim_run(struct sim *s, struct sim_job *jobs, int n);
void sim_close(struct sim *s);
double sim_now_s(const struct sim *s);
