// Token buckets on a clock of our own: what passes, what is refused and for how long, debts, requests at once.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "server/quota.h"

static const int64_t ms = 1000000;

static err_code take(struct quota *q, const char *name, struct quota_limits l, int64_t tokens, int64_t at_ms,
                     struct quota_account **a, err *e)
{
    *e = (err){0};
    return quota_take(q, name, &l, tokens, at_ms * ms, a, e);
}

static void requests_a_minute(void **state)
{
    (void)state;
    struct quota *q = quota_new();
    struct quota_account *a;
    struct quota_state r, t;
    struct quota_limits l = {.rpm = 3};
    err e;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(take(q, "k", l, 0, 5, &a, &e), ERR_OK);
        quota_release(a);
        quota_say(q, "k", 5 * ms, &r, &t);
        assert_int_equal(r.limit, 3);
        assert_int_equal(r.remaining, 2 - i);
        assert_int_equal(r.reset_ms, 20000 * (i + 1));
        assert_int_equal(t.limit, 0);
    }
    assert_int_equal(take(q, "k", l, 0, 5, &a, &e), ERR_QUOTA);
    assert_int_equal(e.retry_ms, 20000);
    assert_non_null(strstr(e.text, "requests per minute: limit 3, used 3, requested 1"));
    assert_non_null(strstr(e.text, "20.000 s"));
    assert_int_equal(take(q, "other", l, 0, 5, &a, &e), ERR_OK);  // each its own
    quota_release(a);
    assert_int_equal(take(q, "k", l, 0, 20004, &a, &e), ERR_QUOTA);  // a refusal costs nothing
    assert_int_equal(e.retry_ms, 1);
    assert_int_equal(take(q, "k", l, 0, 20005, &a, &e), ERR_OK);
    quota_release(a);
    assert_int_equal(take(q, "k", l, 0, 20005, &a, &e), ERR_QUOTA);
    quota_say(q, "k", 10000000 * ms, &r, &t);  // full, and no fuller
    assert_int_equal(r.remaining, 3);
    assert_int_equal(r.reset_ms, 0);
    quota_free(q);
}

static void tokens_a_minute(void **state)
{
    (void)state;
    struct quota *q = quota_new();
    struct quota_account *a, *b;
    struct quota_state r, t;
    struct quota_limits l = {.tpm = 6000};
    err e;
    assert_int_equal(take(q, "k", l, 1000, 0, &a, &e), ERR_OK);
    quota_spend(a, 4500 - 1000);  // it was 4500
    quota_release(a);
    assert_int_equal(take(q, "k", l, 2000, 0, &a, &e), ERR_QUOTA);
    assert_int_equal(e.retry_ms, 5000);  // 500 tokens at 100 a second
    assert_non_null(strstr(e.text, "tokens per minute: limit 6000, used 4500, requested 2000"));
    assert_int_equal(take(q, "k", l, 1500, 0, &a, &e), ERR_OK);
    quota_spend(a, -1500);  // failed before it used any
    quota_release(a);
    quota_say(q, "k", 0, &r, &t);
    assert_int_equal(t.remaining, 1500);
    // More than a full bucket: passes when it is full, and leaves a debt.
    assert_int_equal(take(q, "k", l, 100000, 60000, &b, &e), ERR_OK);
    quota_say(q, "k", 60000 * ms, &r, &t);
    assert_int_equal(t.remaining, 0);
    assert_int_equal(t.reset_ms, 1000000);
    assert_int_equal(take(q, "k", l, 1, 60000, &a, &e), ERR_QUOTA);
    assert_int_equal(e.retry_ms, QUOTA_RETRY_MAX_MS);
    assert_non_null(strstr(e.text, "940.010 s"));
    quota_spend(b, -100000);
    quota_release(b);
    quota_say(q, "k", 60000 * ms, &r, &t);
    assert_int_equal(t.remaining, 6000);
    quota_free(q);
}

static void at_once(void **state)
{
    (void)state;
    struct quota *q = quota_new();
    struct quota_account *a, *b, *c;
    struct quota_limits l = {.concurrent = 2, .rpm = 1000};
    err e;
    assert_int_equal(take(q, "k", l, 0, 0, &a, &e), ERR_OK);
    assert_int_equal(take(q, "k", l, 0, 0, &b, &e), ERR_OK);
    assert_int_equal(take(q, "k", l, 0, 0, &c, &e), ERR_QUOTA);
    assert_true(e.retry_ms > 0);
    assert_non_null(strstr(e.text, "concurrent requests: limit 2, running 2"));
    quota_release(b);
    assert_int_equal(take(q, "k", l, 0, 0, &c, &e), ERR_OK);
    quota_release(c);
    quota_free(q);
    quota_spend(a, 5);  // a request may outlive the server
    quota_release(a);
}

