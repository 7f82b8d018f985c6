// Chat completions against a fake engine: exact chunks, whole answers, and what each field becomes.
#include <math.h>

#include "tests/unit/server/api/drive.h"

#define SIXTY "123456789 123456789 123456789 123456789 123456789 123456789 "
#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"

static struct generate *asked(void)
{
    assert_int_equal(fake.ntasks, 1);
    return &fake.tasks[0]->generate;
}

static void run_out(void)  // the shortest answer
{
    start(0, 1, 0);
    for (int i = 0; i < asked()->n; i++)
        finish(0, i, FINISH_STOP);
    end(0, 1, 0);
    done();
}

static void test_whole(void **state)
{
    (void)state;
    post(api_chat_create, "{\"model\":\"tiny\"," HI ",\"service_tier\":\"auto\"}");
    start(0, 5, 2);
    text(0, 0, "Hel");
    text(0, 0, "lo \"you\"\n");
    finish(0, 0, FINISH_LENGTH);
    assert_int_equal(fake.answers, 0);
    end_task(0, (struct event){.usage = {5, 2, 3, 0}});
    assert_int_equal(fake.status, 200);
    const json_t *b = fake.body;
    assert_memory_equal(json_string_value(json_object_get(b, "id")), "chatcmpl-", 9);
    assert_string_equal(json_string_value(json_object_get(b, "object")), "chat.completion");
    assert_string_equal(json_string_value(json_object_get(b, "model")), "tiny");
    assert_string_equal(json_string_value(json_object_get(b, "service_tier")), "default");
    assert_memory_equal(json_string_value(json_object_get(b, "system_fingerprint")), "fp_", 3);
    assert_true(json_is_integer(json_object_get(b, "created")));
    same_json(json_object_get(b, "choices"),
              "[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Hello \\\"you\\\"\\n\",\"refusal\":null,"
              "\"annotations\":[]},\"logprobs\":null,\"finish_reason\":\"length\"}]");
    same_json(json_object_get(b, "usage"),
              "{\"prompt_tokens\":5,\"completion_tokens\":3,\"total_tokens\":8,"
              "\"prompt_tokens_details\":{\"cached_tokens\":2,\"audio_tokens\":0},"
              "\"completion_tokens_details\":{\"reasoning_tokens\":0,\"audio_tokens\":0,"
              "\"accepted_prediction_tokens\":0,\"rejected_prediction_tokens\":0}}");
    done();
}

static void test_stream(void **state)
{
    (void)state;
    post(api_chat_create, "{\"model\":\"tiny\",\"stream\":true," HI "}");
    assert_false(fake.stream);
    start(0, 5, 0);
    assert_true(fake.stream);
    text(0, 0, "Hel");
    emit(0, (struct event){.kind = EVENT_TEXT, .text = "", .len = 0});
    text(0, 0, "lo");
    finish(0, 0, FINISH_STOP);
    end(0, 5, 2);
    assert_int_equal(fake.nevents, 4);
    assert_non_null(strstr(fake.events[0], "\"object\":\"chat.completion.chunk\""));
    assert_string_equal(chunk(0), "\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},"
                                  "\"logprobs\":null,\"finish_reason\":null}]}");
    assert_string_equal(chunk(1), "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hel\"},\"logprobs\":null,"
                                  "\"finish_reason\":null}]}");
    assert_string_equal(chunk(3), "\"choices\":[{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}]}");
    size_t head = (size_t)(chunk(0) - fake.events[0]);
    for (int i = 1; i < fake.nevents; i++)
        assert_memory_equal(fake.events[i], fake.events[0], head);
    assert_true(fake.with_done);
    done();
}

// HTTP-03: one chunk with usage, the last one, without choices; null in all others.
static void test_stream_usage(void **state)
{
    (void)state;
    post(api_chat_create, "{\"stream\":true,\"stream_options\":{\"include_usage\":true}," HI "}");
    start(0, 5, 0);
    text(0, 0, "a");
    finish(0, 0, FINISH_STOP);
    end(0, 5, 1);
    assert_int_equal(fake.nevents, 4);
    for (int i = 0; i < 3; i++)
        assert_non_null(strstr(fake.events[i], "],\"usage\":null}"));
    starts_with(chunk(3), "\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1,\"total_tokens\":6,");
    done();
}

static void told(int choice, const char *s, const int32_t *ids, size_t n, int completion)
{
    emit(0, (struct event){.kind = EVENT_TEXT, .choice = choice, .text = s, .len = strlen(s), .ids = ids, .nids = n,
                           .usage = {3, 0, completion, 0}});
}

