// pool.h - threads for work that would block: encoding pictures. Jobs come from any thread and run in no special order.
//
//     struct pool *p = pool_open(2);
//     if (!pool_post(p, job, arg)) job(arg);     // full, or closed: the caller does it itself
//     pool_close(p);                             // runs what waits, then ends the threads; posts are refused from now on
//     pool_unref(p);
//
// Reference counted, because requests may outlive the server that opened it.
#pragma once

#include <stdbool.h>

struct pool;
typedef void pool_job(void *arg);

struct pool *pool_open(int threads);  // NULL: no thread can be started
void pool_close(struct pool *p);      // once, by whoever opened it; accepts NULL
struct pool *pool_ref(struct pool *p);
void pool_unref(struct pool *p);      // accepts NULL
bool pool_post(struct pool *p, pool_job *job, void *arg);  // p NULL: false
