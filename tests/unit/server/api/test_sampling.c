// The fields of sampling that vLLM and llama-server have beside OpenAI's: what each becomes, and what is out of range (SAMP-01).
#include "tests/unit/server/api/drive.h"

#include <math.h>

static void post_with(const char *fields)
{
    struct buf b;
    buf_init(&b, 1 << 20);
    buf_printf(&b, "{\"model\":\"tiny\",\"prompt\":\"a\",%s}", fields);
    post(api_completions_create, b.data);
    buf_done(&b);
}

static struct generate *asked(const char *fields)
{
    post_with(fields);
    if (fake.ntasks != 1)
        fail_msg("%s: %s", fields, json_dumps(fake.body, 0));
    return &fake.tasks[0]->generate;
}

static void run_out(void)
{
    start(0, 1, 0);
    finish(0, 0, FINISH_STOP);
    end(0, 1, 0);
    done();
}

static void test_numbers(void **state)
{
    (void)state;
    struct generate *g = asked("\"typical_p\":0.5,\"top_n_sigma\":1.5,\"xtc_probability\":0.25,\"xtc_threshold\":0.2,"
                               "\"dry_multiplier\":0.75,\"dry_base\":2,\"dry_allowed_length\":3,\"dry_penalty_last_n\":64,"
                               "\"mirostat\":2,\"mirostat_tau\":4,\"mirostat_eta\":0.5,\"dynatemp_range\":0.5,"
                               "\"dynatemp_exponent\":2,\"repeat_last_n\":33");
    const struct sampling *s = &g->sampling;
    assert_true(s->typical_p == 0.5f && s->top_n_sigma == 1.5f && s->xtc_probability == 0.25f && s->xtc_threshold == 0.2f);
    assert_true(s->dry_multiplier == 0.75f && s->dry_base == 2 && s->mirostat_tau == 4 && s->mirostat_eta == 0.5f);
    assert_true(s->dynatemp_range == 0.5f && s->dynatemp_exponent == 2);
    assert_int_equal(s->dry_allowed_length, 3);
    assert_int_equal(s->dry_last_n, 64);
    assert_int_equal(s->mirostat, 2);
    assert_int_equal(s->penalty_last_n, 33);
    run_out();
    s = &asked("\"mirostat_mode\":1,\"repeat_last_n\":0,\"repeat_penalty\":1.5,\"presence_penalty\":1,\"dry_multiplier\":1,"
               "\"dry_penalty_last_n\":0,\"n_predict\":-1,\"seed\":7")->sampling;
    assert_int_equal(s->mirostat, 1);
    assert_true(s->repetition_penalty == 1 && s->presence_penalty == 0 && s->dry_multiplier == 0);  // look at nothing
    assert_int_equal(s->penalty_last_n, 0);
    assert_int_equal(fake.tasks[0]->generate.max_tokens, -1);
    run_out();
    g = asked("\"n_predict\":9,\"n_probs\":3,\"include_stop_str_in_output\":true,\"skip_special_tokens\":false,"
              "\"repeat_last_n\":-1");
    assert_int_equal(g->max_tokens, 9);
    assert_int_equal(g->logprobs, 3);
    assert_true(g->include_stop && g->show_control);
    assert_int_equal(g->sampling.penalty_last_n, 0);
    run_out();
    g = asked("\"n_predict\":9,\"max_tokens\":5");
    assert_int_equal(g->max_tokens, 5);
    assert_true(!g->include_stop && !g->show_control && g->prompt_logprobs < 0);
    run_out();
}

static void test_lists(void **state)
{
    (void)state;
    struct generate *g = asked("\"stop_token_ids\":[3,299],\"bad_words\":[\"x\",\"\",\"y z\"],"
                               "\"dry_sequence_breakers\":[\"|\"],\"stop\":[\"a\",\"\"]");
    assert_int_equal(g->nstop_ids, 2);
    assert_int_equal(g->stop_ids[1], 299);
    assert_int_equal(g->nbad_words, 2);
    assert_string_equal(g->bad_words[1], "y z");
    assert_int_equal(g->sampling.ndry_breakers, 1);
    assert_string_equal(g->sampling.dry_breakers[0], "|");
    assert_int_equal(g->nstop, 1);
    run_out();
    g = asked("\"dry_sequence_breakers\":[]");
    assert_int_equal(g->sampling.ndry_breakers, 0);
    run_out();
}

// 64 strings that are none of the empty ones; one more is refused.
static void test_stops(void **state)
{
    (void)state;
    for (int n = 64; n < 66; n++) {
        struct buf b;
        buf_init(&b, 1 << 20);
        buf_add_str(&b, "\"stop\":[\"\",\"\"");
        for (int i = 0; i < n; i++)
            buf_printf(&b, ",\"%04096d\"", i);
        buf_add_char(&b, ']');
        if (n == 64) {
            struct generate *g = asked(b.data);
            assert_int_equal(g->nstop, 64);
            assert_int_equal(strlen(g->stop[63]), 4096);
            run_out();
        } else {
            post_with(b.data);
            const json_t *e = json_object_get(fake.body, "error");
            assert_string_equal(json_string_value(json_object_get(e, "code")), "array_above_max_length");
            assert_string_equal(json_string_value(json_object_get(e, "param")), "stop");
            done();
        }
        buf_done(&b);
    }
}