// vLLM's return_token_ids: the prompt's in the first chunk of each choice, a token without text in a chunk of its own, the last
// with the finish reason. And its continuous_usage_stats.
static void test_token_ids(void **state)
{
    (void)state;
    static const int32_t prompt[] = {9, 8, 7}, ids[] = {5, 6, 2};
    post(api_chat_create, "{\"stream\":true,\"return_token_ids\":true,\"stream_options\":{\"continuous_usage_stats\":true}," HI "}");
    assert_true(asked()->token_ids);
    emit(0, (struct event){.kind = EVENT_START, .ids = prompt, .nids = 3, .usage = {3, 0, 0, 0}});
    told(0, "", ids, 1, 1);
    told(0, "x", ids + 1, 1, 2);
    told(0, "y", NULL, 0, 2);
    emit(0, (struct event){.kind = EVENT_FINISH, .ids = ids + 2, .nids = 1, .usage = {3, 0, 3, 0}});
    end(0, 3, 3);
    static const char *const parts[] = {"\"content\":\"\",\"refusal\":null}", "{\"content\":\"\"}", "{\"content\":\"x\"}",
                                        "{\"content\":\"y\"}", "\"finish_reason\":\"stop\""};
    static const char *const lists[] = {"\"token_ids\":[]}],\"prompt_token_ids\":[9,8,7],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":0,",
                                        "\"token_ids\":[5]}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1,",
                                        "\"token_ids\":[6]}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2,",
                                        "\"token_ids\":[]}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2,",
                                        "\"token_ids\":[2]}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":3,"};
    assert_int_equal(fake.nevents, 5);
    for (int i = 0; i < 5; i++)
        if (!strstr(fake.events[i], parts[i]) || !strstr(fake.events[i], lists[i]))
            fail_msg("%s has neither %s nor %s", fake.events[i], parts[i], lists[i]);
    done();

    post(api_chat_create, "{\"n\":2,\"return_token_ids\":true," HI "}");
    emit(0, (struct event){.kind = EVENT_START, .ids = prompt, .nids = 3});
    told(1, "a", ids, 2, 2);
    told(0, "b", ids + 1, 1, 3);
    told(1, "c", ids + 2, 1, 4);
    finish(0, 0, FINISH_STOP);
    finish(0, 1, FINISH_STOP);
    end(0, 3, 4);
    const json_t *choices = json_object_get(fake.body, "choices");
    same_json(json_object_get(json_array_get(choices, 0), "token_ids"), "[6]");
    same_json(json_object_get(json_array_get(choices, 1), "token_ids"), "[5,6,2]");
    same_json(json_object_get(fake.body, "prompt_token_ids"), "[9,8,7]");
    done();
}

// CHAT-09: role chunks in order first, each index with its own end.
static void test_several_choices(void **state)
{
    (void)state;
    post(api_chat_create, "{\"stream\":true,\"n\":3," HI "}");
    assert_int_equal(asked()->n, 3);
    start(0, 5, 0);
    text(0, 2, "c");
    text(0, 0, "a");
    finish(0, 2, FINISH_LENGTH);
    finish(0, 0, FINISH_STOP);
    finish(0, 1, FINISH_STOP);
    end(0, 5, 2);
    static const char *const starts[] = {
        "\"choices\":[{\"index\":0,\"delta\":{\"role\"", "\"choices\":[{\"index\":1,\"delta\":{\"role\"",
        "\"choices\":[{\"index\":2,\"delta\":{\"role\"", "\"choices\":[{\"index\":2,\"delta\":{\"content\":\"c\"}",
        "\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}", "\"choices\":[{\"index\":2,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\"",
        "\"choices\":[{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"", "\"choices\":[{\"index\":1,\"delta\":{},"};
    assert_int_equal(fake.nevents, 8);
    for (int i = 0; i < 8; i++)
        starts_with(chunk(i), starts[i]);
    done();

    post(api_chat_create, "{\"n\":2," HI "}");
    start(0, 5, 0);
    text(0, 1, "B");
    finish(0, 1, FINISH_STOP);
    text(0, 0, "A");
    finish(0, 0, FINISH_STOP);
    end(0, 5, 4);
    assert_int_equal(json_array_size(json_object_get(fake.body, "choices")), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *c = json_array_get(json_object_get(fake.body, "choices"), i);
        assert_int_equal(json_integer_value(json_object_get(c, "index")), i);
        assert_string_equal(json_string_value(json_object_get(json_object_get(c, "message"), "content")), i ? "B" : "A");
    }
    done();
}

static void emit_logprobs(void)
{
    struct token_alternative top[2] = {{1, -0.25f, " a", 2}, {2, -INFINITY, "\xF0\x9F", 2}};
    struct token_logprob tokens[2] = {{{2, -1.5f, "\xF0\x9F", 2}, top, 2, 2, true}, {{3, -0.1f, "\xA6\x99", 2}, top, 0, 1, true}};
    emit(0, (struct event){.kind = EVENT_TEXT, .text = "\xF0\x9F\xA6\x99", .len = 4, .tokens = tokens, .ntokens = 2});
}

// CHAT-11, CHAT-12: every token with its true bytes; top_logprobs is there even when nobody asked for alternatives.
static void test_logprobs(void **state)
{
    (void)state;
    static const char want[] =
        "{\"content\":[{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-1.5,\"bytes\":[240,159],\"top_logprobs\":["
        "{\"token\":\" a\",\"logprob\":-0.25,\"bytes\":[32,97]},"
        "{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-9999.0,\"bytes\":[240,159]}]},"
        "{\"token\":\"\xEF\xBF\xBD\xEF\xBF\xBD\",\"logprob\":-0.1,\"bytes\":[166,153],\"top_logprobs\":[]}],\"refusal\":null}";
    post(api_chat_create, "{\"logprobs\":true,\"top_logprobs\":2," HI "}");
    assert_int_equal(asked()->logprobs, 2);
    start(0, 1, 0);
    emit_logprobs();
    finish(0, 0, FINISH_STOP);
    end(0, 1, 2);
    same_json(json_object_get(json_array_get(json_object_get(fake.body, "choices"), 0), "logprobs"), want);
    done();

    post(api_chat_create, "{\"stream\":true,\"logprobs\":true,\"top_logprobs\":0," HI "}");
    assert_int_equal(asked()->logprobs, 0);
    start(0, 1, 0);
    emit_logprobs();
    text(0, 0, "x");
    finish(0, 0, FINISH_STOP);
    end(0, 1, 2);
    assert_non_null(strstr(chunk(0), "\"logprobs\":null"));
    assert_non_null(strstr(chunk(1), want));
    assert_non_null(strstr(chunk(2), "\"logprobs\":null"));
    done();

    post(api_chat_create, "{\"logprobs\":true," HI "}");
    start(0, 1, 0);
    finish(0, 0, FINISH_STOP);
    end(0, 1, 0);
    same_json(json_object_get(json_array_get(json_object_get(fake.body, "choices"), 0), "logprobs"),
              "{\"content\":[],\"refusal\":null}");
    done();
    refused(api_chat_create, "{\"top_logprobs\":3," HI "}", 400, "top_logprobs", "invalid_value");
    refused(api_chat_create, "{\"logprobs\":true,\"top_logprobs\":21," HI "}", 400, "top_logprobs", "integer_above_max_value");
}

static void test_settings(void **state)
{
    (void)state;
    post(api_chat_create,
         "{\"model\":\"tiny\",\"temperature\":0.5,\"top_p\":0.9,\"top_k\":40,\"min_p\":0.1,\"presence_penalty\":-1,"
         "\"frequency_penalty\":1.5,\"repetition_penalty\":1.25,\"seed\":-1,\"logit_bias\":{\"5\":-100,\"299\":2},"
         "\"stop\":[\"END\",\"\",\"x\"],\"max_tokens\":50,\"max_completion_tokens\":5.0,\"min_tokens\":2,\"ignore_eos\":true,"
         "\"timeout\":2,\"cache_salt\":\"s\"," HI "}");
    const struct generate *g = asked();
    const struct sampling *s = &g->sampling;
    assert_string_equal(fake.tasks[0]->model, "tiny");
    assert_true(s->temperature == 0.5f && s->top_p == 0.9f && s->top_k == 40 && s->min_p == 0.1f);
    assert_true(s->presence_penalty == -1 && s->frequency_penalty == 1.5f && s->repetition_penalty == 1.25f);
    assert_true(s->seed == UINT64_MAX);
    assert_int_equal(s->nbias, 2);
    assert_true(s->bias[0].id == 5 && s->bias[0].bias == -100 && s->bias[1].id == 299 && s->bias[1].bias == 2);
    assert_int_equal(g->nstop, 2);
    assert_string_equal(g->stop[0], "END");
    assert_string_equal(g->stop[1], "x");
    assert_int_equal(g->max_tokens, 5);  // CHAT-06
    assert_int_equal(g->min_tokens, 2);
    assert_true(g->ignore_eos);
    assert_int_equal(g->logprobs, -1);
    assert_true(g->prompt.add_generation_prompt);
    assert_false(g->prompt.continue_final_message);
    assert_non_null(fake.tasks[0]->cache_salt);  // what it is: test_caller
    assert_true(fake.tasks[0]->deadline_ns == fake.r->received_ns + 2000000000);
    run_out();
    post(api_chat_create, "{\"repeat_penalty\":1.5,\"top_k\":-1,\"stop\":\"S\",\"max_tokens\":9," HI "}");
    assert_true(asked()->sampling.repetition_penalty == 1.5f);
    assert_int_equal(asked()->sampling.top_k, 0);
    assert_int_equal(asked()->max_tokens, 9);
    assert_int_equal(asked()->nstop, 1);
    run_out();
}

// HTTP-06: null is absence. CHAT-03, CHAT-04: nothing to stop at is no stop.
static void test_nulls(void **state)
{
    (void)state;
    post(api_chat_create,
         "{\"model\":null,\"temperature\":null,\"top_p\":null,\"max_tokens\":null,\"max_completion_tokens\":null,\"stop\":null,"
         "\"seed\":null,\"tools\":null,\"tool_choice\":null,\"functions\":null,\"response_format\":null,\"logit_bias\":null,"
         "\"user\":null,\"n\":null,\"stream\":null,\"stream_options\":null,\"logprobs\":null,\"top_logprobs\":null,"
         "\"reasoning_effort\":null,\"chat_template_kwargs\":null,\"modalities\":null,\"audio\":null,\"moderation\":null,"
         "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\",\"name\":null,\"tool_calls\":null}]}");
    const struct generate *g = asked();
    assert_true(g->sampling.temperature == 1 && g->sampling.top_p == 1 && g->sampling.seed == 77 && !g->sampling.nbias);
    assert_true(g->max_tokens == -1 && g->n == 1 && g->nstop == 0 && g->logprobs == -1 && !g->prompt.kwargs);
    same_json(g->prompt.messages, "[{\"role\":\"user\",\"content\":\"Hi\"}]");
    assert_string_equal(fake.ignored, "");
    run_out();
    for (int i = 0; i < 2; i++) {
        post(api_chat_create, i ? "{\"stop\":\"\"," HI "}" : "{\"stop\":[]," HI "}");
        assert_int_equal(asked()->nstop, 0);
        run_out();
    }
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *fields, *param, *code;
        int status;
    } cases[] = {
        {"\"model\":\"gpt-4o\"", "", "model_not_found", 404},
        {"\"model\":5", "model", "invalid_type", 400},
        {"\"temperature\":\"x\"", "temperature", "invalid_type", 400},
        {"\"temperature\":2.1", "temperature", "decimal_above_max_value", 400},
        {"\"temperature\":-0.1", "temperature", "decimal_below_min_value", 400},
        {"\"top_p\":1.5", "top_p", "decimal_above_max_value", 400},
        {"\"n\":0", "n", "integer_below_min_value", 400},
        {"\"n\":129", "n", "integer_above_max_value", 400},
        {"\"n\":1.5", "n", "invalid_type", 400},
        {"\"n\":true", "n", "invalid_type", 400},
        {"\"max_tokens\":0", "max_tokens", "integer_below_min_value", 400},
        {"\"max_completion_tokens\":0", "max_completion_tokens", "integer_below_min_value", 400},
        {"\"max_tokens\":3,\"min_tokens\":4", "min_tokens", "invalid_value", 400},
        {"\"stream\":1", "stream", "invalid_type", 400},
        {"\"stream\":true,\"stream_options\":[]", "stream_options", "invalid_type", 400},
        {"\"stream\":true,\"stream_options\":{\"include_usage\":1}", "stream_options.include_usage", "invalid_type", 400},
        {"\"stop\":[1]", "stop", "invalid_type", 400},
        {"\"logit_bias\":{\"300\":1}", "logit_bias", "invalid_value", 400},
        {"\"logit_bias\":{\"x\":1}", "logit_bias", "invalid_value", 400},
        {"\"logit_bias\":{\"1\":101}", "logit_bias.1", "decimal_above_max_value", 400},
        {"\"logit_bias\":[]", "logit_bias", "invalid_type", 400},
        {"\"reasoning_format\":\"none\",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]", "reasoning_format",
         "invalid_value", 400},
        {"\"verbosity\":\"loud\"", "verbosity", "invalid_value", 400},
        {"\"store\":1", "store", "invalid_type", 400},
        {"\"echo\":1", "echo", "invalid_type", 400},
        {"\"metadata\":[]", "metadata", "invalid_type", 400},
        {"\"metadata\":{\"" SIXTY "12345\":1}", "metadata", "string_above_max_length", 400},
        {"\"safety_identifier\":\"" SIXTY "12345\"", "safety_identifier", "string_above_max_length", 400},
        {"\"prompt_cache_key\":1", "prompt_cache_key", "invalid_type", 400},
        {"\"prediction\":{\"type\":\"x\"}", "prediction.type", "invalid_value", 400},
        {"\"prediction\":{\"type\":\"content\",\"content\":1}", "prediction.content", "invalid_type", 400},
        {"\"response_format\":{\"type\":\"grammar\"}", "response_format", "unsupported_value", 400},
        {"\"modalities\":[\"text\",\"audio\"]", "modalities", "unsupported_value", 400},
        {"\"audio\":{\"voice\":\"x\"}", "audio", "unsupported_parameter", 400},
        {"\"web_search_options\":{}", "web_search_options", "unsupported_parameter", 400},
        {"\"moderation\":{\"model\":\"m\"}", "moderation", "unsupported_parameter", 400},
        {"\"guided_whitespace_pattern\":\" *\"", "guided_whitespace_pattern", "unsupported_parameter", 400},
        {"\"tfs_z\":0.5", "tfs_z", "unsupported_parameter", 400},
        {"\"reasoning_effort\":\"huge\"", "reasoning_effort", "invalid_value", 400},
        {"\"chat_template_kwargs\":{\"messages\":[]}", "chat_template_kwargs", "invalid_value", 400},
        {"\"continue_final_message\":true", "continue_final_message", "invalid_value", 400},
        {"\"timeout\":0", "timeout", "decimal_below_min_value", 400},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char json[300];
        snprintf(json, sizeof json, "{%s," HI "}", cases[i].fields);
        refused(api_chat_create, json, cases[i].status, cases[i].param, cases[i].code);
    }
    refused(api_chat_create, "{}", 400, "messages", "missing_required_parameter");
}

