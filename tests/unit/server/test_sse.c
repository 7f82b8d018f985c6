// The ring of one event stream, without a connection: order, bounds, ends, and what a handler is told.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "server/exchange.h"
#include "server/reply.h"
#include "server/sse.h"
#include "server/state.h"
#include "server/stream.h"

static struct server server;
static int gone_calls;

static void on_gone(struct request *r)
{
    (void)r;
    gone_calls++;
}

// An exchange as after the handler was called. Two references: the loop's and the handler's.
static struct exchange *open_exchange(void)
{
    server = (struct server){.inbox = inbox_new(NULL)};  // closed: nobody is woken
    struct exchange *x = exchange_new(&server, "/");
    exchange_ref(x);
    x->taken = true;
    x->r.on_gone = on_gone;
    gone_calls = 0;
    return x;
}

static void close_exchange(struct exchange *x)
{
    exchange_unref(x);
    inbox_unref(server.inbox);
}

static void test_order_and_end(void **state)
{
    (void)state;
    struct exchange *x = open_exchange();
    struct sse *s = reply_sse(&x->r);
    char out[100];
    assert_int_equal(stream_read(x, out, sizeof out), 0);
    assert_true(sse_send(s, "{}", 2));
    assert_int_equal(stream_read(x, out, 3), 3);
    assert_memory_equal(out, "dat", 3);
    sse_end(s, true);
    ssize_t n = stream_read(x, out, sizeof out);
    assert_int_equal(n, 7 + 14);
    assert_memory_equal(out, "a: {}\n\ndata: [DONE]\n\n", (size_t)n);
    assert_int_equal(stream_read(x, out, sizeof out), MHD_CONTENT_READER_END_OF_STREAM);
    assert_int_equal(gone_calls, 0);
    exchange_gone(x);
    assert_int_equal(gone_calls, 0);  // the handler had ended: it is not told
    close_exchange(x);
}

// Random writes and reads against a plain copy: wrapping and growing keep every byte in order.
static void test_ring_against_a_copy(void **state)
{
    (void)state;
    struct exchange *x = open_exchange();
    struct sse *s = reply_sse(&x->r);
    enum { TOTAL = 1 << 20 };
    char *want = malloc(TOTAL), *got = malloc(TOTAL), event[3000];
    size_t nwant = 0, ngot = 0;
    unsigned seed = 1;
    while (nwant < TOTAL - 4000) {
        seed = seed * 1103515245u + 12345u;
        size_t n = seed >> 8 & 2047;
        for (size_t i = 0; i < n; i++)
            event[i] = (char)('a' + (nwant + i) % 26);
        if (nwant - ngot < 100000 && seed & 1u << 30) {
            assert_true(sse_send(s, event, n));
            memcpy(want + nwant, "data: ", 6);
            memcpy(want + nwant + 6, event, n);
            memcpy(want + nwant + 6 + n, "\n\n", 2);
            nwant += n + 8;
        } else {
            ngot += (size_t)stream_read(x, got + ngot, n + 1);
        }
    }
    sse_end(s, false);
    for (ssize_t n; (n = stream_read(x, got + ngot, 1000)) > 0;)
        ngot += (size_t)n;
    assert_int_equal(ngot, nwant);
    assert_memory_equal(got, want, nwant);
    free(want);
    free(got);
    close_exchange(x);
}

static void test_slow_reader_loses_the_stream(void **state)
{
    (void)state;
    struct exchange *x = open_exchange();
    struct sse *s = reply_sse(&x->r);
    char event[1000] = {0}, out[100];
    int sent = 0;
    while (sse_send(s, event, sizeof event))
        sent++;
    assert_int_equal(sent, SSE_RING_MAX / (sizeof event + 8));
    assert_false(sse_send(s, "{}", 2));
    assert_int_equal(stream_read(x, out, sizeof out), MHD_CONTENT_READER_END_WITH_ERROR);
    exchange_gone(x);  // what the loop does when it sees that
    exchange_gone(x);
    assert_int_equal(gone_calls, 1);
    sse_end(s, true);
    assert_int_equal(stream_read(x, out, sizeof out), MHD_CONTENT_READER_END_WITH_ERROR);
    close_exchange(x);
}

