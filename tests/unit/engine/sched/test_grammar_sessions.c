// Answers held to a grammar, through the engine: alone, in a batch with free ones, with so few pages that sequences are
// preempted and computed again, and as several choices of one prompt they have the same text, and one that matches.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/grammar/regex.h"
#include "engine/model.h"
#include "tests/helpers/client.h"
#include "tests/helpers/engines.h"
#include "tests/helpers/fake_model.h"
#include "tests/helpers/gate.h"
#include "tests/helpers/fake_tokenizer.h"

enum { CONTEXT = 512, JOBS = 10, MAX_TEXT = 2000, PAGE_BYTES = 2 * 2 * 2 * 64 * 8 };

static const char pattern[] = "([a-f]{4,9}[.,]( the)?\\n?){40,60}000";

static struct engine *open_engine(size_t kv_bytes)
{
    struct engine_config c = {.threads = 1, .kv_bytes = kv_bytes, .max_running = 12, .max_waiting = 40, .isa = "scalar"};
    struct model *m = fake_model(CONTEXT);
    m->tokenizer = fake_tokenizer();
    return engines_open_with(&c, "fake", m);
}

static struct task *task_of(int i, const char *regex)
{
    static const int32_t prompt[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
    struct task *t = client_task("fake", prompt, 20);
    struct generate *g = &t->generate;
    g->sampling.temperature = 1.5f;
    g->sampling.seed = (uint64_t)i;
    g->max_tokens = 450;
    if (regex)
        g->grammar = (struct grammar_request){GRAMMAR_REGEX, regex, strlen(regex), "guided_regex", NULL};
    return t;
}

static bool matches(const char *text)
{
    static struct chardfa *d;
    struct chardfa_budget b = {CHARDFA_STATES, CHARDFA_WORK};
    err e;
    if (!d)
        assert_int_equal(regex_compile(pattern, sizeof pattern - 1, false, &b, &d, &e), ERR_OK);
    return chardfa_matches(d, text, strlen(text));
}

static void answer(struct client *c, char *ret_text)
{
    client_wait(c);
    assert_int_equal(c->error.code, ERR_OK);
    assert_false(c->wrong);
    snprintf(ret_text, MAX_TEXT, "%s", c->text[0].data ? c->text[0].data : "");
    if (c->finish[0] == FINISH_STOP && !matches(ret_text))
        fail_msg("does not match: %s", ret_text);
    client_done(c);
}

static void test_same_alone_and_in_a_crowd(void **state)
{
    (void)state;
    char (*alone)[MAX_TEXT] = mem_new(JOBS * sizeof *alone), text[MAX_TEXT];
    struct engine *en = open_engine(1 << 20);
    err e = {0};
    int finished = 0;
    for (int i = 0; i < JOBS; i++) {
        struct client c = {0};
        assert_true(client_submit(&c, en, task_of(i, pattern), &e));
        answer(&c, alone[i]);
        finished += matches(alone[i]);
    }
    assert_true(finished > 0);
    engine_close(en);
    uint64_t preempted = 0;
    for (size_t pages = 11; pages <= 18; pages++) {
        // Few pages, so that some are preempted and computed again; at last many, beside others that are free.
        bool crowd = pages == 18;
        en = open_engine(crowd ? 1 << 20 : pages * PAGE_BYTES);
        struct client *all = mem_new(2 * JOBS * sizeof *all);
        struct gate g;
        gate_close(&g, en, "fake");
        for (int i = 0; i < JOBS; i++) {
            assert_true(client_submit(&all[2 * i], en, task_of(i, pattern), &e));
            if (crowd)
                assert_true(client_submit(&all[2 * i + 1], en, task_of(100 + i, NULL), &e));
        }
        gate_prepared(en, "fake");
        gate_open(&g);
        for (int i = 0; i < JOBS; i++) {
            answer(&all[2 * i], text);
            assert_string_equal(text, alone[i]);
            if (crowd)
                client_wait(&all[2 * i + 1]);
            client_done(&all[2 * i + 1]);
        }
        struct engine_stats st;
        engine_stats(en, &st);
        preempted += st.preempted;
        engine_close(en);
        free(all);
    }
    assert_true(preempted > 0);
    free(alone);
}

static void test_choices(void **state)
{
    (void)state;
    struct engine *en = open_engine(1 << 20);
    struct client c = {0};
    struct task *t = task_of(3, pattern);
    char one[MAX_TEXT];
    err e = {0};
    assert_true(client_submit(&c, en, t, &e));
    answer(&c, one);
    t = task_of(3, pattern);
    t->generate.n = 4;
    t->generate.logprobs = 1;
    memset(&c, 0, sizeof c);
    assert_true(client_submit(&c, en, t, &e));
    client_wait(&c);
    assert_int_equal(c.error.code, ERR_OK);
    assert_string_equal(c.text[0].data, one);
    for (int k = 1; k < 4; k++)
        assert_true(strcmp(c.text[k].data, one) && (c.finish[k] == FINISH_LENGTH || matches(c.text[k].data)));
    client_done(&c);
    engine_close(en);
}

static void check_ending(struct engine *en, struct task *t, const char *text, enum finish finish, int tokens)
{
    struct client c = {0};
    err e = {0};
    assert_true(client_submit(&c, en, t, &e));
    client_wait(&c);
    assert_int_equal(c.error.code, ERR_OK);
    assert_string_equal(c.text[0].data ? c.text[0].data : "", text);
    assert_int_equal(c.finish[0], finish);
    assert_int_equal(c.usage.completion_tokens, tokens);
    client_done(&c);
}

static void test_endings(void **state)
{
    (void)state;
    struct engine *en = open_engine(1 << 20);
    check_ending(en, task_of(0, "0"), "0", FINISH_STOP, 1);   // nothing can follow: no end marker is sampled
    check_ending(en, task_of(0, ""), "", FINISH_STOP, 1);                  // nothing can come: the end marker is
    struct task *t = task_of(1, "x{9}");
    t->generate.max_tokens = 4;
    check_ending(en, t, "xxxx", FINISH_LENGTH, 4);
    t = task_of(1, "x{4}");  // whole when the limit comes
    t->generate.max_tokens = 4;
    check_ending(en, t, "xxxx", FINISH_STOP, 4);
    t = task_of(1, "x{2}");
    t->generate.min_tokens = 9;
    t->generate.ignore_eos = true;
    check_ending(en, t, "xx", FINISH_STOP, 2);
    engine_close(en);
}

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        const char *regex;
        err_code code;
    } bad[] = {{"(", ERR_INVALID}, {"(?=a)", ERR_INVALID},
               {"#", ERR_INTERNAL}};  // no token of this vocabulary has it: an error, never free text
    struct engine *en = open_engine(1 << 20);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct client c = {0};
        err e = {0};
        assert_true(client_submit(&c, en, task_of(0, bad[i].regex), &e));
        client_wait(&c);
        assert_int_equal(c.error.code, bad[i].code);
        if (bad[i].code == ERR_INVALID)
            assert_string_equal(c.error.param, "guided_regex");
        assert_true(!c.text[0].data || !*c.text[0].data);
        client_done(&c);
    }
    engine_close(en);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_alone_and_in_a_crowd),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_endings),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
