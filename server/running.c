// running.c - see running.h. The list of connections is the list of requests: no index is kept, a look at each is quick.
#include "server/running.h"

#include <jansson.h>
#include <string.h>

#include "server/exchange.h"
#include "server/reply.h"
#include "server/state.h"

// Still to be answered, or to be streamed to its end.
static bool is_running(struct exchange *x)
{
    pthread_mutex_lock(&x->lock);
    bool yes = x->is_stream ? !x->eof && !x->closed : !x->answered;
    pthread_mutex_unlock(&x->lock);
    return yes;
}

static bool is_called(const struct request *r, const char *id)
{
    return !strcmp(r->id, id) || (r->answer_id && !strcmp(r->answer_id, id));
}

static bool is_meant(struct exchange *x, struct request *by, const char *id)
{
    return x && &x->r != by && is_called(&x->r, id) && !strcmp(x->r.key_id, by->key_id) && is_running(x);
}

bool running_has(struct request *by, const char *id)
{
    for (struct conn *c = by->server->conns; c; c = c->next)
        if (is_meant(c->x, by, id))
            return true;
    return false;
}

int running_end(struct request *by, const char *id)
{
    int n = 0;
    err e = {0};
    err_set(&e, ERR_CANCELLED, "The request was cancelled.");
    for (struct conn *c = by->server->conns; c; c = c->next) {
        struct exchange *x = c->x;
        if (!is_meant(x, by, id))
            continue;
        request_problem(&x->r, &e);
        reply_abort(x, &e);
        exchange_post(x);  // this is a callback of the HTTP library: others are resumed later
        n++;
    }
    return n;
}

// What OpenAI calls what was deleted.
static const char *object_of(const char *path)
{
    return strstr(path, "/chat/completions/") ? "chat.completion.deleted"
         : strstr(path, "/completions/") ? "text_completion.deleted" : "request.deleted";
}

void running_delete(struct request *r)
{
    if (running_end(r, r->tail)) {
        reply_json(r, 200, json_pack("{s:s, s:s%, s:b}", "object", object_of(r->path), "id", r->tail, strlen(r->tail), "deleted", 1));
        return;
    }
    err e = {0};
    err_set(&e, ERR_NOT_FOUND, "No running request has the id '%.130s'.", r->tail);
    reply_problem(r, 404, "invalid_request_error", "request_not_found", &e);
}