static void test_harmless(void **state)
{
    (void)state;
    post(api_chat_create,
         "{\"tools\":[],\"tool_choice\":\"auto\",\"response_format\":{\"type\":\"text\"},\"modalities\":[\"text\"],"
         "\"mirostat\":0,\"typical_p\":1.0,\"store\":true,\"metadata\":{\"a\":1},\"user\":5,\"verbosity\":\"low\","
         "\"stream_options\":{},\"prediction\":{\"type\":\"content\",\"content\":\"x\"},\"parallel_tool_calls\":true,\"echo\":true,\"zeta\":1,\"\\u00e9\\n\":2," HI "}");
    assert_string_equal(fake.ignored, "zeta, ?");
    run_out();
    fake.settings.strict_fields = true;
    refused(api_chat_create, "{\"zeta\":1," HI "}", 400, "zeta", "unknown_parameter");
}

static void test_kwargs(void **state)
{
    (void)state;
    post(api_chat_create, "{\"reasoning_effort\":\"none\",\"chat_template_kwargs\":{\"a\":1}," HI "}");
    same_json(asked()->prompt.kwargs, "{\"reasoning_effort\":\"none\",\"enable_thinking\":false,\"thinking\":false,\"a\":1}");
    run_out();
    post(api_chat_create, "{\"continue_final_message\":true,\"messages\":[{\"role\":\"user\",\"content\":\"a\"},"
                          "{\"role\":\"assistant\",\"content\":\"b\"}]}");
    assert_true(asked()->prompt.continue_final_message);
    assert_false(asked()->prompt.add_generation_prompt);
    run_out();
}

