// Text completions against a fake engine: the four prompt forms, batches, echo, log-probabilities, streams that
// interleave, and several tasks whose events come from several threads.
#include <math.h>

#include "tests/unit/server/api/drive.h"

static const json_t *choice(size_t i)
{
    return json_array_get(json_object_get(fake.body, "choices"), i);
}

static void test_whole(void **state)
{
    (void)state;
    post(api_completions_create, "{\"model\":\"tiny\",\"prompt\":\"Once\"}");
    const struct generate *g = &fake.tasks[0]->generate;
    assert_int_equal(g->max_tokens, 16);
    assert_int_equal(g->prompt.text_len, 4);
    assert_memory_equal(g->prompt.text, "Once", 4);
    start(0, 2, 0);
    text(0, 0, " upon");
    finish(0, 0, FINISH_LENGTH);
    end(0, 2, 1);
    assert_memory_equal(json_string_value(json_object_get(fake.body, "id")), "cmpl-", 5);
    assert_string_equal(json_string_value(json_object_get(fake.body, "object")), "text_completion");
    same_json(choice(0), "{\"text\":\" upon\",\"index\":0,\"logprobs\":null,\"finish_reason\":\"length\"}");
    done();
}

static void run_out(void)
{
    int n = fake.ntasks;
    for (int i = 0; i < n; i++)
        start(i, 1, 0);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < fake.tasks[i]->generate.n; k++)
            finish(i, k, FINISH_STOP);
        end(i, 1, 0);
    }
    done();
}

static void test_prompt_forms(void **state)
{
    (void)state;
    post(api_completions_create, "{\"prompt\":[1,2,3.0]}");
    assert_int_equal(fake.ntasks, 1);
    assert_int_equal(fake.tasks[0]->generate.prompt.nids, 3);
    assert_int_equal(fake.tasks[0]->generate.prompt.ids[2], 3);
    assert_null(fake.tasks[0]->generate.prompt.text);
    run_out();
    post(api_completions_create, "{\"prompt\":[\"a\",\"bc\\u0000\"]}");
    assert_int_equal(fake.ntasks, 2);
    assert_int_equal(fake.tasks[1]->generate.prompt.text_len, 3);
    run_out();
    post(api_completions_create, "{\"prompt\":[[1,2],[3]]}");  // TOK-07
    assert_int_equal(fake.ntasks, 2);
    assert_int_equal(fake.tasks[1]->generate.prompt.ids[0], 3);
    run_out();
    for (int i = 0; i < 2; i++) {  // CHAT-13
        post(api_completions_create, i ? "{}" : "{\"prompt\":\"\"}");
        assert_int_equal(fake.tasks[0]->generate.prompt.text_len, 0);
        assert_non_null(fake.tasks[0]->generate.prompt.text);
        run_out();
    }
    static const char *const bad[] = {"[-1]", "[300]", "[99999999999]", "[[1],[1e300]]"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char json[64];
        snprintf(json, sizeof json, "{\"prompt\":%s}", bad[i]);
        refused(api_completions_create, json, 400, "prompt", "invalid_value");
    }
    static const char *const wrong[] = {"[1.5]", "[\"a\",1]", "[[1],[]]", "[[1],[\"a\"]]", "{}", "5", "[null]"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char json[64];
        snprintf(json, sizeof json, "{\"prompt\":%s}", wrong[i]);
        refused(api_completions_create, json, 400, "prompt", "invalid_type");
    }
    refused(api_completions_create, "{\"prompt\":[]}", 400, "prompt", "empty_array");
}

static void test_own_fields(void **state)
{
    (void)state;
    post(api_completions_create, "{\"prompt\":\"x\",\"max_tokens\":0,\"echo\":true,\"logprobs\":0,\"n\":2,\"best_of\":2,\"suffix\":\"\"}");
    const struct generate *g = &fake.tasks[0]->generate;
    assert_true(g->max_tokens == 0 && g->echo && g->logprobs == 0 && g->n == 2);
    run_out();
    refused(api_completions_create, "{\"prompt\":\"x\",\"suffix\":\"y\"}", 400, "suffix", "unsupported_parameter");
    refused(api_completions_create, "{\"prompt\":\"x\",\"best_of\":2,\"stream\":true}", 400, "best_of", "invalid_value");
    refused(api_completions_create, "{\"prompt\":\"x\",\"best_of\":21}", 400, "best_of", "integer_above_max_value");
    refused(api_completions_create, "{\"prompt\":\"x\",\"best_of\":1,\"n\":2}", 400, "best_of", "invalid_value");
    refused(api_completions_create, "{\"prompt\":\"x\",\"logprobs\":21}", 400, "logprobs", "integer_above_max_value");
    refused(api_completions_create, "{\"prompt\":\"x\",\"logprobs\":true}", 400, "logprobs", "invalid_type");
    refused(api_completions_create, "{\"prompt\":\"x\",\"max_tokens\":-2}", 400, "max_tokens", "integer_below_min_value");
    refused(api_completions_create, "{\"prompt\":\"x\",\"echo\":\"yes\"}", 400, "echo", "invalid_type");
}

