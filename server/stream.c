// Streamed answers. A producer on any thread appends to the exchange's ring; MHD's reader, on the loop thread, copies
// out and suspends the connection when the ring is empty. When three quarters of ring_max wait, request.behind asks the
// producer to rest, until no more than a quarter does. A reader that falls ring_max bytes behind all the same loses its
// stream: nothing is ever dropped from the middle and no producer ever waits.
#include "server/stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "server/exchange.h"
#include "server/request.h"
#include "server/state.h"

bool stream_reserve(struct exchange *x, size_t n)
{
    size_t need;
    if (x->len == 0)
        x->allowance = n > x->ring_max && n <= SSE_EVENT_MAX ? n : 0;
    if (!size_add(x->len, n, &need) || need > x->ring_max + x->allowance)
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

void stream_put(struct exchange *x, const char *p, size_t n)
{
    size_t at = (x->head + x->len) % x->cap;
    size_t first = x->cap - at < n ? x->cap - at : n;
    memcpy(x->ring + at, p, first);
    memcpy(x->ring, p + first, n - first);
    x->len += n;
    if (x->len >= x->ring_max / 4 * 3)
        atomic_store(&x->r.behind, true);
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

bool stream_send(struct stream *s, const void *p, size_t n)
{
    struct exchange *x = (struct exchange *)s;
    if (!n)
        return true;
    pthread_mutex_lock(&x->lock);
    bool wanted = !x->closed;
    bool ok = wanted && stream_reserve(x, n);
    if (ok)
        stream_put(x, p, n);
    else if (wanted)
        x->closed = x->failed = true;
    pthread_mutex_unlock(&x->lock);
    if (wanted)
        exchange_post(x);
    return ok;
}

void stream_end(struct stream *s, bool ok)
{
    struct exchange *x = (struct exchange *)s;
    if (exchange_end(x)) {
        pthread_mutex_lock(&x->lock);
        x->failed |= !ok;
        x->closed = x->eof = true;
        pthread_mutex_unlock(&x->lock);
        exchange_post(x);
    }
    exchange_unref(x);
}

ssize_t stream_read(struct exchange *x, char *out, size_t max)
{
    pthread_mutex_lock(&x->lock);
    ssize_t n = 0;
    bool was_behind = atomic_load(&x->r.behind);
    if (x->failed)
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    else if (x->len)
        n = (ssize_t)ring_get(x, out, max);
    else if (x->eof)
        n = MHD_CONTENT_READER_END_OF_STREAM;
    bool caught_up = was_behind && (x->failed || x->len <= x->ring_max / 4);
    if (caught_up)
        atomic_store(&x->r.behind, false);
    pthread_mutex_unlock(&x->lock);
    if (caught_up && x->r.server->engine)
        engine_wake(x->r.server->engine);
    return n;
}

static ssize_t read_ring(void *cls, uint64_t pos, char *out, size_t max)
{
    (void)pos;
    struct exchange *x = cls;
    ssize_t n = stream_read(x, out, max);
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

struct MHD_Response *stream_response(struct exchange *x)
{
    x->streaming = true;
    x->written_ns = clock_ns();
    return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_ring, exchange_ref(x), release);
}