// HTTP-05: a failure after the 200 is an event with an error and nothing that looks like an end.
static void test_failure_in_stream(void **state)
{
    (void)state;
    post(api_chat_create, "{\"stream\":true," HI "}");
    start(0, 1, 0);
    text(0, 0, "a");
    end_badly(0, ERR_TIMEOUT, "the deadline passed");
    assert_int_equal(fake.nevents, 3);
    assert_string_equal(fake.events[2], "{\"error\":{\"message\":\"the deadline passed\",\"type\":\"server_error\",\"param\":null,"
                                        "\"code\":\"deadline passed\"}}");
    assert_false(fake.with_done);
    done();
}

// HTTP-17, CHAT-14: what preparation finds is a status, streamed or not.
static void test_failure_before_start(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        post(api_chat_create, i ? "{\"stream\":true," HI "}" : "{" HI "}");
        end_task(0, (struct event){.error = {.code = ERR_CONTEXT, .param = "prompt", .text = "the request needs 4290 tokens"}});
        assert_false(fake.stream);
        assert_int_equal(fake.status, 400);
        const json_t *e = json_object_get(fake.body, "error");
        assert_string_equal(json_string_value(json_object_get(e, "message")), "This model's maximum context length is 512 tokens.");
        assert_string_equal(json_string_value(json_object_get(e, "param")), "messages");
        done();
    }
    err_set(&fake.refuse, ERR_BUSY, "full");
    post(api_chat_create, "{" HI "}");
    assert_int_equal(fake.status, 503);
    done();
}