static void changed_limits(void **state)
{
    (void)state;
    struct quota *q = quota_new();
    struct quota_account *a;
    struct quota_state r, t;
    err e;
    assert_int_equal(take(q, "k", (struct quota_limits){.rpm = 10}, 0, 0, &a, &e), ERR_OK);
    quota_release(a);
    assert_int_equal(take(q, "k", (struct quota_limits){.rpm = 20}, 0, 0, &a, &e), ERR_OK);
    quota_release(a);
    quota_say(q, "k", 0, &r, &t);
    assert_int_equal(r.remaining, 18);  // what was used stays used
    assert_int_equal(take(q, "k", (struct quota_limits){.rpm = 1}, 0, 0, &a, &e), ERR_QUOTA);
    assert_int_equal(take(q, "k", (struct quota_limits){0}, 0, 0, &a, &e), ERR_OK);
    quota_release(a);
    quota_free(q);
}

// Each address has an account, a bounded number of them; what is whole is forgotten, and whoever finds no room shares.
static void addresses(void **state)
{
    (void)state;
    struct quota *q = quota_new();
    struct quota_account *a;
    struct quota_state r, t;
    char name[QUOTA_NAME_MAX], peer[32];
    err e;
    struct quota_limits l = {.rpm = 2};
    static const char *const peers[][2] = {{"192.0.2.7", "address:192.0.2.7"}, {"unix", "address:unix"},
        {"::ffff:192.0.2.7", "address:192.0.2.7"}, {"2001:db8:1:2:3:4:5:6", "address:2001:db8:1:2::/64"}, {"::1", "address:::/64"}};
    for (size_t i = 0; i < sizeof peers / sizeof *peers; i++) {
        quota_address(peers[i][0], name);
        assert_string_equal(name, peers[i][1]);
    }
    for (int i = 0; i < QUOTA_ADDRESSES; i++) {
        snprintf(peer, sizeof peer, "10.0.%d.%d", i / 256, i % 256);
        quota_address(peer, name);
        assert_int_equal(take(q, name, l, 0, 0, &a, &e), ERR_OK);
        quota_release(a);
    }
    for (int i = 0; i < 2; i++) {  // two strangers share what one has
        assert_int_equal(take(q, i ? "address:x" : "address:y", l, 0, 0, &a, &e), ERR_OK);
        quota_release(a);
    }
    assert_int_equal(take(q, "address:z", l, 0, 0, &a, &e), ERR_QUOTA);
    assert_non_null(strstr(e.text, "for the address z, without an API key, on requests per minute: limit 2"));
    assert_int_equal(take(q, "address:10.0.0.5", l, 0, 0, &a, &e), ERR_OK);  // who has one keeps it
    quota_release(a);
    assert_int_equal(take(q, "address:10.0.0.5", l, 0, 0, &a, &e), ERR_QUOTA);
    assert_int_equal(take(q, "address:10.0.0.6", l, 0, 0, &a, &e), ERR_OK);  // runs on
    struct quota_account *kept = a;
    assert_int_equal(take(q, "key", l, 0, 0, &a, &e), ERR_OK);  // keys are none of them
    quota_release(a);
    assert_int_equal(take(q, "address:z", l, 0, 60000, &a, &e), ERR_OK);  // a minute later there is room
    quota_release(a);
    quota_say(q, "address:z", 60000 * ms, &r, &t);
    assert_int_equal(r.remaining, 1);
    quota_say(q, "address:w", 60000 * ms, &r, &t);
    assert_int_equal(r.limit, 0);  // its own, and new
    quota_free(q);
    quota_release(kept);
}

static void *spender(void *account)
{
    for (int i = 0; i < 10000; i++)
        quota_spend(account, 1);
    return NULL;
}

static void threads(void **state)
{
    (void)state;
    struct quota *q = quota_new();
    struct quota_account *a;
    struct quota_state r, t;
    err e;
    pthread_t ids[2];
    assert_int_equal(take(q, "k", (struct quota_limits){.tpm = 100000}, 0, 0, &a, &e), ERR_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, spender, a), 0);
    for (int i = 0; i < 100; i++)
        quota_say(q, "k", 0, &r, &t);
    for (int i = 0; i < 2; i++)
        pthread_join(ids[i], NULL);
    quota_say(q, "k", 0, &r, &t);
    assert_int_equal(t.remaining, 80000);
    quota_release(a);
    quota_free(q);
}

static void times(void **state)
{
    (void)state;
    static const struct {
        int64_t ms;
        const char *text;
    } cases[] = {{0, "0ms"}, {20, "20ms"}, {999, "999ms"}, {1000, "1s"}, {1500, "1.5s"}, {8640, "8.64s"}, {59999, "60s"},
                 {60000, "1m0s"}, {365000, "6m5s"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[QUOTA_TIME_MAX];
        quota_time_text(cases[i].ms, text);
        assert_string_equal(text, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_a_minute), cmocka_unit_test(tokens_a_minute), cmocka_unit_test(at_once),
        cmocka_unit_test(changed_limits), cmocka_unit_test(addresses), cmocka_unit_test(threads), cmocka_unit_test(times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
