// See the header. The task may end before engine_submit has returned, so whoever gives back the last of job->pending
// answers: until then the job is there for both threads.
#include "server/api/job.h"

#include "base/clock.h"
#include "server/api/fields.h"
#include "server/request.h"
#include "server/server.h"

void api_job_init(struct api_job *job, struct request *r, void (*on_event)(struct api_job *job, const struct event *ev),
                  void (*answer)(struct api_job *job))
{
    job->r = r;
    job->engine = server_engine(r->server);
    job->on_event = on_event;
    job->answer = answer;
}

void api_job_read(struct api_job *job, struct fields *f)
{
    api_caller_read(&job->caller, f);
}

static void note(struct api_job *job, const struct event *ev)
{
    struct request_facts *f = &job->facts;
    f->prompt_tokens = ev->usage.prompt_tokens;
    f->cached_tokens = ev->usage.cached_tokens;
    f->completion_tokens = ev->usage.completion_tokens;
    request_note(job->r, f);
}

static void give_back(struct api_job *job)
{
    if (atomic_fetch_sub(&job->pending, 1) == 1)
        job->answer(job);
}

static void on_event(struct task *t, const struct event *ev)
{
    struct api_job *job = t->ud;
    if (ev->kind == EVENT_START || ev->kind == EVENT_END)
        note(job, ev);
    else if (!job->facts.first_ns)
        job->facts.first_ns = clock_ns();
    if (ev->kind != EVENT_END) {
        job->on_event(job, ev);
        return;
    }
    if (!job->error.code)
        job->error = ev->error;
    job->usage = ev->usage;
    give_back(job);
}

struct task *api_job_task(const struct api_job *job, enum task_kind kind, const char *model)
{
    struct task *t = task_new(kind);
    t->model = arena_strdup(&t->arena, model);
    api_caller_fill(&job->caller, t);
    t->on_event = on_event;
    t->ud = (void *)(uintptr_t)job;
    return t;
}

void api_job_cancel(struct api_job *job)
{
    atomic_store(&job->unwanted, true);
    if (atomic_load(&job->submitted))
        engine_cancel(job->engine, job->ticket);
}

static void on_gone(struct request *r)
{
    api_job_cancel(r->ud);
}

void api_job_start(struct api_job *job, struct task *t)
{
    struct ticket ticket;
    err e = {0};
    job->facts.model = arena_strdup(&job->r->arena, t->model);
    request_note(job->r, &job->facts);
    job->r->ud = job;
    job->r->on_gone = on_gone;
    atomic_store(&job->pending, 2);
    if (engine_submit(job->engine, t, &ticket, &e)) {
        task_free(t);
        job->error = e;
        atomic_store(&job->pending, 1);
    } else {
        job->ticket = ticket;
        atomic_store(&job->submitted, true);
        if (atomic_load(&job->unwanted))  // its first event said so before there was a ticket
            engine_cancel(job->engine, ticket);
    }
    give_back(job);
}