static void test_client_gone(void **state)
{
    (void)state;
    post(api_chat_create, "{\"stream\":true," HI "}");
    start(0, 1, 0);
    fake.client_gone = true;
    text(0, 0, "a");
    text(0, 0, "b");
    assert_false(fake.cancelled[0]);
    fake.r->on_gone(fake.r);
    assert_true(fake.cancelled[0]);
    end_badly(0, ERR_CANCELLED, "cancelled");
    assert_false(fake.with_done);
    done();
    post(api_chat_create, "{" HI "}");
    fake.r->on_gone(fake.r);
    assert_true(fake.cancelled[0]);
    end_badly(0, ERR_CANCELLED, "cancelled");
    done();
}

// An engine that forgets a choice must not give an answer that looks complete.
static void test_unfinished_choice(void **state)
{
    (void)state;
    post(api_chat_create, "{\"n\":2," HI "}");
    start(0, 1, 0);
    finish(0, 0, FINISH_STOP);
    end(0, 1, 1);
    assert_int_equal(fake.status, 500);
    done();
}

// ---- calls and thoughts

#define TOOLS "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get\"}},{\"type\":\"custom\",\"custom\":{\"name\":\"raw\"}}]"

static void message_is(const char *want, const char *finish_reason)
{
    const json_t *c = json_array_get(json_object_get(fake.body, "choices"), 0);
    same_json(json_object_get(c, "message"), want);
    assert_string_equal(json_string_value(json_object_get(c, "finish_reason")), finish_reason);
}

// The ids of calls differ from run to run; in what is compared they are "ID0", "ID1" ... in order.
static void number_ids(char *text)
{
    char *at = text;
    for (char n = '0'; (at = strstr(at, "\"call_")); n++) {
        assert_int_equal(strspn(at + 6, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"), 24);
        at[1] = 'I', at[2] = 'D', at[3] = n, at[4] = '"';
        memmove(at + 5, at + 31, strlen(at + 31) + 1);
    }
}

static void calls_are(const char *want)
{
    char *text_got = json_dumps(json_object_get(json_object_get(json_array_get(json_object_get(fake.body, "choices"), 0),
                                                                "message"), "tool_calls"), JSON_COMPACT | JSON_ENCODE_ANY);
    number_ids(text_got);
    assert_string_equal(text_got, want);
    free(text_got);
}

static void two_calls(void)
{
    start(0, 5, 0);
    thought(0, 0, "hm");
    text(0, 0, "I will ");
    text(0, 0, "look.");
    call(0, 0, 0, "get", "", false);
    call(0, 0, 0, NULL, "{\"a\"", false);
    call(0, 0, 0, NULL, ":1}", true);
    call(0, 0, 1, "raw", "{\"input\":\"x", false);
    call(0, 0, 1, NULL, "\\ny\"}", true);
    call(0, 0, 2, "get", "", false);
    call(0, 0, 2, NULL, "", true);
    finish(0, 0, FINISH_CALLS);
    end_task(0, (struct event){.usage = {5, 0, 9, 2}});
}

static void test_calls(void **state)
{
    (void)state;
    post(api_chat_create, "{" TOOLS "," HI "}");
    two_calls();
    calls_are("[{\"id\":\"ID0\",\"type\":\"function\",\"function\":{\"name\":\"get\",\"arguments\":\"{\\\"a\\\":1}\"}},"
              "{\"id\":\"ID1\",\"type\":\"custom\",\"custom\":{\"name\":\"raw\",\"input\":\"x\\ny\"}},"
              "{\"id\":\"ID2\",\"type\":\"function\",\"function\":{\"name\":\"get\",\"arguments\":\"{}\"}}]");
    const json_t *c = json_array_get(json_object_get(fake.body, "choices"), 0), *m = json_object_get(c, "message");
    assert_string_equal(json_string_value(json_object_get(c, "finish_reason")), "tool_calls");
    assert_string_equal(json_string_value(json_object_get(m, "content")), "I will look.");
    assert_string_equal(json_string_value(json_object_get(m, "reasoning_content")), "hm");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(json_object_get(fake.body, "usage"),
                                                                        "completion_tokens_details"), "reasoning_tokens")), 2);
    done();

    post(api_chat_create, "{" TOOLS "," HI "}");  // nothing said: content is null
    start(0, 5, 0);
    call(0, 0, 0, "get", "{}", true);
    finish(0, 0, FINISH_CALLS);
    end(0, 5, 1);
    assert_true(json_is_null(json_object_get(json_object_get(json_array_get(json_object_get(fake.body, "choices"), 0), "message"),
                                             "content")));
    done();
}

