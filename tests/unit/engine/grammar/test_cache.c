// The cache of compiled grammars: the same text is the same grammar, old ones go, those in use stay whole, threads may ask
// at once; the errors name field and schema.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "engine/grammar/grammar.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/helpers/fake_model.h"
#include "tests/helpers/fake_tokenizer.h"

enum { THREADS = 4, ROUNDS = 60, TEXTS = 80 };

static struct grammar_request choice(int i, char *text, size_t size)
{
    snprintf(text, size, "[\"a%db\",\"ab\"]", i);
    return (struct grammar_request){GRAMMAR_CHOICE, text, strlen(text), "guided_choice", NULL};
}

static void write_ab(struct grammar *g)
{
    struct grammar_state *s = grammar_begin(g), *copy;
    uint32_t n;
    grammar_mask(s, &n);
    assert_true(n >= 2);  // "a", "ab"
    assert_true(grammar_take(s, 0));
    copy = grammar_fork(s);
    assert_true(grammar_take(copy, 1) && grammar_ends(copy) && !grammar_goes_on(copy));
    assert_false(grammar_take(copy, 1));
    assert_false(grammar_ends(s));
    grammar_free(s);
    grammar_free(copy);
}

static void test_same_and_old(void **state)
{
    (void)state;
    struct tokenizer *t = fake_tokenizer();
    struct grammar_cache *c = grammar_cache_open(t, FAKE_VOCAB);
    struct grammar *first, *again, *g;
    char text[64];
    err e = {0};
    struct grammar_request r = choice(0, text, sizeof text);
    assert_int_equal(grammar_cache_get(c, &r, &first, &e), ERR_OK);
    assert_int_equal(grammar_cache_get(c, &r, &again, &e), ERR_OK);
    assert_ptr_equal(first, again);
    r.kind = GRAMMAR_REGEX;  // the same text means something else
    assert_int_equal(grammar_cache_get(c, &r, &g, &e), ERR_OK);
    assert_ptr_not_equal(first, g);
    grammar_drop(g);
    for (int i = 1; i < TEXTS; i++) {  // more than it keeps
        r = choice(i, text, sizeof text);
        assert_int_equal(grammar_cache_get(c, &r, &g, &e), ERR_OK);
        grammar_drop(g);
    }
    write_ab(first);  // gone from the cache, held here
    grammar_drop(again);
    grammar_drop(first);
    grammar_cache_close(c);
    tokenizer_close(t);
}

struct worker {
    struct grammar_cache *c;
    int number, wrong;
};

static void *run_worker(void *arg)
{
    struct worker *w = arg;
    for (int i = 0; i < ROUNDS; i++) {
        char text[64];
        struct grammar_request r = choice((i * (w->number + 1)) % 10, text, sizeof text);
        struct grammar *g;
        err e = {0};
        if (grammar_cache_get(w->c, &r, &g, &e)) {
            w->wrong++;
            continue;
        }
        struct grammar_state *s = grammar_begin(g);
        uint32_t n;
        grammar_drop(g);
        grammar_mask(s, &n);
        w->wrong += n < 2 || !grammar_take(s, 0) || !grammar_take(s, 1);
        grammar_free(s);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct tokenizer *t = fake_tokenizer();
    struct grammar_cache *c = grammar_cache_open(t, FAKE_VOCAB);
    pthread_t threads[THREADS];
    struct worker workers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){c, i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, run_worker, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].wrong, 0);
    }
    grammar_cache_close(c);
    tokenizer_close(t);
}

static void test_errors(void **state)
{
    (void)state;
    struct tokenizer *t = fake_tokenizer();
    struct grammar_cache *c = grammar_cache_open(t, FAKE_VOCAB);
    struct grammar *g;
    err e = {0};
    static const char schema[] = "{\"properties\":{\"x\":{\"not\":{\"pattern\":\"a\"}}}}";
    struct grammar_request r = {GRAMMAR_JSON_SCHEMA, schema, sizeof schema - 1, "response_format", "thing"};
    assert_int_equal(grammar_cache_get(c, &r, &g, &e), ERR_INVALID);
    assert_string_equal(e.param, "response_format");
    assert_string_equal(e.text, "Invalid schema for response_format 'thing': In context=('properties', 'x'), 'not' is not "
                                "supported with this schema.");
    r = (struct grammar_request){GRAMMAR_CHOICE, "[]", 2, "guided_choice", NULL};
    assert_int_equal(grammar_cache_get(c, &r, &g, &e), ERR_INVALID);
    assert_string_equal(e.param, "guided_choice");
    grammar_cache_close(c);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_and_old),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
