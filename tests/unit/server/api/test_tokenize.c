// /tokenize, /detokenize and /apply-template against a fake engine.
#include "tests/unit/server/api/drive.h"

static void test_encode(void **state)
{
    (void)state;
    post(api_tokenize_encode, "{\"model\":\"tiny\",\"content\":\"ab\"}");
    const struct tokenize *t = &fake.tasks[0]->tokenize;
    assert_int_equal(fake.tasks[0]->kind, TASK_TOKENIZE);
    assert_true(t->prompt.text_len == 2 && !t->add_special && !t->with_pieces);
    int32_t ids[] = {5, 6};
    emit(0, (struct event){.kind = EVENT_IDS, .ids = ids, .nids = 2});
    end(0, 0, 0);
    same_json(fake.body, "{\"tokens\":[5,6]}");
    done();

    post(api_tokenize_encode, "{\"content\":\"ab\",\"add_special\":true,\"with_pieces\":true}");
    assert_true(fake.tasks[0]->tokenize.add_special && fake.tasks[0]->tokenize.with_pieces);
    struct token_alternative pieces[] = {{5, 0, "a\"", 2}, {6, 0, "\xF0\x9F", 2}};
    emit(0, (struct event){.kind = EVENT_IDS, .ids = ids, .pieces = pieces, .nids = 2});
    end(0, 0, 0);
    same_json(fake.body, "{\"tokens\":[{\"id\":5,\"piece\":\"a\\\"\"},{\"id\":6,\"piece\":[240,159]}]}");
    done();

    post(api_tokenize_encode, "{\"content\":\"\"}");
    end(0, 0, 0);
    same_json(fake.body, "{\"tokens\":[]}");
    done();
    refused(api_tokenize_encode, "{}", 400, "content", "missing_required_parameter");
    refused(api_tokenize_encode, "{\"content\":5}", 400, "content", "invalid_type");
    refused(api_tokenize_encode, "{\"content\":\"a\",\"model\":\"x\"}", 404, "", "model_not_found");
}

static void test_decode(void **state)
{
    (void)state;
    post(api_tokenize_decode, "{\"tokens\":[5,299]}");
    assert_int_equal(fake.tasks[0]->kind, TASK_DETOKENIZE);
    assert_int_equal(fake.tasks[0]->tokenize.prompt.nids, 2);
    assert_int_equal(fake.tasks[0]->tokenize.prompt.ids[1], 299);
    start(0, 0, 0);
    text(0, 0, "a\n");
    text(0, 0, "b");
    end(0, 0, 0);
    same_json(fake.body, "{\"content\":\"a\\nb\",\"prompt\":\"a\\nb\"}");
    done();
    refused(api_tokenize_decode, "{\"tokens\":[300]}", 400, "tokens", "integer_above_max_value");
    refused(api_tokenize_decode, "{\"tokens\":[-1]}", 400, "tokens", "integer_below_min_value");
    refused(api_tokenize_decode, "{\"tokens\":\"a\"}", 400, "tokens", "invalid_type");
    refused(api_tokenize_decode, "{}", 400, "tokens", "missing_required_parameter");
}

static void test_render(void **state)
{
    (void)state;
    post(api_tokenize_render, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"x\":1}],"
                              "\"add_generation_prompt\":false,\"chat_template_kwargs\":{\"k\":true}}");
    const struct prompt *p = &fake.tasks[0]->tokenize.prompt;
    assert_int_equal(fake.tasks[0]->kind, TASK_RENDER);
    same_json(p->messages, "[{\"role\":\"user\",\"content\":\"a\"}]");
    same_json(p->tools, "[{\"x\":1}]");
    same_json(p->kwargs, "{\"k\":true}");
    assert_false(p->add_generation_prompt);
    text(0, 0, "<user>a");
    end(0, 0, 0);
    same_json(fake.body, "{\"prompt\":\"<user>a\"}");
    done();
    refused(api_tokenize_render, "{\"messages\":[]}", 400, "messages", "empty_array");
}

static void test_failures(void **state)
{
    (void)state;
    post(api_tokenize_encode, "{\"content\":\"a\"}");
    fake.r->on_gone(fake.r);
    assert_true(fake.cancelled[0]);
    end_badly(0, ERR_INVALID, "no such template");
    assert_int_equal(fake.status, 400);
    done();
    err_set(&fake.refuse, ERR_BUSY, "full");
    post(api_tokenize_encode, "{\"content\":\"a\"}");
    assert_int_equal(fake.status, 503);
    done();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_encode, set_up),
        cmocka_unit_test_setup(test_decode, set_up),
        cmocka_unit_test_setup(test_render, set_up),
        cmocka_unit_test_setup(test_failures, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
