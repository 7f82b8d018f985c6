// sim.c - see the header. One thread: turns, steps and events all run on the caller's.
#include "tests/helpers/sim.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/family/family.h"
#include "engine/model.h"
#include "engine/sched/admit.h"
#include "engine/sched/turn.h"
#include "kernels/team.h"

enum { PAGE_BYTES = 2 * 2 * 2 * KV_PAGE_TOKENS * 8, SLOTS = 4096, MAX_TURNS = 3000000 };

double sim_now_s(const struct sim *s)
{
    return (double)fake_now_ns() * 1e-9 - s->start_s;
}

void sim_open(struct sim *s, const struct sim_config *c)
{
    memset(s, 0, sizeof *s);
    err e = {0};
    s->core.config = (struct sched_config){.threads = 1, .max_running = c->max_running, .prefill_chunk = SCHED_MAX_CHUNK};
    s->core.slots = slot_open(&(struct slot_limits){.max_waiting = SLOTS, .max_running = c->max_running});
    s->core.now_ns = fake_now_ns;
    if (team_open(1, false, &s->core.team, &e))
        fail_msg("%s", e.text);
    fake_advance(1);
    for (s->n = 0; s->n < c->models; s->n++) {
        int i = s->n;
        metrics_init(&s->metrics[i]);
        s->fakes[i] = fake_model(SIM_CONTEXT);
        fake_model_set_cost(s->fakes[i], &c->cost[i]);
        if (served_open(&s->core, s->fakes[i], &s->metrics[i], (size_t)c->pages * PAGE_BYTES, &s->models[i], &e))
            fail_msg("%s", e.text);
    }
}

void sim_close(struct sim *s)
{
    for (int i = 0; i < s->n; i++) {
        assert_int_equal(s->models[i]->nrunning + s->models[i]->nwaiting + s->models[i]->nseqs, 0);
        assert_true(prefix_check(s->models[i]->prefix));
        served_close(s->models[i]);
        model_close(s->fakes[i]);
    }
    assert_int_equal(s->core.share.nentries, 0);
    assert_int_equal(slot_unused(s->core.slots), slot_count(s->core.slots));
    share_done(&s->core.share);
    team_close(s->core.team);
    slot_close(s->core.slots);
}

// ---- a job's events

static void on_token(struct sim_job *j, const struct event *ev)
{
    double now = sim_now_s(j->sim);
    for (size_t i = 0; i < ev->ntokens; i++)
        j->got[j->tokens++] = ev->tokens[i].token.id;
    if (j->first_s < 0)
        j->first_s = now;
    else if (now - j->last_s > j->gap_s)
        j->gap_s = now - j->last_s;
    j->last_s = now;
    assert_false(atomic_load(&j->held));
    if (j->hold_at && j->tokens == j->hold_at) {
        j->held_until = now + j->hold_s;
        atomic_store(&j->held, true);
    }
}

static void on_event(struct task *t, const struct event *ev)
{
    struct sim_job *j = t->ud;
    assert_int_equal(j->ends, 0);
    if (ev->kind == EVENT_START)
        j->begun_s = sim_now_s(j->sim);
    else if (ev->kind == EVENT_TEXT)
        on_token(j, ev);
    if (ev->kind != EVENT_END)
        return;
    j->end_s = sim_now_s(j->sim);
    j->error = ev->error.code;
    j->ends++;
}

// ---- submitting

static struct task *make_task(struct sim_job *j)
{
    struct task *t = task_new(j->embed ? TASK_EMBED : TASK_GENERATE);
    t->on_event = on_event;
    t->ud = j;
    t->class = j->class;
    t->account = j->account;
    t->weight = j->weight > 0 ? j->weight : 1;
    t->held = &j->held;
    t->deadline_ns = j->deadline_s > 0 ? fake_now_ns() + (int64_t)(j->deadline_s * 1e9) : 0;
    t->begin_deadline_ns = j->begin_deadline_s > 0 ? fake_now_ns() + (int64_t)(j->begin_deadline_s * 1e9) : 0;
    if (!j->embed) {
        t->generate.sampling.temperature = 0;
        t->generate.logprobs = 0;  // events then carry the ids
        return t;
    }
    struct embed_input *in = arena_alloc(&t->arena, sizeof *in);
    char *text = arena_alloc(&t->arena, (size_t)j->embed);
    memset(text, 'x', (size_t)j->embed);
    *in = (struct embed_input){.text = text, .len = (size_t)j->embed};
    t->embed.inputs = in;
    t->embed.ninputs = 1;
    return t;
}

