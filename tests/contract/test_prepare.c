// Preparing, through the engine's door: whatever large and slow requests there are, small ones do not wait for them; what looks
// small and is not is found out; and what takes too much work is refused. Orders are compared, not times.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "engine/engine.h"
#include "engine/model.h"
#include "engine/sched/prep.h"
#include "tests/helpers/client.h"
#include "tests/helpers/engines.h"
#include "tests/helpers/fake_model.h"
#include "tests/helpers/fake_tokenizer.h"
#include "tests/helpers/gate.h"

enum { SLOW = 4, QUICK = 20, LONG_TEXT = 4 << 20 };

static struct engine *open_engine(void)
{
    struct engine_config c = {.threads = 1, .kv_bytes = 1 << 20, .max_running = 8, .max_waiting = 64, .isa = "scalar"};
    struct model *m = fake_model(512);
    m->tokenizer = fake_tokenizer();
    return engines_open_with(&c, "m", m);
}

static struct task *to_tokenize(const char *text, size_t len)
{
    struct task *t = task_new(TASK_TOKENIZE);
    t->model = "m";
    t->tokenize.prompt.text = text;
    t->tokenize.prompt.text_len = len;
    return t;
}

static char *long_text(size_t n)
{
    char *text = malloc(n);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        text[i] = i % 6 == 5 ? ' ' : (char)('a' + (i * 7 + i / 6) % 26);
    return text;
}

// A few kilobytes that make automata for a while, each others than the one before; the fake model then has no token for a brace.
static struct task *to_compile(int i)
{
    static const int32_t id = 1;
    struct task *t = client_task("m", &id, 1);
    struct buf b;
    buf_init(&b, SIZE_MAX);
    buf_printf(&b, "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{\"n%d\":{\"type\":\"null\"}", i);
    for (int k = 0; k < 100; k++)
        buf_printf(&b, ",\"k%d\":{\"type\":\"string\",\"format\":\"hostname\"}", k);
    buf_printf(&b, "}}");
    char *schema = arena_strdup(&t->arena, b.data);
    t->generate.max_tokens = 1;
    t->generate.grammar = (struct grammar_request){GRAMMAR_JSON_SCHEMA, schema, b.len, "response_format", NULL};
    buf_done(&b);
    return t;
}

// The slow ones come first and fill the line; the quick ones are done before half of them are.
static void quick_ones_pass(struct engine *en, struct task *(*slow)(int i))
{
    struct client a[SLOW] = {0}, b[QUICK] = {0}, alone = {0};
    struct gate held[GATE_PREPARERS];
    err e = {0};
    assert_true(client_submit(&alone, en, slow(SLOW), &e));
    client_wait(&alone);
    gate_prep(held, en, "m");  // all are in line before the first is begun
    for (int i = 0; i < SLOW; i++)
        assert_true(client_submit(&a[i], en, slow(i), &e));
    for (int i = 0; i < QUICK; i++)
        assert_true(client_submit(&b[i], en, to_tokenize("some words", 10), &e));
    gate_prep_open(held);
    int before = 0;
    for (int i = 0; i < QUICK; i++)
        client_wait(&b[i]);
    for (int i = 0; i < SLOW; i++)
        client_wait(&a[i]);
    for (int i = 0; i < QUICK; i++)
        assert_int_equal(b[i].error.code, ERR_OK);
    for (int i = 0; i < SLOW; i++) {
        int quick = 0;
        for (int k = 0; k < QUICK; k++)
            quick += b[k].place < a[i].place;
        before += quick < QUICK;
        assert_string_equal(a[i].error.text, alone.error.text);
    }
    assert_true(before <= SLOW / 2);  // seen: 0 and 1; SLOW - 1 when all wait in one line
    client_done(&alone);
    for (int i = 0; i < SLOW; i++)
        client_done(&a[i]);
    for (int i = 0; i < QUICK; i++)
        client_done(&b[i]);
}

static char *text;

static struct task *slow_text(int i)
{
    (void)i;
    return to_tokenize(text, LONG_TEXT);
}

static void test_large_texts(void **state)
{
    (void)state;
    struct engine *en = open_engine();
    text = long_text(LONG_TEXT);
    quick_ones_pass(en, slow_text);
    free(text);
    engine_close(en);
}

static void test_slow_schemas(void **state)
{
    (void)state;
    struct engine *en = open_engine();
    quick_ones_pass(en, to_compile);
    engine_close(en);
}

static void test_too_much(void **state)
{
    (void)state;
    if (getenv("SANITIZER")) {
        print_message("SKIPPED: test_too_much: it is a quarter of a thousand million steps\n");
        skip();
    }
    struct engine *en = open_engine();
    struct client c = {0};
    size_t n = (size_t)PREP_WORK + (1 << 20);
    err e = {0};
    char *all = long_text(n);
    assert_true(client_submit(&c, en, to_tokenize(all, n), &e));
    client_wait(&c);
    assert_int_equal(c.error.code, ERR_INVALID);
    assert_non_null(strstr(c.error.text, "too much work to prepare: more than 268 million steps"));
    assert_int_equal(c.starts, 0);
    client_done(&c);
    free(all);
    engine_close(en);
}

// A long prompt behind choices whose probabilities decide: it begins again with nothing of the first try left (leaks are seen by ASan).
static void test_scored_begins_again(void **state)
{
    static const int32_t id = 1;
    struct buf choices;
    (void)state;
    struct engine_config c = {.threads = 1, .kv_bytes = 1 << 26, .max_running = 8, .max_waiting = 64, .isa = "scalar"};
    struct model *m = fake_model(1 << 20);
    m->tokenizer = fake_tokenizer();
    struct engine *en = engines_open_with(&c, "m", m);
    size_t n = PREP_SMALL_BYTES - (20 << 10);
    char *long_one = long_text(n);
    buf_init(&choices, SIZE_MAX);
    for (int i = 0; i < 1000; i++)
        buf_printf(&choices, "%c\"c%d\"", i ? ',' : '[', 1000 + i);
    buf_add_char(&choices, ']');
    struct client client = {0};
    struct task *t = client_task("m", &id, 1);
    t->generate.prompt = (struct prompt){.text = long_one, .text_len = n};
    t->generate.choosing = CHOOSE_SCORED;
    t->generate.sampling.temperature = 0;
    t->generate.grammar = (struct grammar_request){GRAMMAR_CHOICE, choices.data, choices.len, "choice", NULL};
    assert_true(client_submit(&client, en, t, &(err){0}));
    client_wait(&client);
    assert_int_equal(client.error.code, ERR_OK);
    assert_int_equal(client.nscores, 1000);
    client_done(&client);
    buf_done(&choices);
    free(long_one);
    engine_close(en);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large_texts),
        cmocka_unit_test(test_slow_schemas),
        cmocka_unit_test(test_too_much),
        cmocka_unit_test(test_scored_begins_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
