// What a handler may ask of a request, and extra headers of its answer.
#include "server/request.h"

#include <stdio.h>
#include <strings.h>

#include "server/exchange.h"
#include "server/state.h"

const char *request_header(const struct request *r, const char *name)
{
    const struct exchange *x = exchange_of(r);
    return guard_find(x->headers, x->nheaders, name);
}

const char *request_given_key(const struct request *r)
{
    const char *authorization = request_header(r, "Authorization");
    const char *key = authorization ? auth_bearer(authorization) : NULL;
    if (!key)
        key = request_header(r, "X-Api-Key");
    return key ? key : request_header(r, "Api-Key");
}

const char *request_query(const struct request *r, const char *name)
{
    struct exchange *x = exchange_of(r);
    return uri_query(&x->r.arena, x->uri.query, name);
}

void request_set_header(struct request *r, const char *name, const char *value)
{
    struct exchange *x = exchange_of(r);
    const char *copy = arena_strdup(&r->arena, value);
    struct out_header *fresh = arena_alloc(&r->arena, sizeof *fresh);
    *fresh = (struct out_header){NULL, arena_strdup(&r->arena, name), copy};
    // The loop may be sending another answer meanwhile, when it gave up on this one.
    pthread_mutex_lock(&x->lock);
    struct out_header *h = x->out_headers;
    while (h && strcasecmp(h->name, name) != 0)
        h = h->next;
    if (h) {
        h->value = copy;
    } else {
        fresh->next = x->out_headers;
        x->out_headers = fresh;
    }
    pthread_mutex_unlock(&x->lock);
}

void request_problem(struct request *r, const err *e)
{
    struct exchange *x = exchange_of(r);
    pthread_mutex_lock(&x->lock);  // no memory of the request: its body may be read by another thread now
    snprintf(x->problem, sizeof x->problem, "%s", e->text);
    x->failure = e->code;
    pthread_mutex_unlock(&x->lock);
}

void request_note(struct request *r, const struct request_facts *facts)
{
    struct exchange *x = exchange_of(r);
    pthread_mutex_lock(&x->lock);
    x->facts = *facts;
    pthread_mutex_unlock(&x->lock);
}

static void run_work(uv_work_t *w)
{
    struct exchange *x = w->data;
    x->work_fn(&x->r);
}

static void end_work(uv_work_t *w, int status)
{
    struct exchange *x = w->data;
    (void)status;  // never cancelled
    x->work_done(&x->r);
    exchange_unref(x);
}

void request_work(struct request *r, void (*work)(struct request *r), void (*done)(struct request *r))
{
    struct exchange *x = exchange_ref(exchange_of(r));
    x->work_fn = work;
    x->work_done = done;
    x->work.data = x;
    if (uv_queue_work(&r->server->loop, &x->work, run_work, end_work)) {  // only when it was called wrongly
        work(r);
        done(r);
        exchange_unref(x);
    }
}

void request_again(struct request *r)
{
    struct exchange *x = exchange_of(r);
    pthread_mutex_lock(&x->lock);
    x->again = true;
    pthread_mutex_unlock(&x->lock);
    if (inbox_post(x->inbox, x))
        return;
    err e = {0};
    err_set(&e, ERR_DRAINING, "The server is shutting down.");
    reply_error(r, &e);
}