static void prepare(struct session *s, struct sim_job *j)
{
    err e = {0};
    if (!j->embed) {
        int32_t *ids = mem_new((size_t)j->nprompt * sizeof *ids);
        memcpy(ids, j->ids, (size_t)j->nprompt * sizeof *ids);
        session_set_prompt(s, ids, j->nprompt, j->max_out, NULL);
        return;
    }
    const struct work_ops *ops = s->model->family->embed;
    assert_int_equal(ops->prepare(s->model, s->task, &s->work, &s->prompt_tokens, &e), ERR_OK);
    s->work->ops = ops;
    s->work->model = s->model;
    s->work->task = s->task;
}

static void submit(struct sim *s, struct sim_job *j, int number)
{
    j->sim = s;
    j->begun_s = j->first_s = j->end_s = -1;
    j->ids = mem_new((size_t)(j->nprompt + 1) * sizeof *j->ids);
    j->got = mem_new((size_t)(j->max_out + 1) * sizeof *j->got);
    for (int i = 0; i < j->nprompt; i++)
        j->ids[i] = (int32_t)(rng_u64(j->stem ? (uint64_t)j->stem : 1000 + (uint64_t)number, (uint64_t)i, 5) % FAKE_VOCAB);
    struct ticket ticket;
    err e = {0};
    assert_int_equal(slot_take(s->core.slots, &(struct slot_load){.n = 1}, &ticket, &e), ERR_OK);
    struct session *x = session_new(make_task(j), ticket, s->core.slots);
    served_attach(s->models[j->model], x);
    prepare(x, j);
    session_set_state(x, SESSION_QUEUED);
    admit_arrive(s->models[j->model], x);
}

// ---- the run

static void check(struct sim_job *j)
{
    assert_int_equal(j->ends, 1);
    struct sampling greedy = {.temperature = 0, .top_p = 1, .repetition_penalty = 1};
    int32_t *want = mem_new((size_t)(j->max_out + 1) * sizeof *want);
    if (!j->embed && j->tokens > 0) {
        fake_answer(j->ids, j->nprompt, &greedy, 0, j->max_out, want);
        assert_memory_equal(j->got, want, (size_t)j->tokens * sizeof *want);
    }
    assert_true(j->error || j->embed || j->tokens == j->max_out);
    free(want);
    free(j->ids);
    free(j->got);
    j->ids = j->got = NULL;
}

// Lets readers go on whose time has come; the next such time after now.
static double release(const struct sim *s, struct sim_job *jobs, int n, double next)
{
    for (int i = 0; i < n; i++) {
        if (!atomic_load(&jobs[i].held) || jobs[i].ends)
            continue;
        if (jobs[i].held_until <= sim_now_s(s))
            atomic_store(&jobs[i].held, false);
        else if (jobs[i].held_until < next)
            next = jobs[i].held_until;
    }
    return next;
}

void sim_run(struct sim *s, struct sim_job *jobs, int n)
{
    s->start_s = (double)fake_now_ns() * 1e-9;
    int sent = 0, ended = 0, turns = 0;
    while (ended < n) {
        while (sent < n && jobs[sent].at_s <= sim_now_s(s)) {
            submit(s, &jobs[sent], sent);
            sent++;
        }
        double next = release(s, jobs, sent, sent < n ? jobs[sent].at_s : sim_now_s(s) + 1);
        if (!turn_make(&s->core, s->models, s->n) && next > sim_now_s(s))
            fake_advance(next - sim_now_s(s) + 1e-9);
        if (++turns > MAX_TURNS)
            fail_msg("%d of %d jobs ended after %d turns, %.1f s", ended, n, turns, sim_now_s(s));
        for (ended = 0; ended < sent && jobs[ended].ends; ended++)
            ;
    }
    s->steps = s->preempted = 0;
    for (int i = 0; i < s->n; i++) {
        s->steps += s->metrics[i].steps;
        s->preempted += s->metrics[i].preemptions;
    }
    for (int i = 0; i < n; i++)
        check(&jobs[i]);
}