static void chunks_are(const char *const *want, int n)
{
    for (int i = 0; i < fake.nevents && i < n; i++) {
        number_ids(fake.events[i]);
        const char *at = strstr(chunk(i), "\"delta\":");
        assert_non_null(at);
        if (strncmp(at + 8, want[i], strlen(want[i])) != 0)
            fail_msg("chunk %d: %s is not %s", i, at + 8, want[i]);
    }
    assert_int_equal(fake.nevents, n);
    assert_true(fake.with_done);
}

// TOOL-02, TOOL-03, TOOL-12: every piece has its call's index; id, type and name come once; arguments are a string always.
static void test_call_stream(void **state)
{
    (void)state;
    static const char *const want[] = {
        "{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},",
        "{\"reasoning_content\":\"hm\"},",
        "{\"content\":\"I will \"},",
        "{\"content\":\"look.\"},",
        ("{\"tool_calls\":[{\"index\":0,\"id\":\"ID0\",\"type\":\"function\",\"function\":{\"name\":\"get\",\"arguments\":\"\"}}]},"
         "\"logprobs\":null,\"finish_reason\":null"),
        "{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"a\\\"\"}}]},",
        "{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\":1}\"}}]},",
        "{\"tool_calls\":[{\"index\":1,\"id\":\"ID0\",\"type\":\"custom\",\"custom\":{\"name\":\"raw\",\"input\":\"\"}}]},",
        "{\"tool_calls\":[{\"index\":1,\"custom\":{\"input\":\"x\\ny\"}}]},",
        "{\"tool_calls\":[{\"index\":2,\"id\":\"ID0\",\"type\":\"function\",\"function\":{\"name\":\"get\",\"arguments\":\"\"}}]},",
        "{\"tool_calls\":[{\"index\":2,\"function\":{\"arguments\":\"{}\"}}]},",
        "{},\"logprobs\":null,\"finish_reason\":\"tool_calls\"",
    };
    post(api_chat_create, "{\"stream\":true," TOOLS "," HI "}");
    two_calls();
    chunks_are(want, sizeof want / sizeof *want);
    done();
}

// CHAT-05: a call that the token limit cuts is no call, and the answer says "length".
static void test_cut_call(void **state)
{
    (void)state;
    post(api_chat_create, "{" TOOLS "," HI "}");
    start(0, 5, 0);
    call(0, 0, 0, "get", "{\"a\":1}", true);
    call(0, 0, 1, "get", "{\"a\":", false);
    finish(0, 0, FINISH_LENGTH);
    end(0, 5, 4);
    calls_are("[{\"id\":\"ID0\",\"type\":\"function\",\"function\":{\"name\":\"get\",\"arguments\":\"{\\\"a\\\":1}\"}}]");
    assert_string_equal(json_string_value(json_object_get(json_array_get(json_object_get(fake.body, "choices"), 0), "finish_reason")),
                        "length");
    done();
    post(api_chat_create, "{" TOOLS "," HI "}");
    start(0, 5, 0);
    call(0, 0, 0, "get", "{\"a\":", false);
    finish(0, 0, FINISH_LENGTH);
    end(0, 5, 4);
    message_is("{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null,\"annotations\":[]}", "length");
    done();
}

static void test_calls_of_several_choices(void **state)
{
    (void)state;
    post(api_chat_create, "{\"n\":2,\"stream\":true," TOOLS "," HI "}");
    start(0, 5, 0);
    call(0, 1, 0, "get", "{", false);
    call(0, 0, 0, "get", "{}", true);
    call(0, 1, 0, NULL, "}", true);
    call(0, 1, 1, "get", "{}", true);
    finish(0, 1, FINISH_CALLS);
    finish(0, 0, FINISH_CALLS);
    end(0, 5, 4);
    static const char *const starts[] = {"\"choices\":[{\"index\":0,\"delta\":{\"role\"", "\"choices\":[{\"index\":1,\"delta\":{\"role\"",
        "\"choices\":[{\"index\":1,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\"", "\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\"",
        "\"choices\":[{\"index\":1,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\"", "\"choices\":[{\"index\":1,\"delta\":{\"tool_calls\":[{\"index\":1,\"id\"",
        "\"choices\":[{\"index\":1,\"delta\":{},", "\"choices\":[{\"index\":0,\"delta\":{},"};
    assert_int_equal(fake.nevents, 8);
    for (int i = 0; i < 8; i++)
        starts_with(chunk(i), starts[i]);
    done();
}