// The text before and after a gap; what is repeated is the text before it.
static void test_suffix(void **state)
{
    (void)state;
    fake.models[0].fills = true;
    post(api_completions_create, "{\"prompt\":[\"a\",\"b\\u0000\"],\"suffix\":\"s\\u0000\",\"echo\":true,\"n\":2}");
    assert_int_equal(fake.ntasks, 2);
    for (int i = 0; i < 2; i++) {
        const struct prompt *p = &fake.tasks[i]->generate.prompt;
        assert_int_equal(p->suffix_len, 2);
        assert_memory_equal(p->suffix, "s\0", 2);
        assert_false(fake.tasks[i]->generate.echo);
        start(i, 3, 0);
        for (int k = 0; k < 2; k++) {
            text(i, k, "m");
            finish(i, k, FINISH_STOP);
        }
        end(i, 3, 2);
    }
    same_json(choice(1), "{\"text\":\"am\",\"index\":1,\"logprobs\":null,\"finish_reason\":\"stop\"}");
    same_json(choice(2), "{\"text\":\"b\\u0000m\",\"index\":2,\"logprobs\":null,\"finish_reason\":\"stop\"}");
    done();
    fake.models[0].fills = true;
    post(api_completions_create, "{\"prompt\":\"a\",\"suffix\":\"s\",\"echo\":true,\"stream\":true}");
    start(0, 3, 0);
    text(0, 0, "m");
    finish(0, 0, FINISH_STOP);
    end(0, 3, 1);
    assert_int_equal(fake.nevents, 3);
    assert_non_null(strstr(chunk(0), "{\"text\":\"a\",\"index\":0,"));
    assert_non_null(strstr(chunk(1), "{\"text\":\"m\",\"index\":0,"));
    done();
    fake.models[0].fills = true;
    refused(api_completions_create, "{\"prompt\":[1,2],\"suffix\":\"s\"}", 400, "suffix", "unsupported_parameter");
    refused(api_completions_create, "{\"prompt\":\"x\",\"suffix\":5}", 400, "suffix", "invalid_type");
    fake.models[0].fills = true;
    refused(api_completions_create, "{\"prompt\":\"x\",\"suffix\":\"s\",\"echo\":true,\"logprobs\":1}", 400, "echo",
            "unsupported_parameter");
}

static void scored(int index, const char *what, float first, float second)
{
    struct token_logprob tokens[] = {{{1, index ? -9 : NAN, "p", 1}, NULL, 0, 0, true},
                                     {{5, first, what, strlen(what)}, NULL, 0, 0, true},
                                     {{6, second, "", 0}, NULL, 0, 0, true}};
    bool echo = fake.tasks[0]->generate.echo;
    emit(0, (struct event){.kind = EVENT_TEXT, .choice = index, .text = what, .len = strlen(what),
                           .tokens = tokens + !echo, .ntokens = 2u + echo});
    finish(0, index, FINISH_STOP);
}

// The n likeliest by the mean over their own tokens, the earlier of two equal ones first; usage counts all.
static void test_best_of(void **state)
{
    (void)state;
    for (int echo = 0; echo < 2; echo++) {
        post(api_completions_create, echo ? "{\"prompt\":\"p\",\"n\":2,\"best_of\":4,\"logprobs\":0,\"echo\":true}"
                                          : "{\"prompt\":\"p\",\"n\":2,\"best_of\":4}");
        assert_int_equal(fake.tasks[0]->generate.n, 4);
        assert_int_equal(fake.tasks[0]->generate.logprobs, 0);
        start(0, 1, 0);
        scored(1, "one", -2, -1);
        scored(0, "zero", -8, 0);
        scored(3, "three", -1, -2);
        scored(2, "two", -0.5f, 0);
        end(0, 1, 8);
        assert_int_equal(json_array_size(json_object_get(fake.body, "choices")), 2);
        assert_string_equal(json_string_value(json_object_get(choice(0), "text")), "two");
        assert_string_equal(json_string_value(json_object_get(choice(1), "text")), "one");
        assert_int_equal(json_is_null(json_object_get(choice(0), "logprobs")), !echo);
        const json_t *usage = json_object_get(fake.body, "usage");
        assert_int_equal(json_integer_value(json_object_get(usage, "completion_tokens")), 8);
        done();
    }
}