static void test_out_of_range(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"temperature", "1e6"}, {"temperature", "-1"}, {"top_p", "-1"}, {"top_p", "2"}, {"repeat_penalty", "0"},
        {"repeat_penalty", "-100"}, {"frequency_penalty", "100"}, {"n_probs", "1000000000"}, {"max_tokens", "-5"},
        {"max_tokens", "1000000000000"}, {"seed", "1.5"}, {"seed", "36893488147419103232.0"}, {"typical_p", "1.1"},
        {"typical_p", "-0.1"}, {"top_n_sigma", "-2"}, {"xtc_probability", "2"}, {"xtc_threshold", "-1"},
        {"dry_multiplier", "-1"}, {"dry_base", "0.5"}, {"dry_allowed_length", "0"}, {"dry_penalty_last_n", "-2"},
        {"dry_sequence_breakers", "\"\\n\""}, {"dry_sequence_breakers", "[1]"}, {"mirostat", "3"}, {"mirostat", "-1"},
        {"mirostat_mode", "9"}, {"mirostat_tau", "-1"}, {"mirostat_eta", "5"}, {"dynatemp_range", "3"},
        {"dynatemp_exponent", "-1"}, {"repeat_last_n", "-2"}, {"n_predict", "-2"}, {"prompt_logprobs", "21"},
        {"prompt_logprobs", "-1"}, {"stop_token_ids", "[300]"}, {"stop_token_ids", "[-1]"}, {"stop_token_ids", "5"},
        {"bad_words", "[7]"}, {"bad_words", "{}"}, {"include_stop_str_in_output", "1"}, {"skip_special_tokens", "\"no\""}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char fields[200];
        snprintf(fields, sizeof fields, "\"%s\":%s", bad[i][0], bad[i][1]);
        post_with(fields);
        if (fake.status != 400 || fake.ntasks)
            fail_msg("%s: status %d", fields, fake.status);
        const json_t *e = json_object_get(fake.body, "error");
        assert_string_equal(json_string_value(json_object_get(e, "param")), bad[i][0]);
        done();
    }
    post_with("\"prompt_logprobs\":1,\"stream\":true");
    assert_int_equal(fake.status, 400);
    done();
}

static void test_probs_in_chat(void **state)
{
    (void)state;
    static const struct {
        const char *fields;
        int logprobs;
    } cases[] = {{"\"n_probs\":4", 4}, {"\"n_probs\":4,\"logprobs\":true", 0}, {"\"n_probs\":4,\"logprobs\":false", -1},
                 {"\"n_probs\":0", -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[300];
        snprintf(json, sizeof json, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],%s}", cases[i].fields);
        post(api_chat_create, json);
        assert_int_equal(fake.tasks[0]->generate.logprobs, cases[i].logprobs);
        run_out();
    }
}

// vLLM's shape: in the choices of a completion, beside them in a chat answer.
static void test_prompt_logprobs(void **state)
{
    (void)state;
    static const struct token_alternative top[] = {{1, -0.5f, "ab", 2}, {2, -1.25f, "\xC3", 1}};
    const struct token_logprob tokens[] = {{{7, NAN, "x", 1}, NULL, 0, 0, false}, {{1, -0.5f, "ab", 2}, top, 2, 1, false},
                                           {{9, -7.5f, "z", 1}, top, 1, 33, false}};
    static const char want[] = "[null,{\"1\":{\"logprob\":-0.5,\"rank\":1,\"decoded_token\":\"ab\"},\"2\":{\"logprob\":-1.25,\"rank\":2,"
                               "\"decoded_token\":\"\xEF\xBF\xBD\"}},{\"9\":{\"logprob\":-7.5,\"rank\":33,\"decoded_token\":\"z\"},"
                               "\"1\":{\"logprob\":-0.5,\"rank\":1,\"decoded_token\":\"ab\"}}]";
    for (int chat = 0; chat < 2; chat++) {
        if (chat)
            post(api_chat_create, "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"prompt_logprobs\":2}");
        else
            post_with("\"prompt_logprobs\":2,\"n\":2");
        assert_int_equal(fake.tasks[0]->generate.prompt_logprobs, 2);
        start(0, 3, 0);
        emit(0, (struct event){.kind = EVENT_PROMPT, .tokens = tokens, .ntokens = 3});
        finish(0, 0, FINISH_STOP);
        if (!chat)
            finish(0, 1, FINISH_STOP);
        end(0, 1, 0);
        assert_int_equal(fake.status, 200);
        const json_t *choices = json_object_get(fake.body, "choices");
        for (size_t i = 0; i < json_array_size(choices); i++)
            same_json(json_object_get(chat ? fake.body : json_array_get(choices, i), "prompt_logprobs"), want);
        done();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_numbers, set_up),
        cmocka_unit_test_setup(test_lists, set_up),
        cmocka_unit_test_setup(test_stops, set_up),
        cmocka_unit_test_setup(test_out_of_range, set_up),
        cmocka_unit_test_setup(test_probs_in_chat, set_up),
        cmocka_unit_test_setup(test_prompt_logprobs, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