// At three quarters the producer is asked to rest, and to go on at one quarter; a large event or a dead stream leave nobody
// resting.
static void test_slow_reader_is_waited_for(void **state)
{
    (void)state;
    struct exchange *x = open_exchange();
    struct sse *s = reply_sse(&x->r);
    static char event[1000], out[1000];
    for (int round = 0; round < 3; round++) {
        while (!atomic_load(&x->r.behind))
            assert_true(sse_send(s, event, sizeof event));
        assert_in_range(x->len, SSE_RING_MAX / 4 * 3, SSE_RING_MAX / 4 * 3 + 1100);
        for (int i = 0; i < 20; i++)
            assert_true(sse_send(s, event, sizeof event));  // what was on its way
        while (atomic_load(&x->r.behind)) {
            assert_true(x->len > SSE_RING_MAX / 4);
            assert_int_equal(stream_read(x, out, sizeof out), sizeof out);
        }
        assert_true(x->len <= SSE_RING_MAX / 4);
    }
    while (sse_send(s, event, sizeof event))
        ;
    assert_true(atomic_load(&x->r.behind));
    (void)stream_read(x, out, sizeof out);
    assert_false(atomic_load(&x->r.behind));  // it failed: the producer shall see that
    sse_end(s, true);
    close_exchange(x);
}

static void test_one_large_event(void **state)
{
    (void)state;
    struct exchange *x = open_exchange();
    struct sse *s = reply_sse(&x->r);
    size_t n = 3 * SSE_RING_MAX;
    char *event = calloc(1, n);
    assert_true(sse_send(s, event, n));
    assert_true(sse_send(s, "{}", 2));
    assert_false(sse_send(s, event, n));
    free(event);
    sse_end(s, true);
    close_exchange(x);
}

static void test_abort(void **state)
{
    (void)state;
    struct exchange *x = open_exchange();
    struct sse *s = reply_sse(&x->r);
    err e = {0};
    err_set(&e, ERR_DRAINING, "bye");
    assert_true(sse_send(s, "1", 1));
    reply_abort(x, &e);
    assert_int_equal(gone_calls, 1);
    assert_false(sse_send(s, "2", 1));
    sse_end(s, true);
    char out[1000];
    ssize_t n = stream_read(x, out, sizeof out - 1);
    out[n] = 0;
    assert_non_null(strstr(out, "data: 1\n\ndata: {\"error\":{\"message\":\"bye\","
                                "\"type\":\"service_unavailable_error\""));
    assert_null(strstr(out, "DONE"));
    assert_int_equal(stream_read(x, out, sizeof out), MHD_CONTENT_READER_END_OF_STREAM);
    close_exchange(x);
}

static void test_keep_alive(void **state)
{
    (void)state;
    struct exchange *x = open_exchange();
    struct sse *s = reply_sse(&x->r);
    char out[100];
    assert_false(sse_keep_alive(x, 100, 10));  // its headers are not out yet
    x->streaming = true;
    x->written_ns = 50;
    assert_false(sse_keep_alive(x, 59, 10));
    assert_true(sse_keep_alive(x, 60, 10));
    ssize_t n = stream_read(x, out, sizeof out);
    assert_memory_equal(out, ": keep-alive\n\n", (size_t)n);
    assert_true(sse_send(s, "{}", 2));
    assert_false(sse_keep_alive(x, 100, 10));  // something is on its way
    sse_end(s, false);
    (void)stream_read(x, out, sizeof out);
    assert_false(sse_keep_alive(x, 100, 10));  // ended
    close_exchange(x);
}

static void test_answers_after_the_client_left(void **state)
{
    (void)state;
    struct exchange *x = open_exchange();
    exchange_gone(x);
    assert_int_equal(gone_calls, 1);
    reply_text(&x->r, 200, "text/plain", "x", 1);
    assert_false(x->answered);
    close_exchange(x);

    x = open_exchange();
    exchange_gone(x);
    struct sse *s = reply_sse(&x->r);
    assert_false(sse_send(s, "{}", 2));
    sse_end(s, true);
    close_exchange(x);
}

// on_gone may itself end the stream, as an engine that is cancelled at once does.
static struct sse *stream_to_end;
static void end_inside(struct request *r)
{
    (void)r;
    gone_calls++;
    sse_end(stream_to_end, true);
}

static void test_ending_inside_on_gone(void **state)
{
    (void)state;
    struct exchange *x = open_exchange();
    x->r.on_gone = end_inside;
    stream_to_end = reply_sse(&x->r);
    exchange_gone(x);
    assert_int_equal(gone_calls, 1);
    close_exchange(x);
}

static void *produce(void *arg)
{
    struct sse *s = arg;
    while (sse_send(s, "{\"token\":1}", 11))
        ;
    sse_end(s, true);
    return NULL;
}