// index = prompt * n + choice, in order, whatever order the events had; usage is the sum.
static void test_batch(void **state)
{
    (void)state;
    post(api_completions_create, "{\"prompt\":[\"a\",\"b\"],\"n\":2}");
    start(1, 3, 0);
    text(1, 1, "b1");
    finish(1, 1, FINISH_STOP);
    text(1, 0, "b0");
    finish(1, 0, FINISH_STOP);
    end(1, 3, 2);
    assert_int_equal(fake.answers, 0);
    start(0, 2, 0);
    text(0, 0, "a0");
    finish(0, 0, FINISH_STOP);
    finish(0, 1, FINISH_LENGTH);
    end(0, 2, 1);
    static const char *const want[] = {"a0", "", "b0", "b1"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(json_integer_value(json_object_get(choice(i), "index")), i);
        assert_string_equal(json_string_value(json_object_get(choice(i), "text")), want[i]);
    }
    const json_t *usage = json_object_get(fake.body, "usage");
    assert_int_equal(json_integer_value(json_object_get(usage, "prompt_tokens")), 5);
    assert_int_equal(json_integer_value(json_object_get(usage, "completion_tokens")), 3);
    done();
}

// The stream opens when all prompts are admitted; what came before is sent then, and choices interleave.
static void test_batch_stream(void **state)
{
    (void)state;
    post(api_completions_create, "{\"prompt\":[\"a\",\"b\"],\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    start(0, 1, 0);
    text(0, 0, "x\n");
    assert_false(fake.stream);
    start(1, 1, 0);
    text(1, 0, "y");
    text(0, 0, "z");
    finish(0, 0, FINISH_STOP);
    end(0, 1, 2);
    finish(1, 0, FINISH_STOP);
    end(1, 1, 1);
    static const char *const want[] = {
        "\"choices\":[{\"text\":\"x\\n\",\"index\":0,\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}",
        "\"choices\":[{\"text\":\"y\",\"index\":1,\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}",
        "\"choices\":[{\"text\":\"z\",\"index\":0,\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}",
        "\"choices\":[{\"text\":\"\",\"index\":0,\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":null}",
        "\"choices\":[{\"text\":\"\",\"index\":1,\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":null}",
    };
    assert_int_equal(fake.nevents, 6);
    for (int i = 0; i < 5; i++)
        assert_string_equal(chunk(i), want[i]);
    starts_with(chunk(5), "\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":3,");
    assert_non_null(strstr(fake.events[0], "\"object\":\"text_completion\""));
    assert_true(fake.with_done);
    done();
}

// With much text waiting the stream opens early; a late failure is then an event.
static void test_batch_stream_early(void **state)
{
    (void)state;
    static char big[40 << 10];
    memset(big, 'b', sizeof big - 1);
    post(api_completions_create, "{\"prompt\":[\"a\",\"b\"],\"stream\":true}");
    start(0, 1, 0);
    text(0, 0, big);
    assert_false(fake.stream);
    text(0, 0, big);
    assert_true(fake.stream);
    assert_int_equal(fake.nevents, 2);
    start(1, 1, 0);
    end_badly(1, ERR_TIMEOUT, "late");
    end_badly(0, ERR_CANCELLED, "cancelled");
    assert_int_equal(fake.nevents, 3);
    starts_with(fake.events[2], "{\"error\":{\"message\":\"late\"");
    assert_false(fake.with_done);
    done();
}

// One prompt that cannot be served: the whole request is refused with a status, the others are cancelled.
static void test_batch_failure(void **state)
{
    (void)state;
    post(api_completions_create, "{\"prompt\":[\"a\",\"b\",\"c\"],\"stream\":true}");
    start(0, 1, 0);
    text(0, 0, "x");
    end_badly(1, ERR_CONTEXT, "too long");
    assert_true(fake.cancelled[0] && fake.cancelled[2]);
    assert_int_equal(fake.answers, 0);
    start(2, 1, 0);
    text(0, 0, "late");
    end_badly(0, ERR_CANCELLED, "cancelled");
    end_badly(2, ERR_CANCELLED, "cancelled");
    assert_false(fake.stream);
    assert_int_equal(fake.status, 400);
    assert_true(json_is_null(json_object_get(json_object_get(fake.body, "error"), "param")));
    done();

    err_set(&fake.refuse, ERR_BUSY, "full");
    fake.refuse_at = 2;
    post(api_completions_create, "{\"prompt\":[\"a\",\"b\",\"c\",\"d\"]}");
    assert_true(fake.cancelled[0] && fake.cancelled[1]);
    assert_int_equal(fake.answers, 0);
    end_badly(0, ERR_CANCELLED, "cancelled");
    end_badly(1, ERR_CANCELLED, "cancelled");
    assert_int_equal(fake.status, 503);
    done();
}

