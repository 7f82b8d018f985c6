// Events on a stream (stream.c): each is put into the ring whole or not at all. Producers on any thread.
#include "server/sse.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/mem.h"
#include "server/exchange.h"
#include "server/state.h"
#include "server/stream.h"

// name NULL: no "event:" line.
static bool put_event(struct exchange *x, const char *name, const char *data, size_t len)
{
    size_t named = name ? strlen(name) + 8 : 0, total;
    if (!size_add(len, named + 8, &total) || !stream_reserve(x, total))
        return false;
    if (name) {
        stream_put(x, "event: ", 7);
        stream_put(x, name, named - 8);
        stream_put(x, "\n", 1);
    }
    stream_put(x, "data: ", 6);
    stream_put(x, data, len);
    stream_put(x, "\n\n", 2);
    return true;
}

bool sse_send_named(struct sse *s, const char *name, const char *data, size_t len)
{
    struct exchange *x = (struct exchange *)s;
    pthread_mutex_lock(&x->lock);
    bool wanted = !x->closed;
    bool ok = wanted && put_event(x, name, data, len);
    if (wanted && !ok)
        x->closed = x->failed = true;
    pthread_mutex_unlock(&x->lock);
    if (wanted)
        exchange_post(x);
    return ok;
}

bool sse_send(struct sse *s, const char *data, size_t len)
{
    return sse_send_named(s, NULL, data, len);
}

bool sse_send_json(struct sse *s, struct json_t *event)
{
    char *text = json_dumps(event, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(event);
    bool ok = text && sse_send(s, text, strlen(text));
    free(text);
    return ok;
}

void sse_allow(struct sse *s, size_t waiting)
{
    struct exchange *x = (struct exchange *)s;
    pthread_mutex_lock(&x->lock);
    x->ring_max = waiting;
    pthread_mutex_unlock(&x->lock);
}

void sse_end(struct sse *s, bool with_done)
{
    struct exchange *x = (struct exchange *)s;
    if (exchange_end(x)) {
        pthread_mutex_lock(&x->lock);
        if (!x->closed && with_done && !put_event(x, NULL, "[DONE]", 6))
            x->failed = true;
        x->closed = x->eof = true;
        pthread_mutex_unlock(&x->lock);
        exchange_post(x);
    }
    exchange_unref(x);
}

void sse_abort(struct exchange *x, const char *data, size_t len)
{
    pthread_mutex_lock(&x->lock);
    if (!x->eof && x->is_bytes) {
        x->closed = x->failed = true;  // text among the bytes would pass for content
    } else if (!x->eof) {
        if (data)
            (void)put_event(x, NULL, data, len);  // a full ring ends without it: its reader does not read anyway
        x->closed = x->eof = true;
    }
    pthread_mutex_unlock(&x->lock);
}

bool sse_keep_alive(struct exchange *x, int64_t now_ns, int64_t idle_ns)
{
    static const char comment[] = ": keep-alive\n\n";
    if (!x->streaming || x->is_bytes || now_ns - x->written_ns < idle_ns)
        return false;
    pthread_mutex_lock(&x->lock);
    bool quiet = x->len == 0 && !x->closed && stream_reserve(x, sizeof comment - 1);
    if (quiet)
        stream_put(x, comment, sizeof comment - 1);
    pthread_mutex_unlock(&x->lock);
    return quiet;
}
