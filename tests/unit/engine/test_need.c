// What tasks of each kind count as while they wait.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <jansson.h>

#include "engine/need.h"

static void same(struct task *t, int n, size_t tokens, size_t bytes)
{
    struct slot_load l;
    need_load(t, &l);
    assert_int_equal(l.n, n);
    assert_int_equal(l.tokens, tokens);
    assert_int_equal(l.bytes, bytes);
    task_free(t);
}

static void test_generate(void **state)
{
    (void)state;
    static const int32_t ids[5] = {1, 2, 3, 4, 5};
    struct task *t = task_new(TASK_GENERATE);
    t->generate.n = 3;
    t->generate.prompt.ids = ids;
    t->generate.prompt.nids = 5;
    same(t, 3, 5, 20);

    json_t *messages = json_pack("[{s:s, s:[{s:s, s:s}]}, {s:i}]", "role", "user", "content", "type", "text", "text",
                                 "eight by", "n", 5);
    t = task_new(TASK_GENERATE);
    t->generate.prompt.messages = messages;
    same(t, 1, 4, 16);  // "user", "text", "eight by": the texts, not the names of members
    json_decref(messages);

    t = task_new(TASK_GENERATE);
    t->generate.prompt.text = "abcdefgh";
    t->generate.prompt.text_len = 8;
    t->account = "k";
    struct slot_load l;
    need_load(t, &l);
    assert_string_equal(l.account, "k");
    same(t, 1, 2, 8);
}

static void test_others(void **state)
{
    (void)state;
    static const int32_t two[] = {1, 2};
    static const struct embed_input inputs[] = {{.text = "12345678", .len = 8}, {.ids = two, .nids = 2}};
    static const char *const options[] = {"yes!", "no!!"};
    static const struct decide_question question = {DECIDE_ENUM, "what", options, 2};
    struct task *t = task_new(TASK_EMBED);
    t->embed.inputs = inputs;
    t->embed.ninputs = 2;
    same(t, 1, 4, 16);
    t = task_new(TASK_TRANSCRIBE);
    t->transcribe.nsamples = 1000;
    same(t, 1, 0, 4000);
    t = task_new(TASK_DECIDE);
    t->decide.state = "12345678";
    t->decide.questions = &question;
    t->decide.nquestions = 1;
    same(t, 1, 5, 20);
    t = task_new(TASK_TOKENIZE);
    t->tokenize.prompt.text = "1234";
    t->tokenize.prompt.text_len = 4;
    same(t, 1, 0, 4);
    t = task_new(TASK_IMAGE);
    t->image.n = 2;
    t->image.prompt = "a cat on a mat!!";
    same(t, 2, 4, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generate),
        cmocka_unit_test(test_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