// The deprecated pair answers in its own words.
static void test_functions(void **state)
{
    (void)state;
    static const char *const want[] = {
        "{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},",
        "{\"function_call\":{\"name\":\"get\",\"arguments\":\"\"}},",
        "{\"function_call\":{\"arguments\":\"{\\\"a\\\":1}\"}},",
        "{},\"logprobs\":null,\"finish_reason\":\"function_call\"",
    };
    for (int stream = 0; stream < 2; stream++) {
        post(api_chat_create, stream ? "{\"stream\":true,\"functions\":[{\"name\":\"get\"}]," HI "}"
                                     : "{\"functions\":[{\"name\":\"get\"}]," HI "}");
        assert_true(asked()->tools.single);
        start(0, 5, 0);
        call(0, 0, 0, "get", "", false);
        call(0, 0, 0, NULL, "{\"a\":1}", true);
        finish(0, 0, FINISH_CALLS);
        end(0, 5, 4);
        if (stream)
            chunks_are(want, 4);
        else
            message_is("{\"role\":\"assistant\",\"content\":null,\"refusal\":null,\"annotations\":[],\"function_call\":"
                       "{\"name\":\"get\",\"arguments\":\"{\\\"a\\\":1}\"}}", "function_call");
        done();
    }
}

// Log-probabilities are those of the content; a token that shows nothing makes no chunk.
static void test_logprobs_of_content(void **state)
{
    (void)state;
    struct token_logprob token = {{1, -0.5f, "t", 1}, NULL, 0, 1, false}, said = token;
    said.content = true;
    post(api_chat_create, "{\"stream\":true,\"logprobs\":true," TOOLS "," HI "}");
    start(0, 5, 0);
    emit(0, (struct event){.kind = EVENT_TEXT, .channel = CHANNEL_REASONING, .text = "t", .len = 1, .tokens = &token, .ntokens = 1});
    emit(0, (struct event){.kind = EVENT_TEXT, .channel = CHANNEL_REASONING, .text = "", .tokens = &token, .ntokens = 1});
    emit(0, (struct event){.kind = EVENT_TEXT, .text = "t", .len = 1, .tokens = &said, .ntokens = 1});
    emit(0, (struct event){.kind = EVENT_TEXT, .text = "", .tokens = &token, .ntokens = 1});
    emit(0, (struct event){.kind = EVENT_TEXT, .channel = CHANNEL_CALL, .name = "get", .text = "{}", .len = 2, .call_ends = true,
                           .tokens = &token, .ntokens = 1});
    finish(0, 0, FINISH_CALLS);
    end(0, 5, 4);
    assert_int_equal(fake.nevents, 5);
    for (int i = 0; i < 5; i++)
        assert_true(!strstr(chunk(i), "\"logprobs\":null") == (i == 2));
    done();
}

static void hidden_or_shown(const char *fields, bool shown)
{
    char json[300];
    for (int stream = 0; stream < 2; stream++) {
        snprintf(json, sizeof json, "{%s,%s" HI "}", fields, stream ? "\"stream\":true," : "");
        post(api_chat_create, json);
        start(0, 5, 0);
        thought(0, 0, "hm");
        text(0, 0, "4");
        finish(0, 0, FINISH_STOP);
        end(0, 5, 4);
        if (stream)
            assert_int_equal(fake.nevents, shown ? 4 : 3);
        else
            message_is(shown ? "{\"role\":\"assistant\",\"content\":\"4\",\"refusal\":null,\"annotations\":[],\"reasoning_content\":\"hm\"}"
                             : "{\"role\":\"assistant\",\"content\":\"4\",\"refusal\":null,\"annotations\":[]}", "stop");
        done();
    }
}

static void test_reasoning_shown(void **state)
{
    (void)state;
    hidden_or_shown("\"include_reasoning\":true", true);
    hidden_or_shown("\"reasoning_format\":\"deepseek\"", true);
    hidden_or_shown("\"include_reasoning\":false", false);
    hidden_or_shown("\"reasoning\":{\"exclude\":true}", false);
    post(api_chat_create, "{\"reasoning_format\":\"none\"," HI "}");
    assert_false(asked()->split);
    run_out();
    post(api_chat_create, "{" HI "}");
    assert_true(asked()->split);
    run_out();
}

static void thinks(const char *fields, int max, const char *kwargs)
{
    char json[300];
    snprintf(json, sizeof json, "{%s," HI "}", fields);
    post(api_chat_create, json);
    assert_int_equal(asked()->reasoning_max, max);
    if (kwargs)
        same_json(asked()->prompt.kwargs, kwargs);
    else
        assert_null(asked()->prompt.kwargs);
    run_out();
}

