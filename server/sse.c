// Event streams. A producer on any thread appends whole events to the exchange's ring; MHD's reader, on the loop
// thread, copies them out and suspends the connection when the ring is empty. A reader that falls SSE_RING_MAX behind
// loses its stream: nothing is ever dropped from the middle and no producer ever waits.
#include "server/sse.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/exchange.h"
#include "server/state.h"

// All ring functions want x->lock held.
static bool ring_reserve(struct exchange *x, size_t n)
{
    size_t need;
    if (x->len == 0)
        x->allowance = n > SSE_RING_MAX && n <= SSE_EVENT_MAX ? n : 0;
    if (!size_add(x->len, n, &need) || need > SSE_RING_MAX + x->allowance)
        return false;
    if (need <= x->cap)
        return true;
    size_t cap = x->cap ? x->cap : 1024;
    while (cap < need)
        cap *= 2;
    char *ring = mem_try(cap);
    if (!ring)
        return false;
    size_t first = x->cap - x->head < x->len ? x->cap - x->head : x->len;
    if (x->len) {
        memcpy(ring, x->ring + x->head, first);
        memcpy(ring + first, x->ring, x->len - first);
    }
    free(x->ring);
    x->ring = ring;
    x->cap = cap;
    x->head = 0;
    return true;
}

static void ring_put(struct exchange *x, const char *p, size_t n)
{
    size_t at = (x->head + x->len) % x->cap;
    size_t first = x->cap - at < n ? x->cap - at : n;
    memcpy(x->ring + at, p, first);
    memcpy(x->ring, p + first, n - first);
    x->len += n;
}

static size_t ring_get(struct exchange *x, char *out, size_t max)
{
    size_t n = x->len < max ? x->len : max;
    size_t first = x->cap - x->head < n ? x->cap - x->head : n;
    memcpy(out, x->ring + x->head, first);
    memcpy(out + first, x->ring, n - first);
    x->len -= n;
    x->head = x->len ? (x->head + n) % x->cap : 0;
    return n;
}

static bool put_event(struct exchange *x, const char *data, size_t len)
{
    size_t total;
    if (!size_add(len, 8, &total) || !ring_reserve(x, total))
        return false;
    ring_put(x, "data: ", 6);
    ring_put(x, data, len);
    ring_put(x, "\n\n", 2);
    return true;
}

bool sse_send(struct sse *s, const char *data, size_t len)
{
    struct exchange *x = (struct exchange *)s;
    pthread_mutex_lock(&x->lock);
    bool wanted = !x->closed;
    bool ok = wanted && put_event(x, data, len);
    if (wanted && !ok)
        x->closed = x->failed = true;
    pthread_mutex_unlock(&x->lock);
    if (wanted)
        exchange_post(x);
    return ok;
}

bool sse_send_json(struct sse *s, struct json_t *event)
{
    char *text = json_dumps(event, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(event);
    bool ok = text && sse_send(s, text, strlen(text));
    free(text);
    return ok;
}

void sse_end(struct sse *s, bool with_done)
{
    struct exchange *x = (struct exchange *)s;
    if (exchange_end(x)) {
        pthread_mutex_lock(&x->lock);
        if (!x->closed && with_done && !put_event(x, "[DONE]", 6))
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
    if (!x->eof) {
        (void)put_event(x, data, len);  // a full ring ends without it: its reader does not read anyway
        x->closed = x->eof = true;
    }
    pthread_mutex_unlock(&x->lock);
}

bool sse_keep_alive(struct exchange *x, int64_t now_ns, int64_t idle_ns)
{
    static const char comment[] = ": keep-alive\n\n";
    if (!x->streaming || now_ns - x->written_ns < idle_ns)
        return false;
    pthread_mutex_lock(&x->lock);
    bool quiet = x->len == 0 && !x->closed && ring_reserve(x, sizeof comment - 1);
    if (quiet)
        ring_put(x, comment, sizeof comment - 1);
    pthread_mutex_unlock(&x->lock);
    return quiet;
}

ssize_t sse_read(struct exchange *x, char *out, size_t max)
{
    pthread_mutex_lock(&x->lock);
    ssize_t n = 0;
    if (x->failed)
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    else if (x->len)
        n = (ssize_t)ring_get(x, out, max);
    else if (x->eof)
        n = MHD_CONTENT_READER_END_OF_STREAM;
    pthread_mutex_unlock(&x->lock);
    return n;
}

static ssize_t read_ring(void *cls, uint64_t pos, char *out, size_t max)
{
    (void)pos;
    struct exchange *x = cls;
    ssize_t n = sse_read(x, out, max);
    if (n > 0) {
        x->bytes += (uint64_t)n;
        x->written_ns = clock_ns();
    } else if (n == 0) {
        // Returning 0 without suspending would make MHD spin. A producer that posts from here on is seen by the loop
        // only after this call, when the flag is set.
        x->suspended = true;
        MHD_suspend_connection(x->conn->mhd);
    }
    return n;
}

static void release(void *cls)
{
    exchange_unref(cls);
}

struct MHD_Response *sse_response(struct exchange *x)
{
    x->streaming = true;
    x->written_ns = clock_ns();
    return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_ring, exchange_ref(x), release);
}
