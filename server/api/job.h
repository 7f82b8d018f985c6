// job.h - a request that is one task: hand it over, listen, answer once, cancel when nobody waits.
//
//     struct mine { struct api_job job; ... };             // in the request's arena
//     api_job_init(&m->job, r, on_event, answer);
//     api_job_read(&m->job, &f);                              // what caller.h says
//     struct task *t = api_job_task(&m->job, TASK_SPEAK, model_name);
//     ... fill t->speak; what it points to is the task's own ...
//     api_job_start(&m->job, t);
//
// on_event runs on engine threads, once at a time, for every event but the last. answer runs once, after the last event
// or a refusal, on whichever thread that is; job.error says how the task went; it must answer the request, and the job is
// gone with it.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"
#include "server/api/caller.h"
#include "server/request.h"

struct fields;

struct api_job {
    struct request *r;
    struct engine *engine;
    void (*on_event)(struct api_job *job, const struct event *ev);
    void (*answer)(struct api_job *job);
    err error;           // why the task ended; ERR_OK: well
    struct usage usage;
    struct api_caller caller;
    // The rest is job.c's.
    struct ticket ticket;
    atomic_int pending;  // the task, and the loop thread while it submits
    atomic_bool submitted, unwanted;
    struct request_facts facts;
};

void api_job_init(struct api_job *job, struct request *r, void (*on_event)(struct api_job *job, const struct event *ev),
                  void (*answer)(struct api_job *job));
// Who it is for and how soon. Always before api_job_task.
void api_job_read(struct api_job *job, struct fields *f);
struct task *api_job_task(const struct api_job *job, enum task_kind kind, const char *model);
void api_job_start(struct api_job *job, struct task *t);
// From on_event: stop, the answer will be an error or nobody is there.
void api_job_cancel(struct api_job *job);