static void test_reasoning(void **state)
{
    (void)state;
#define SWITCH(word) "\"enable_thinking\":" word ",\"thinking\":" word "}"
    thinks("\"user\":null", -1, NULL);
    thinks("\"reasoning_effort\":\"none\"", 0, "{\"reasoning_effort\":\"none\"," SWITCH("false"));
    thinks("\"reasoning_effort\":\"minimal\"", 256, "{\"reasoning_effort\":\"minimal\"," SWITCH("true"));
    thinks("\"reasoning_effort\":\"low\"", 1024, "{\"reasoning_effort\":\"low\"," SWITCH("true"));
    thinks("\"reasoning_effort\":\"high\"", -1, "{\"reasoning_effort\":\"high\"," SWITCH("true"));
    thinks("\"reasoning_effort\":\"low\",\"thinking_budget\":7", 7, "{\"reasoning_effort\":\"low\"," SWITCH("true"));
    thinks("\"enable_thinking\":false", 0, "{" SWITCH("false"));
    thinks("\"enable_thinking\":true", -1, "{" SWITCH("true"));
    thinks("\"thinking\":{\"type\":\"disabled\"}", 0, "{" SWITCH("false"));
    thinks("\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":9}", 9, "{" SWITCH("true"));
    thinks("\"reasoning_budget\":12", 12, NULL);
    thinks("\"reasoning_budget\":0", 0, "{" SWITCH("false"));
    thinks("\"reasoning_budget\":-1", -1, NULL);
    thinks("\"thinking_token_budget\":3", 3, NULL);
    thinks("\"thinking_budget_tokens\":3", 3, NULL);
    thinks("\"reasoning\":{\"effort\":\"low\"}", 1024, "{\"reasoning_effort\":\"low\"," SWITCH("true"));
    thinks("\"reasoning\":{\"max_tokens\":5}", 5, NULL);
    thinks("\"reasoning\":{\"enabled\":false}", 0, "{" SWITCH("false"));
    // The template's own variables stand over what the others say.
    thinks("\"reasoning_effort\":\"none\",\"chat_template_kwargs\":{\"enable_thinking\":true}", 0,
           "{\"reasoning_effort\":\"none\",\"enable_thinking\":true,\"thinking\":false}");
    static const char *const bad[][3] = {
        {"\"enable_thinking\":1", "enable_thinking", "invalid_type"},
        {"\"thinking\":{}", "thinking.type", "invalid_value"},
        {"\"thinking\":true", "thinking", "invalid_type"},
        {"\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":-2}", "thinking.budget_tokens", "integer_below_min_value"},
        {"\"thinking_budget\":\"x\"", "thinking_budget", "invalid_type"},
        {"\"reasoning_budget\":-2", "reasoning_budget", "integer_below_min_value"},
        {"\"reasoning\":\"low\"", "reasoning", "invalid_type"},
        {"\"reasoning\":{\"effort\":\"huge\"}", "reasoning.effort", "invalid_value"},
        {"\"reasoning\":{\"exclude\":1}", "reasoning.exclude", "invalid_type"},
        {"\"include_reasoning\":\"no\"", "include_reasoning", "invalid_type"},
        {"\"reasoning_format\":\"deepseek-legacy\"", "reasoning_format", "unsupported_value"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char json[300];
        snprintf(json, sizeof json, "{%s," HI "}", bad[i][0]);
        refused(api_chat_create, json, 400, bad[i][1], bad[i][2]);
    }
}

// vLLM's echo: the message that is continued stands in front of every answer.
static void test_echo(void **state)
{
    (void)state;
#define LAST "\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"One\"}]}"
    post(api_chat_create, "{\"echo\":true," LAST);
    start(0, 5, 0);
    text(0, 0, " two");
    finish(0, 0, FINISH_STOP);
    end(0, 5, 1);
    message_is("{\"role\":\"assistant\",\"content\":\"One two\",\"refusal\":null,\"annotations\":[]}", "stop");
    done();
    static const char *const want[] = {"{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},", "{\"content\":\"One\"},",
                                       "{\"content\":\" two\"},", "{},"};
    post(api_chat_create, "{\"stream\":true,\"echo\":true," LAST);
    start(0, 5, 0);
    text(0, 0, " two");
    finish(0, 0, FINISH_STOP);
    end(0, 5, 1);
    chunks_are(want, 4);
    done();
    post(api_chat_create, "{\"echo\":true," HI "}");  // nothing is continued
    start(0, 5, 0);
    text(0, 0, "x");
    finish(0, 0, FINISH_STOP);
    end(0, 5, 1);
    message_is("{\"role\":\"assistant\",\"content\":\"x\",\"refusal\":null,\"annotations\":[]}", "stop");
    done();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_whole, set_up),
        cmocka_unit_test_setup(test_stream, set_up),
        cmocka_unit_test_setup(test_stream_usage, set_up),
        cmocka_unit_test_setup(test_several_choices, set_up),
        cmocka_unit_test_setup(test_token_ids, set_up),
        cmocka_unit_test_setup(test_logprobs, set_up),
        cmocka_unit_test_setup(test_settings, set_up),
        cmocka_unit_test_setup(test_nulls, set_up),
        cmocka_unit_test_setup(test_refusals, set_up),
        cmocka_unit_test_setup(test_harmless, set_up),
        cmocka_unit_test_setup(test_kwargs, set_up),
        cmocka_unit_test_setup(test_failure_in_stream, set_up),
        cmocka_unit_test_setup(test_failure_before_start, set_up),
        cmocka_unit_test_setup(test_client_gone, set_up),
        cmocka_unit_test_setup(test_unfinished_choice, set_up),
        cmocka_unit_test_setup(test_calls, set_up),
        cmocka_unit_test_setup(test_call_stream, set_up),
        cmocka_unit_test_setup(test_cut_call, set_up),
        cmocka_unit_test_setup(test_calls_of_several_choices, set_up),
        cmocka_unit_test_setup(test_functions, set_up),
        cmocka_unit_test_setup(test_logprobs_of_content, set_up),
        cmocka_unit_test_setup(test_reasoning_shown, set_up),
        cmocka_unit_test_setup(test_reasoning, set_up),
        cmocka_unit_test_setup(test_echo, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