static void emit_tokens(int task)
{
    static const struct token_alternative top[] = {{1, -0.5f, "ab", 2}, {2, -1, "c", 1}, {9, -2, "c", 1}};
    struct token_logprob tokens[] = {{{7, NAN, "ab", 2}, NULL, 0, 0, true},
                                     {{5, -3, "\xC3", 1}, top, 3, 4, true},
                                     {{6, -0.5f, "\xA9", 1}, top, 1, 1, true},
                                     {{1, -0.5f, "ab", 2}, top, 1, 1, true}};
    emit(task, (struct event){.kind = EVENT_TEXT, .text = "ab\xC3\xA9" "ab", .len = 6, .tokens = tokens, .ntokens = 4});
}

// CHAT-10. The first token of an echoed prompt has no log-probability; a token inside a character starts where it does.
static void test_logprobs(void **state)
{
    (void)state;
    post(api_completions_create, "{\"prompt\":\"\\u00e9t\",\"logprobs\":2,\"echo\":true}");
    start(0, 1, 0);
    emit_tokens(0);
    finish(0, 0, FINISH_STOP);
    end(0, 1, 4);
    same_json(json_object_get(choice(0), "logprobs"),
              "{\"tokens\":[\"ab\",\"bytes:\\\\xc3\",\"bytes:\\\\xa9\",\"ab\"],\"token_logprobs\":[null,-3.0,-0.5,-0.5],"
              "\"top_logprobs\":[null,{\"ab\":-0.5,\"c\":-1.0,\"bytes:\\\\xc3\":-3.0},{\"ab\":-0.5,\"bytes:\\\\xa9\":-0.5},"
              "{\"ab\":-0.5}],\"text_offset\":[0,2,2,3]}");
    done();

    post(api_completions_create, "{\"prompt\":\"\\u00e9t\",\"logprobs\":0,\"stream\":true}");
    start(0, 1, 0);
    emit_tokens(0);
    text(0, 0, "x");
    finish(0, 0, FINISH_STOP);
    end(0, 1, 4);
    assert_non_null(strstr(chunk(0), "\"top_logprobs\":null,\"text_offset\":[2,4,4,5]}"));
    assert_non_null(strstr(chunk(1), "\"logprobs\":null"));
    done();
}

// Events of different tasks come on different threads at once.
static void *run_task(void *at)
{
    int i = (int)(intptr_t)at;
    start(i, 1, 0);
    for (int k = 0; k < 50; k++)
        text(i, 0, "t");
    finish(i, 0, FINISH_STOP);
    if (i == 3 && fake.refuse_at)
        end_badly(i, ERR_INTERNAL, "broken");
    else
        end(i, 1, 50);
    return NULL;
}

static void run_threads(const char *json)
{
    post(api_completions_create, json);
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, run_task, (void *)(intptr_t)i);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
}

static void test_threads(void **state)
{
    (void)state;
    run_threads("{\"prompt\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\"]}");
    assert_int_equal(fake.status, 200);
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(json_string_length(json_object_get(choice(i), "text")), 50);
    done();
    run_threads("{\"stream\":true,\"prompt\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\"]}");
    assert_true(fake.with_done);
    assert_int_equal(fake.nevents, 8 * 51);
    done();
    fake.refuse_at = 1;  // task 3 fails
    run_threads("{\"prompt\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\"]}");
    assert_int_equal(fake.status, 500);
    done();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_whole, set_up),       cmocka_unit_test_setup(test_prompt_forms, set_up),
        cmocka_unit_test_setup(test_own_fields, set_up),  cmocka_unit_test_setup(test_batch, set_up),
        cmocka_unit_test_setup(test_batch_stream, set_up), cmocka_unit_test_setup(test_batch_stream_early, set_up),
        cmocka_unit_test_setup(test_batch_failure, set_up), cmocka_unit_test_setup(test_suffix, set_up),
        cmocka_unit_test_setup(test_best_of, set_up),
        cmocka_unit_test_setup(test_logprobs, set_up),    cmocka_unit_test_setup(test_threads, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