// A producer and the loop giving up at any moment; the sanitizers watch.
static void test_race_of_producer_and_loop(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        struct exchange *x = open_exchange();
        pthread_t t;
        assert_int_equal(pthread_create(&t, NULL, produce, reply_sse(&x->r)), 0);
        char out[512];
        for (int k = 0; k < i % 20; k++)
            (void)stream_read(x, out, sizeof out);
        exchange_gone(x);
        exchange_fail(x);
        exchange_unref(x);
        pthread_join(t, NULL);
        inbox_unref(server.inbox);
    }
}

static void test_named_event(void **state)
{
    (void)state;
    struct exchange *x = open_exchange();
    struct sse *s = reply_sse(&x->r);
    assert_true(sse_send_named(s, "image.done", "{}", 2));
    assert_true(sse_send_named(s, NULL, "{}", 2));
    sse_end(s, false);
    char out[100];
    ssize_t n = stream_read(x, out, sizeof out);
    static const char want[] = "event: image.done\ndata: {}\n\ndata: {}\n\n";
    assert_int_equal(n, sizeof want - 1);
    assert_memory_equal(out, want, (size_t)n);
    close_exchange(x);
}

static void test_more_may_wait(void **state)
{
    (void)state;
    struct exchange *x = open_exchange();
    struct sse *s = reply_sse(&x->r);
    static const char event[100000];
    sse_allow(s, 1 << 20);
    int sent = 0;
    while (sse_send(s, event, sizeof event))
        sent++;
    assert_int_equal(sent, (1 << 20) / (sizeof event + 8));
    sse_end(s, false);
    close_exchange(x);
}

static void test_bytes(void **state)
{
    (void)state;
    struct exchange *x = open_exchange();
    struct stream *s = reply_stream(&x->r, "audio/wav");
    assert_string_equal(x->reply_type, "audio/wav");
    x->streaming = true;
    assert_false(sse_keep_alive(x, 100, 10));  // a comment would be heard
    assert_true(stream_send(s, "a\0b", 3));
    assert_true(stream_send(s, NULL, 0));
    stream_end(s, true);
    char out[10];
    assert_int_equal(stream_read(x, out, sizeof out), 3);
    assert_memory_equal(out, "a\0b", 3);
    assert_int_equal(stream_read(x, out, sizeof out), MHD_CONTENT_READER_END_OF_STREAM);
    close_exchange(x);
}

static void test_bytes_broken_off(void **state)
{
    (void)state;
    char out[10];
    struct exchange *x = open_exchange();
    struct stream *s = reply_stream(&x->r, "audio/wav");
    assert_true(stream_send(s, "abc", 3));
    stream_end(s, false);
    assert_int_equal(stream_read(x, out, sizeof out), MHD_CONTENT_READER_END_WITH_ERROR);
    close_exchange(x);

    x = open_exchange();
    s = reply_stream(&x->r, "audio/wav");
    err e = {0};
    err_set(&e, ERR_DRAINING, "bye");
    assert_true(stream_send(s, "abc", 3));
    reply_abort(x, &e);
    assert_false(stream_send(s, "abc", 3));
    assert_int_equal(stream_read(x, out, sizeof out), MHD_CONTENT_READER_END_WITH_ERROR);
    stream_end(s, true);
    close_exchange(x);
}

static void test_bytes_are_bounded(void **state)
{
    (void)state;
    struct exchange *x = open_exchange();
    struct stream *s = reply_stream(&x->r, "audio/wav");
    size_t n = 1 << 20;
    char *block = calloc(1, n);
    int sent = 0;
    while (stream_send(s, block, n))
        sent++;
    assert_int_equal(sent, BYTES_RING_MAX / (1 << 20));
    free(block);
    stream_end(s, true);
    close_exchange(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_end),
        cmocka_unit_test(test_ring_against_a_copy),
        cmocka_unit_test(test_slow_reader_loses_the_stream),
        cmocka_unit_test(test_slow_reader_is_waited_for),
        cmocka_unit_test(test_one_large_event),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_keep_alive),
        cmocka_unit_test(test_answers_after_the_client_left),
        cmocka_unit_test(test_ending_inside_on_gone),
        cmocka_unit_test(test_named_event),
        cmocka_unit_test(test_more_may_wait),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_bytes_broken_off),
        cmocka_unit_test(test_bytes_are_bounded),
        cmocka_unit_test(test_race_of_producer_and_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
