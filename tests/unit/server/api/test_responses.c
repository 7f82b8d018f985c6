// Responses against a fake engine: exact objects and event sequences, what each field becomes, and what is kept. Ids are
// random: texts are compared with their hexadecimal ends replaced by numbers in the order in which they appear.
#include "base/buf.h"
#include "server/apikey.h"
#include "tests/unit/server/api/drive.h"

#define HI "\"input\":\"Hi\""

static struct responses *store;

static int begin(void **state)
{
    static const struct responses_limits limits = {2000, 100000, 64 << 20};
    err e = {0};
    set_up(state);
    assert_int_equal(responses_open(NULL, &limits, &store, &e), ERR_OK);
    fake.responses = store;
    return 0;
}

static int finish_test(void **state)
{
    (void)state;
    responses_close(store);
    responses_unref(store);
    return 0;
}

static void over(void)  // done, but the store stays
{
    done();
    fake.responses = store;
}

// ---- comparing

struct ids {
    char known[64][80];
    int n;
};

static int number_of(struct ids *ids, const char *id, size_t len)
{
    for (int i = 0; i < ids->n; i++)
        if (strlen(ids->known[i]) == len && !strncmp(ids->known[i], id, len))
            return i;
    assert_true(ids->n < 64 && len < sizeof *ids->known);
    memcpy(ids->known[ids->n], id, len);
    ids->known[ids->n][len] = 0;
    return ids->n++;
}

// "msg_0123..." -> "msg_#3"; the times of the object -> 1.
static char *plain(struct ids *ids, const char *text)
{
    static const char *const prefixes[] = {"resp_", "msg_", "rs_", "fc_", "ctc_", "call_"};
    struct buf b;
    buf_init(&b, 1 << 20);
    for (const char *p = text; *p;) {
        size_t n = 0;
        for (int i = 0; i < 6; i++) {
            size_t m = strlen(prefixes[i]);
            if (p == text || p[-1] != '"' || strncmp(p, prefixes[i], m) != 0)
                continue;
            size_t len = m + strspn(p + m, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
            if (len >= m + 24) {
                buf_printf(&b, "%s#%d", prefixes[i], number_of(ids, p, len));
                n = len;
            }
        }
        if (!n && !strncmp(p, "ed_at\":1", 8)) {
            buf_add_str(&b, "ed_at\":1");
            n = 7 + strspn(p + 7, "0123456789");
        }
        if (!n)
            buf_add_char(&b, *p);
        p += n ? n : 1;
    }
    return buf_take(&b);
}

static void same(struct ids *ids, const char *got, const char *want)
{
    char *text = plain(ids, got);
    if (strcmp(text, want))
        fail_msg("\n got %s\nwant %s", text, want);
    free(text);
}

// Event i is called so and says so, between its head and its closing brace.
static void event_is(struct ids *ids, int i, const char *name, const char *rest)
{
    char want[4096];
    if (i >= fake.nevents)
        fail_msg("there is no event %d, %s", i, name);
    assert_string_equal(fake.names[i], name);
    if (!rest)
        return;
    snprintf(want, sizeof want, "{\"type\":\"%s\",\"sequence_number\":%d%s%s}", name, i, *rest ? "," : "", rest);
    same(ids, fake.events[i], want);
}

static struct generate *asked(void)
{
    assert_int_equal(fake.ntasks, 1);
    return &fake.tasks[0]->generate;
}

static void run_out(void)
{
    start(0, 1, 0);
    text(0, 0, "ok");
    finish(0, 0, FINISH_STOP);
    end(0, 1, 1);
}

static const char *text_of(const json_t *o, const char *name)
{
    return json_string_value(json_object_get(o, name));
}

#define ECHO "\"instructions\":null,\"max_output_tokens\":null,\"max_tool_calls\":null,\"parallel_tool_calls\":true," \
    "\"previous_response_id\":null,\"prompt_cache_key\":null,\"reasoning\":{\"effort\":null,\"summary\":null}," \
    "\"safety_identifier\":null,\"temperature\":1.0,\"text\":{\"format\":{\"type\":\"text\"},\"verbosity\":\"medium\"}," \
    "\"tool_choice\":\"auto\",\"tools\":[],\"top_logprobs\":0,\"top_p\":1.0,\"truncation\":\"disabled\",\"user\":null," \
    "\"metadata\":{},\"service_tier\":\"default\",\"store\":true,"
#define BEGUN "{\"id\":\"resp_#0\",\"object\":\"response\",\"created_at\":1,\"completed_at\":null,\"status\":\"in_progress\"," \
    "\"background\":false,\"error\":null,\"incomplete_details\":null,\"model\":\"tiny\",\"output\":[]," ECHO "\"usage\":null}"
#define ENDED(status, details, output, usage) "{\"id\":\"resp_#0\",\"object\":\"response\",\"created_at\":1,\"completed_at\":1," \
    "\"status\":\"" status "\",\"background\":false,\"error\":null,\"incomplete_details\":" details ",\"model\":\"tiny\"," \
    "\"output\":[" output "]," ECHO "\"usage\":" usage "}"
#define PART(text) "{\"type\":\"output_text\",\"text\":\"" text "\",\"annotations\":[],\"logprobs\":[]}"
#define MESSAGE(id, status, parts) "{\"id\":\"" id "\",\"type\":\"message\",\"status\":\"" status "\",\"role\":\"assistant\"," \
    "\"content\":[" parts "]}"
#define USAGE(in, cached, out, thought, all) "{\"input_tokens\":" in ",\"input_tokens_details\":{\"cached_tokens\":" cached "," \
    "\"cache_write_tokens\":0},\"output_tokens\":" out ",\"output_tokens_details\":{\"reasoning_tokens\":" thought "}," \
    "\"total_tokens\":" all "}"

// ---- answers

static void test_whole(void **state)
{
    (void)state;
    struct ids ids = {0};
    post(api_responses_create, "{\"model\":\"tiny\"," HI "}");
    start(0, 5, 2);
    text(0, 0, "Hel");
    text(0, 0, "lo");
    finish(0, 0, FINISH_STOP);
    end_task(0, (struct event){.usage = {5, 2, 3, 0}});
    assert_int_equal(fake.status, 200);
    char *got = json_dumps(fake.body, JSON_COMPACT | JSON_REAL_PRECISION(6));
    same(&ids, got, ENDED("completed", "null", MESSAGE("msg_#1", "completed", PART("Hello")), USAGE("5", "2", "3", "0", "8")));
    free(got);
    over();
}

static void test_stream(void **state)
{
    (void)state;
    struct ids ids = {0};
    post(api_responses_create, "{\"stream\":true," HI "}");
    assert_false(fake.stream);
    start(0, 5, 0);
    assert_int_equal(fake.nevents, 2);
    text(0, 0, "Hel");
    emit(0, (struct event){.kind = EVENT_TEXT, .text = "", .len = 0});
    text(0, 0, "lo");
    finish(0, 0, FINISH_STOP);
    end(0, 5, 2);
    event_is(&ids, 0, "response.created", "\"response\":" BEGUN);
    event_is(&ids, 1, "response.in_progress", "\"response\":" BEGUN);
    event_is(&ids, 2, "response.output_item.added", "\"output_index\":0,\"item\":" MESSAGE("msg_#1", "in_progress", ""));
    event_is(&ids, 3, "response.content_part.added",
             "\"item_id\":\"msg_#1\",\"output_index\":0,\"content_index\":0,\"part\":" PART(""));
    event_is(&ids, 4, "response.output_text.delta",
             "\"item_id\":\"msg_#1\",\"output_index\":0,\"content_index\":0,\"delta\":\"Hel\",\"logprobs\":[]");
    event_is(&ids, 5, "response.output_text.delta",
             "\"item_id\":\"msg_#1\",\"output_index\":0,\"content_index\":0,\"delta\":\"lo\",\"logprobs\":[]");
    event_is(&ids, 6, "response.output_text.done",
             "\"item_id\":\"msg_#1\",\"output_index\":0,\"content_index\":0,\"text\":\"Hello\",\"logprobs\":[]");
    event_is(&ids, 7, "response.content_part.done",
             "\"item_id\":\"msg_#1\",\"output_index\":0,\"content_index\":0,\"part\":" PART("Hello"));
    event_is(&ids, 8, "response.output_item.done",
             "\"output_index\":0,\"item\":" MESSAGE("msg_#1", "completed", PART("Hello")));
    event_is(&ids, 9, "response.completed",
             "\"response\":" ENDED("completed", "null", MESSAGE("msg_#1", "completed", PART("Hello")),
                                   USAGE("5", "0", "2", "0", "7")));
    assert_int_equal(fake.nevents, 10);
    assert_true(fake.ended);
    assert_false(fake.with_done);
    over();
}

#define TOOLS "\"tools\":[{\"type\":\"function\",\"name\":\"look\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}," \
              "{\"type\":\"custom\",\"name\":\"write\"}]"
#define CALL(status, arguments) "{\"id\":\"fc_#3\",\"type\":\"function_call\",\"status\":\"" status "\",\"call_id\":\"call_#4\"," \
                                "\"name\":\"look\",\"arguments\":\"" arguments "\"}"

// All kinds of items, one open at a time.
static void test_items(void **state)
{
    (void)state;
    struct ids ids = {.known = {"resp_000000000000000000000000"}, .n = 1};
    post(api_responses_create, "{\"stream\":true," HI "," TOOLS "}");
    start(0, 5, 0);
    thought(0, 0, "Hm");
    thought(0, 0, "m");
    text(0, 0, "So");
    call(0, 0, 0, "look", "", false);
    call(0, 0, 0, NULL, "{\\u0022a\\u0022:", false);
    call(0, 0, 0, NULL, "1}", true);
    call(0, 0, 1, "write", "{\"input\":\"a \\\"b\\\"\"}", true);
    call(0, 0, 2, "look", "", true);
    finish(0, 0, FINISH_CALLS);
    end_task(0, (struct event){.usage = {5, 0, 9, 3}});
    int i = 2;
    event_is(&ids, i++, "response.output_item.added", "\"output_index\":0,\"item\":{\"id\":\"rs_#1\",\"type\":\"reasoning\","
             "\"status\":\"in_progress\",\"summary\":[],\"content\":[]}");
    event_is(&ids, i++, "response.content_part.added", "\"item_id\":\"rs_#1\",\"output_index\":0,\"content_index\":0,"
             "\"part\":{\"type\":\"reasoning_text\",\"text\":\"\"}");
    event_is(&ids, i++, "response.reasoning_text.delta",
             "\"item_id\":\"rs_#1\",\"output_index\":0,\"content_index\":0,\"delta\":\"Hm\"");
    event_is(&ids, i++, "response.reasoning_text.delta",
             "\"item_id\":\"rs_#1\",\"output_index\":0,\"content_index\":0,\"delta\":\"m\"");
    event_is(&ids, i++, "response.reasoning_text.done",
             "\"item_id\":\"rs_#1\",\"output_index\":0,\"content_index\":0,\"text\":\"Hmm\"");
    event_is(&ids, i++, "response.content_part.done", "\"item_id\":\"rs_#1\",\"output_index\":0,\"content_index\":0,"
             "\"part\":{\"type\":\"reasoning_text\",\"text\":\"Hmm\"}");
    event_is(&ids, i++, "response.output_item.done", "\"output_index\":0,\"item\":{\"id\":\"rs_#1\",\"type\":\"reasoning\","
             "\"status\":\"completed\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":\"Hmm\"}]}");
    event_is(&ids, i++, "response.output_item.added", "\"output_index\":1,\"item\":" MESSAGE("msg_#2", "in_progress", ""));
    i += 4;  // part, delta, done, part: as in test_stream
    event_is(&ids, i++, "response.output_item.done",
             "\"output_index\":1,\"item\":" MESSAGE("msg_#2", "completed", PART("So")));
    event_is(&ids, i++, "response.output_item.added", "\"output_index\":2,\"item\":" CALL("in_progress", ""));
    event_is(&ids, i++, "response.function_call_arguments.delta",
             "\"item_id\":\"fc_#3\",\"output_index\":2,\"delta\":\"{\\\\u0022a\\\\u0022:\"");
    event_is(&ids, i++, "response.function_call_arguments.delta", "\"item_id\":\"fc_#3\",\"output_index\":2,\"delta\":\"1}\"");
    event_is(&ids, i++, "response.function_call_arguments.done",
             "\"item_id\":\"fc_#3\",\"output_index\":2,\"name\":\"look\",\"arguments\":\"{\\\\u0022a\\\\u0022:1}\"");
    event_is(&ids, i++, "response.output_item.done",
             "\"output_index\":2,\"item\":" CALL("completed", "{\\\\u0022a\\\\u0022:1}"));
    event_is(&ids, i++, "response.output_item.added", "\"output_index\":3,\"item\":{\"id\":\"ctc_#5\",\"type\":"
             "\"custom_tool_call\",\"status\":\"in_progress\",\"call_id\":\"call_#6\",\"name\":\"write\",\"input\":\"\"}");
    event_is(&ids, i++, "response.custom_tool_call_input.delta",
             "\"item_id\":\"ctc_#5\",\"output_index\":3,\"delta\":\"a \\\"b\\\"\"");
    event_is(&ids, i++, "response.custom_tool_call_input.done",
             "\"item_id\":\"ctc_#5\",\"output_index\":3,\"input\":\"a \\\"b\\\"\"");
    event_is(&ids, i++, "response.output_item.done", "\"output_index\":3,\"item\":{\"id\":\"ctc_#5\",\"type\":"
             "\"custom_tool_call\",\"status\":\"completed\",\"call_id\":\"call_#6\",\"name\":\"write\",\"input\":\"a \\\"b\\\"\"}");
    event_is(&ids, i++, "response.output_item.added", NULL);
    event_is(&ids, i++, "response.function_call_arguments.delta",
             "\"item_id\":\"fc_#7\",\"output_index\":4,\"delta\":\"{}\"");
    event_is(&ids, i++, "response.function_call_arguments.done",
             "\"item_id\":\"fc_#7\",\"output_index\":4,\"name\":\"look\",\"arguments\":\"{}\"");
    event_is(&ids, i++, "response.output_item.done", NULL);
    event_is(&ids, i++, "response.completed", NULL);
    assert_int_equal(fake.nevents, i);
    over();
}

// The same answer whole: the same items.
static void test_items_whole(void **state)
{
    (void)state;
    struct ids ids = {0};
    post(api_responses_create, "{" HI "," TOOLS "}");
    start(0, 5, 0);
    thought(0, 0, "Hm");
    text(0, 0, "So");
    call(0, 0, 0, "look", "{}", true);
    call(0, 0, 1, "write", "{\"input\":\"x\"}", true);
    finish(0, 0, FINISH_CALLS);
    end_task(0, (struct event){.usage = {5, 0, 9, 3}});
    char *got = json_dumps(json_object_get(fake.body, "output"), JSON_COMPACT);
    same(&ids, got, "[{\"id\":\"rs_#0\",\"type\":\"reasoning\",\"status\":\"completed\",\"summary\":[],\"content\":[{\"type\":"
         "\"reasoning_text\",\"text\":\"Hm\"}]}," MESSAGE("msg_#1", "completed", PART("So")) ",{\"id\":\"fc_#2\",\"type\":"
         "\"function_call\",\"status\":\"completed\",\"call_id\":\"call_#3\",\"name\":\"look\",\"arguments\":\"{}\"},{\"id\":"
         "\"ctc_#4\",\"type\":\"custom_tool_call\",\"status\":\"completed\",\"call_id\":\"call_#5\",\"name\":\"write\",\"input\":"
         "\"x\"}]");
    free(got);
    const json_t *usage = json_object_get(fake.body, "usage");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(usage, "output_tokens_details"), "reasoning_tokens")), 3);
    assert_int_equal(json_array_size(json_object_get(fake.body, "tools")), 2);
    over();
}

static void test_summary(void **state)
{
    (void)state;
    struct ids ids = {.known = {"resp_000000000000000000000000"}, .n = 1};
    post(api_responses_create, "{\"stream\":true," HI ",\"reasoning\":{\"effort\":\"high\",\"summary\":\"auto\"}}");
    start(0, 5, 0);
    thought(0, 0, "Hm");
    text(0, 0, "So");
    finish(0, 0, FINISH_STOP);
    end(0, 5, 2);
    event_is(&ids, 2, "response.output_item.added", "\"output_index\":0,\"item\":{\"id\":\"rs_#1\",\"type\":\"reasoning\","
             "\"status\":\"in_progress\",\"summary\":[]}");
    event_is(&ids, 3, "response.reasoning_summary_part.added", "\"item_id\":\"rs_#1\",\"output_index\":0,\"summary_index\":0,"
             "\"part\":{\"type\":\"summary_text\",\"text\":\"\"}");
    event_is(&ids, 4, "response.reasoning_summary_text.delta",
             "\"item_id\":\"rs_#1\",\"output_index\":0,\"summary_index\":0,\"delta\":\"Hm\"");
    event_is(&ids, 5, "response.reasoning_summary_text.done",
             "\"item_id\":\"rs_#1\",\"output_index\":0,\"summary_index\":0,\"text\":\"Hm\"");
    event_is(&ids, 6, "response.reasoning_summary_part.done", "\"item_id\":\"rs_#1\",\"output_index\":0,\"summary_index\":0,"
             "\"part\":{\"type\":\"summary_text\",\"text\":\"Hm\"}");
    event_is(&ids, 7, "response.output_item.done", "\"output_index\":0,\"item\":{\"id\":\"rs_#1\",\"type\":\"reasoning\","
             "\"status\":\"completed\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"Hm\"}]}");
    assert_non_null(strstr(fake.events[fake.nevents - 1], "\"reasoning\":{\"effort\":\"high\",\"summary\":\"auto\"}"));
    over();

    post(api_responses_create, "{" HI ",\"reasoning\":{\"exclude\":true}}");
    start(0, 5, 0);
    thought(0, 0, "Hm");
    text(0, 0, "So");
    finish(0, 0, FINISH_STOP);
    end(0, 5, 2);
    assert_int_equal(json_array_size(json_object_get(fake.body, "output")), 1);
    over();
}

static void cut(const char *what)
{
    post(api_responses_create, "{\"stream\":true," HI "," TOOLS ",\"max_output_tokens\":1}");
    assert_int_equal(asked()->max_tokens, 1);
    start(0, 5, 0);
    if (!strcmp(what, "message"))
        text(0, 0, "So");
    else if (!strcmp(what, "reasoning"))
        thought(0, 0, "Hm");
    else if (*what)
        call(0, 0, 0, "look", "{\"a", false);
    finish(0, 0, FINISH_LENGTH);
    end(0, 5, 1);
}

static void test_incomplete(void **state)
{
    (void)state;
    static const char *const output[][2] = {
        {"message", MESSAGE("msg_#1", "incomplete", PART("So"))},
        {"", MESSAGE("msg_#1", "incomplete", PART(""))},
        {"reasoning", "{\"id\":\"rs_#1\",\"type\":\"reasoning\",\"status\":\"incomplete\",\"summary\":[],\"content\":[{\"type\":"
                      "\"reasoning_text\",\"text\":\"Hm\"}]}"},
        {"call", "{\"id\":\"fc_#1\",\"type\":\"function_call\",\"status\":\"incomplete\",\"call_id\":\"call_#2\",\"name\":\"look\","
                 "\"arguments\":\"{\\\"a\"}"}};
    for (int i = 0; i < 4; i++) {
        struct ids ids = {0};
        cut(output[i][0]);
        assert_string_equal(fake.names[fake.nevents - 1], "response.incomplete");
        char *got = plain(&ids, fake.events[fake.nevents - 1]);
        assert_non_null(strstr(got, "\"status\":\"incomplete\",\"background\":false,\"error\":null,\"incomplete_details\":"
                                    "{\"reason\":\"max_output_tokens\"}"));
        if (!strstr(got, output[i][1]))
            fail_msg("no %s in %s", output[i][1], got);
        free(got);
        over();
    }
}

// A turn that says nothing is one all the same.
static void test_empty(void **state)
{
    (void)state;
    struct ids ids = {0};
    post(api_responses_create, "{" HI "}");
    start(0, 5, 0);
    thought(0, 0, "Hm");
    finish(0, 0, FINISH_STOP);
    end(0, 5, 1);
    char *got = json_dumps(json_array_get(json_object_get(fake.body, "output"), 1), JSON_COMPACT);
    same(&ids, got, MESSAGE("msg_#0", "completed", PART("")));
    free(got);
    over();
}

static void test_logprobs(void **state)
{
    (void)state;
    struct token_alternative top[1] = {{1, -0.25f, "a", 1}};
    struct token_logprob token = {.token = {2, -1.5f, "b", 1}, .top = top, .ntop = 1, .content = true};
    static const char shown[] = "\"logprobs\":[{\"token\":\"b\",\"logprob\":-1.5,\"bytes\":[98],\"top_logprobs\":[{\"token\":\"a\","
                                "\"logprob\":-0.25,\"bytes\":[97]}]}]";
    post(api_responses_create, "{\"stream\":true," HI ",\"top_logprobs\":1,\"include\":[\"message.output_text.logprobs\","
                               "\"code_interpreter_call.outputs\"]}");
    assert_int_equal(asked()->logprobs, 1);
    start(0, 5, 0);
    emit(0, (struct event){.kind = EVENT_TEXT, .text = "b", .len = 1, .tokens = &token, .ntokens = 1});
    text(0, 0, "c");
    finish(0, 0, FINISH_STOP);
    end(0, 5, 1);
    assert_non_null(strstr(fake.events[4], shown));
    assert_non_null(strstr(fake.events[5], "\"logprobs\":[]"));
    for (int i = 6; i < 10; i++)
        assert_non_null(strstr(fake.events[i], shown));
    over();
    post(api_responses_create, "{" HI ",\"top_logprobs\":3}");  // nobody asked to see them
    assert_int_equal(asked()->logprobs, -1);
    run_out();
    over();
}

// ---- failures

static void test_failed(void **state)
{
    (void)state;
    struct ids ids = {0};
    post(api_responses_create, "{\"stream\":true," HI "}");
    start(0, 5, 0);
    text(0, 0, "a");
    end_badly(0, ERR_TIMEOUT, "too late");
    int last = fake.nevents - 1;
    event_is(&ids, last - 1, "error", "\"error\":{\"type\":\"server_error\",\"code\":\"deadline passed\",\"message\":\"too late\","
             "\"param\":null}");
    event_is(&ids, last, "response.failed", NULL);
    assert_non_null(strstr(fake.events[last], "\"status\":\"failed\",\"background\":false,\"error\":{\"code\":\"server_error\","
                                              "\"message\":\"too late\",\"type\":\"server_error\"}"));
    assert_non_null(strstr(fake.events[last], "\"store\":false,\"usage\":null}"));
    assert_false(fake.with_done);
    over();
    responses_settle(store);
    assert_int_equal(responses_count(store), 0);
}

static void test_failed_before(void **state)
{
    (void)state;
    static const struct {
        err_code code;
        const char *param, *text, *want_param, *want;
    } cases[] = {
        {ERR_CONTEXT, "messages", "This model's maximum context length is 5 tokens.", "input", "exceeds the context window"},
        {ERR_INVALID, "text.format.schema", "Invalid schema for text.format.schema 'x': no", "text.format.schema",
         "Invalid schema for response_format 'x': no"},
        {ERR_INVALID, "messages[3].content", "no", "input", "no"},
        {ERR_INVALID, "tools[0].function.parameters", "no", "tools[0].parameters", "Invalid schema for function 'look': no"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        post(api_responses_create, "{\"stream\":true," HI "," TOOLS "}");
        struct event ev = {0};
        err_set_param(&ev.error, cases[i].code, cases[i].param, "%s", cases[i].text);
        end_task(0, ev);
        const json_t *e = json_object_get(fake.body, "error");
        assert_int_equal(fake.status, 400);
        assert_string_equal(text_of(e, "param"), cases[i].want_param);
        if (!strstr(text_of(e, "message"), cases[i].want))
            fail_msg("%s", text_of(e, "message"));
        over();
    }
}

// Deleted or drained: the events that a failure has, and nothing after them, whatever the engine still says.
static void test_ended_from_outside(void **state)
{
    (void)state;
    struct ids ids = {0};
    err e = {0};
    err_set(&e, ERR_CANCELLED, "The request was cancelled.");
    post(api_responses_create, "{\"stream\":true," HI "}");
    assert_false(fake.r->on_ended(fake.r, &e));  // its stream has not begun: an ordinary error answer
    start(0, 5, 0);
    text(0, 0, "a");
    assert_true(fake.r->on_ended(fake.r, &e));
    assert_false(fake.r->on_ended(fake.r, &e));
    int last = fake.nevents - 1;
    event_is(&ids, last - 1, "error", NULL);
    event_is(&ids, last, "response.failed", NULL);
    assert_non_null(strstr(fake.events[last], "\"status\":\"failed\",\"background\":false,\"error\":{\"code\":\"server_error\","
                                              "\"message\":\"The request was cancelled.\""));
    text(0, 0, "b");
    end_badly(0, ERR_CANCELLED, "cancelled");
    assert_int_equal(fake.nevents, last + 1);
    over();
}

// ---- requests

static void expect_prompt(const char *json, const char *messages)
{
    post(api_responses_create, json);
    if (!fake.ntasks)
        fail_msg("%s: %s", json, text_of(json_object_get(fake.body, "error"), "message"));
    same_json(asked()->prompt.messages, messages);
    assert_true(asked()->prompt.add_generation_prompt);
    assert_true(asked()->split);
    run_out();
    over();
}

static void test_messages(void **state)
{
    (void)state;
    expect_prompt("{\"input\":\"Hi\"}", "[{\"role\":\"user\",\"content\":\"Hi\"}]");
    expect_prompt("{\"input\":[{\"role\":\"developer\",\"content\":\"D\"},{\"type\":\"message\",\"role\":\"user\",\"content\":[{"
                  "\"type\":\"input_text\",\"text\":\"a\"},{\"type\":\"input_text\",\"text\":\"b\"}]}],\"instructions\":\"Be.\"}",
                  "[{\"role\":\"system\",\"content\":\"Be.\"},{\"role\":\"developer\",\"content\":\"D\"},"
                  "{\"role\":\"user\",\"content\":\"ab\"}]");
    // One turn of the model from its items; the next message of the model is another.
    expect_prompt("{\"input\":[{\"role\":\"user\",\"content\":\"q\"},"
                  "{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"S\"}]},"
                  "{\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"A\",\"annotations\":[]},"
                  "{\"type\":\"refusal\",\"refusal\":\"R\"}],\"id\":\"msg_1\",\"status\":\"completed\",\"phase\":\"commentary\"},"
                  "{\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"},"
                  "{\"type\":\"custom_tool_call\",\"call_id\":\"c2\",\"name\":\"g\",\"input\":\"I\"},"
                  "{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"1\"},"
                  "{\"type\":\"custom_tool_call_output\",\"call_id\":\"c2\",\"output\":[{\"type\":\"input_text\",\"text\":\"2\"}]},"
                  "{\"role\":\"assistant\",\"content\":\"B\"},{\"role\":\"assistant\",\"content\":\"C\"}]}",
                  "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"AR\",\"reasoning_content\":\"S\","
                  "\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1}}},"
                  "{\"id\":\"c2\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":{\"input\":\"I\"}}}]},"
                  "{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"1\"},"
                  "{\"role\":\"tool\",\"tool_call_id\":\"c2\",\"content\":\"2\"},"
                  "{\"role\":\"assistant\",\"content\":\"B\"},{\"role\":\"assistant\",\"content\":\"C\"}]");
    // Thoughts that nothing follows are dropped, as are traces of hosted tools and calls that were cut; calls without a message are a turn.
    expect_prompt("{\"input\":[{\"type\":\"web_search_call\",\"id\":\"ws_1\",\"status\":\"completed\"},"
                  "{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\" \"},"
                  "{\"type\":\"function_call\",\"call_id\":\"d\",\"name\":\"f\",\"arguments\":\"{\\\"a\",\"status\":\"incomplete\"},"
                  "{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"\"},"
                  "{\"type\":\"reasoning\",\"id\":\"rs\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":\"T\"}]}]}",
                  "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{"
                  "\"name\":\"f\",\"arguments\":{}}}]},{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"\"}]");
}

static void test_settings(void **state)
{
    (void)state;
    post(api_responses_create,
         "{" HI ",\"max_output_tokens\":9,\"temperature\":0.5,\"top_p\":0.25,\"top_k\":7,\"min_p\":0.1,\"seed\":3,"
         "\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\",\"strict\":true,\"schema\":{\"type\":\"object\"}},"
         "\"verbosity\":\"low\"},\"tools\":[{\"type\":\"function\",\"name\":\"look\",\"parameters\":null,\"strict\":null},"
         "{\"type\":\"function\",\"function\":{\"name\":\"see\"}}],\"tool_choice\":{\"type\":\"function\",\"name\":\"see\"},"
         "\"parallel_tool_calls\":false,\"reasoning\":{\"effort\":\"low\"},\"metadata\":{\"a\":\"b\"},\"user\":\"u\","
         "\"service_tier\":\"flex\",\"background\":false,\"truncation\":\"disabled\",\"stream_options\":{\"include_obfuscation\":"
         "false},\"max_tool_calls\":3,\"conversation\":null,\"safety_identifier\":\"s\",\"prompt_cache_key\":\"k\",\"odd\":1}");
    const struct generate *g = asked();
    assert_int_equal(g->max_tokens, 9);
    assert_true(g->sampling.temperature == 0.5f && g->sampling.top_p == 0.25f && g->sampling.min_p == 0.1f);
    assert_int_equal(g->sampling.top_k, 7);
    assert_int_equal(g->sampling.seed, 3);
    assert_int_equal(g->grammar.kind, GRAMMAR_JSON_SCHEMA);
    assert_string_equal(g->grammar.field, "text.format.schema");
    assert_string_equal(g->grammar.name, "n");
    assert_int_equal(g->tools.choice, TOOLS_REQUIRED);
    assert_int_equal(g->tools.nnames, 1);
    assert_string_equal(g->tools.names[0], "see");
    assert_true(g->tools.single);
    assert_true(g->reasoning_max > 0);
    assert_int_equal(json_array_size(g->prompt.tools), 2);
    assert_string_equal(text_of(g->prompt.kwargs, "reasoning_effort"), "low");
    assert_string_equal(fake.ignored, "odd");
    run_out();
    same_json(json_object_get(fake.body, "tools"),
              "[{\"type\":\"function\",\"name\":\"look\",\"parameters\":null,\"strict\":null},"
              "{\"name\":\"see\",\"type\":\"function\",\"strict\":null}]");
    same_json(json_object_get(fake.body, "tool_choice"), "{\"type\":\"function\",\"name\":\"see\"}");
    same_json(json_object_get(fake.body, "metadata"), "{\"a\":\"b\"}");
    same_json(json_object_get(fake.body, "reasoning"), "{\"effort\":\"low\",\"summary\":null}");
    same_json(json_object_get(fake.body, "temperature"), "0.5");
    assert_string_equal(text_of(fake.body, "service_tier"), "flex");
    assert_string_equal(text_of(fake.body, "user"), "u");
    assert_string_equal(text_of(json_object_get(json_object_get(fake.body, "text"), "format"), "name"), "n");
    over();
}

static void test_count(void **state)
{
    (void)state;
    static const int32_t three[3] = {1, 2, 3};
    post(api_responses_count, "{" HI ",\"instructions\":\"Be.\"," TOOLS "}");
    assert_int_equal(fake.tasks[0]->kind, TASK_TOKENIZE);
    assert_int_equal(json_array_size(fake.tasks[0]->tokenize.prompt.messages), 2);
    assert_int_equal(json_array_size(fake.tasks[0]->tokenize.prompt.tools), 2);
    start(0, 0, 0);
    emit(0, (struct event){.kind = EVENT_IDS, .ids = three, .nids = 3});
    end(0, 3, 0);
    same_json(fake.body, "{\"object\":\"response.input_tokens\",\"input_tokens\":3}");
    over();
}

#define IN(item) "{\"input\":[" item "]}"
#define USER(content) IN("{\"role\":\"user\",\"content\":" content "}")
#define ASK(more) "{\"input\":\"Hi\"," more "}"

static const struct {
    const char *json;
    int status;
    const char *param, *code;
} refusals[] = {
    {"{}", 400, "input", "missing_required_parameter"},
    {"{\"input\":null}", 400, "input", "missing_required_parameter"},
    {"{\"input\":[]}", 400, "input", "empty_array"},
    {"{\"input\":3}", 400, "input", "invalid_type"},
    {"{\"input\":{}}", 400, "input", "invalid_type"},
    {IN("3"), 400, "input[0]", "invalid_type"},
    {IN("{}"), 400, "input[0].type", "missing_required_parameter"},
    {IN("{\"type\":3}"), 400, "input[0].type", "invalid_type"},
    {IN("{\"type\":\"odd\"}"), 400, "input[0].type", "invalid_value"},
    {IN("{\"type\":\"message\"}"), 400, "input[0].role", "missing_required_parameter"},
    {IN("{\"role\":3}"), 400, "input[0].role", "invalid_type"},
    {IN("{\"role\":\"tool\",\"content\":\"\"}"), 400, "input[0].role", "invalid_value"},
    {IN("{\"role\":\"user\"}"), 400, "input[0].content", "missing_required_parameter"},
    {USER("null"), 400, "input[0].content", "missing_required_parameter"},
    {USER("{}"), 400, "input[0].content", "invalid_type"},
    {USER("[]"), 400, "input[0].content", "empty_array"},
    {USER("[3]"), 400, "input[0].content[0]", "invalid_type"},
    {USER("[{}]"), 400, "input[0].content[0].type", "missing_required_parameter"},
    {USER("[{\"type\":1}]"), 400, "input[0].content[0].type", "invalid_type"},
    {USER("[{\"type\":\"odd\"}]"), 400, "input[0].content[0].type", "invalid_value"},
    {USER("[{\"type\":\"output_text\",\"text\":\"\"}]"), 400, "input[0].content[0].type", "invalid_value"},
    {USER("[{\"type\":\"input_text\"}]"), 400, "input[0].content[0].text", "missing_required_parameter"},
    {USER("[{\"type\":\"input_text\",\"text\":\"\"},{\"type\":\"input_text\",\"text\":[]}]"), 400, "input[0].content[1].text",
     "invalid_type"},
    {USER("[{\"type\":\"input_image\",\"image_url\":\"data:image/png;base64,AA\"}]"), 400, "input[0].content[0].type",
     "unsupported_value"},
    {USER("[{\"type\":\"input_file\",\"file_data\":\"AA\"}]"), 400, "input[0].content[0].type", "unsupported_value"},
    {USER("[{\"type\":\"input_audio\"}]"), 400, "input[0].content[0].type", "unsupported_value"},
    {IN("{\"role\":\"user\",\"content\":\"\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"odd\"}]}"), 400,
     "input[1].content[0].type", "invalid_value"},
    {IN("{\"type\":\"function_call\"}"), 400, "input[0].call_id", "missing_required_parameter"},
    {IN("{\"type\":\"function_call\",\"call_id\":1}"), 400, "input[0].call_id", "invalid_type"},
    {IN("{\"type\":\"function_call\",\"call_id\":\"c\"}"), 400, "input[0].name", "missing_required_parameter"},
    {IN("{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\"}"), 400, "input[0].arguments", "missing_required_parameter"},
    {IN("{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":1}"), 400, "input[0].arguments", "invalid_type"},
    {IN("{\"type\":\"custom_tool_call\",\"call_id\":\"c\",\"name\":\"f\"}"), 400, "input[0].input", "missing_required_parameter"},
    {IN("{\"type\":\"function_call_output\",\"output\":\"\"}"), 400, "input[0].call_id", "missing_required_parameter"},
    {IN("{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"\"}"), 400, "input", ""},
    {IN("{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"}"), 400, "input", ""},
    {IN("{\"type\":\"custom_tool_call\",\"call_id\":\"c\",\"name\":\"f\",\"input\":\"x\"},{\"role\":\"user\",\"content\":\"y\"}"), 400, "input", ""},
    {IN("{\"type\":\"reasoning\",\"encrypted_content\":5}"), 400, "input[0].encrypted_content", "invalid_type"},
    {IN("{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"\"},"
        "{\"type\":\"function_call_output\",\"call_id\":\"c\"}"), 400, "input[1].output", "missing_required_parameter"},
    {IN("{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"\"},{\"type\":\"function_call_output\","
        "\"call_id\":\"c\",\"output\":[{\"type\":\"input_image\"}]}"), 400, "input[1].output[0].type", "unsupported_value"},
    {IN("{\"type\":\"reasoning\",\"summary\":3}"), 400, "input[0].summary", "invalid_type"},
    {IN("{\"type\":\"reasoning\",\"summary\":[]}"), 400, "input", "invalid_value"},  // nothing to say
    {IN("{\"type\":\"computer_call\"}"), 400, "input[0].type", "unsupported_value"},
    {IN("{\"type\":\"local_shell_call\"}"), 400, "input[0].type", "unsupported_value"},
    {IN("{\"type\":\"item_reference\",\"id\":\"msg_none\"}"), 404, "input", ""},
    {IN("{\"id\":\"msg_none\"}"), 404, "input", ""},
    {IN("{\"type\":\"item_reference\"}"), 400, "input[0].type", "invalid_value"},
    {ASK("\"previous_response_id\":\"resp_none\""), 400, "previous_response_id", "previous_response_not_found"},
    {ASK("\"previous_response_id\":3"), 400, "previous_response_id", "invalid_type"},
    {ASK("\"instructions\":[]"), 400, "instructions", "invalid_type"},
    {ASK("\"max_output_tokens\":0"), 400, "max_output_tokens", "integer_below_min_value"},
    {ASK("\"max_output_tokens\":\"9\""), 400, "max_output_tokens", "invalid_type"},
    {ASK("\"temperature\":2.5"), 400, "temperature", "decimal_above_max_value"},
    {ASK("\"top_p\":-1"), 400, "top_p", "decimal_below_min_value"},
    {ASK("\"top_logprobs\":21"), 400, "top_logprobs", "integer_above_max_value"},
    {ASK("\"include\":\"x\""), 400, "include", "invalid_type"},
    {ASK("\"include\":[3]"), 400, "include[0]", "invalid_type"},
    {ASK("\"include\":[\"reasoning.encrypted_content\",\"odd\"]"), 400, "include[1]", "invalid_value"},
    {ASK("\"text\":\"x\""), 400, "text", "invalid_type"},
    {ASK("\"text\":{\"format\":3}"), 400, "text.format", "invalid_type"},
    {ASK("\"text\":{\"format\":{}}"), 400, "text.format.type", "missing_required_parameter"},
    {ASK("\"text\":{\"format\":{\"type\":\"odd\"}}"), 400, "text.format.type", "invalid_value"},
    {ASK("\"text\":{\"format\":{\"type\":\"json_schema\",\"schema\":{}}}"), 400, "text.format.name", "missing_required_parameter"},
    {ASK("\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"a b\",\"schema\":{}}}"), 400, "text.format.name", "invalid_value"},
    {ASK("\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"a\"}}"), 400, "text.format.schema", "missing_required_parameter"},
    {ASK("\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"a\",\"schema\":3}}"), 400, "text.format.schema", "invalid_type"},
    {ASK("\"text\":{\"verbosity\":\"odd\"}"), 400, "text.verbosity", "invalid_value"},
    {ASK("\"text\":{\"format\":{\"type\":\"json_object\"}},\"guided_regex\":\"a\""), 400, "text.format", "invalid_value"},
    {ASK("\"tools\":3"), 400, "tools", "invalid_type"},
    {ASK("\"tools\":[{}]"), 400, "tools[0].type", "missing_required_parameter"},
    {ASK("\"tools\":[{\"type\":\"web_search\"}]"), 400, "tools[0].type", "unsupported_value"},
    {ASK("\"tools\":[{\"type\":\"function\",\"name\":\"f\"},{\"type\":\"mcp\"}]"), 400, "tools[1].type", "unsupported_value"},
    {ASK("\"tools\":[{\"type\":\"function\"}]"), 400, "tools[0].name", "missing_required_parameter"},
    {ASK("\"tools\":[{\"type\":\"function\",\"name\":\"f\",\"parameters\":3}]"), 400, "tools[0].parameters", "invalid_type"},
    {ASK("\"tools\":[{\"type\":\"function\",\"name\":\"f\"}],\"tool_choice\":{\"type\":\"function\",\"name\":\"g\"}"), 400,
     "tool_choice", "invalid_value"},
    {ASK("\"tool_choice\":\"required\""), 400, "tool_choice", "invalid_value"},
    {ASK("\"reasoning\":3"), 400, "reasoning", "invalid_type"},
    {ASK("\"reasoning\":{\"effort\":\"odd\"}"), 400, "reasoning.effort", "invalid_value"},
    {ASK("\"reasoning\":{\"summary\":\"odd\"}"), 400, "reasoning.summary", "invalid_value"},
    {ASK("\"store\":\"yes\""), 400, "store", "invalid_type"},
    {ASK("\"stream\":1"), 400, "stream", "invalid_type"},
    {ASK("\"background\":true"), 400, "background", "unsupported_parameter"},
    {ASK("\"conversation\":\"conv_1\""), 400, "conversation", "unsupported_parameter"},
    {ASK("\"prompt\":{\"id\":\"p\"}"), 400, "prompt", "unsupported_parameter"},
    {ASK("\"moderation\":{}"), 400, "moderation", "unsupported_parameter"},
    {ASK("\"context_management\":[{\"type\":\"compaction\"}]"), 400, "context_management", "unsupported_parameter"},
    {ASK("\"truncation\":\"auto\""), 400, "truncation", "unsupported_value"},
    {ASK("\"truncation\":\"odd\""), 400, "truncation", "invalid_value"},
    {ASK("\"metadata\":3"), 400, "metadata", "invalid_type"},
    {ASK("\"user\":3"), 400, "user", "invalid_type"},
    {ASK("\"max_tool_calls\":\"x\""), 400, "max_tool_calls", "invalid_type"},
    {ASK("\"n\":2"), 400, "n", "unsupported_value"},
    {ASK("\"model\":\"none\""), 404, "", "model_not_found"},
};

static void test_refused(void **state)
{
    (void)state;
    assert_true(sizeof refusals / sizeof *refusals >= 60);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        refused(api_responses_create, refusals[i].json, refusals[i].status, refusals[i].param, refusals[i].code);
        fake.responses = store;
    }
}

// ---- what is kept

// Answers "ok" with this id of the answer and its message left in the texts given.
static void answered(const char *json, char *ret_id, char *ret_item)
{
    post(api_responses_create, json);
    if (!fake.ntasks)
        fail_msg("%s: %s", json, text_of(json_object_get(fake.body, "error"), "message"));
    run_out();
    assert_true(json_is_true(json_object_get(fake.body, "store")));
    snprintf(ret_id, 80, "%s", text_of(fake.body, "id"));
    snprintf(ret_item, 80, "%s", text_of(json_array_get(json_object_get(fake.body, "output"), 0), "id"));
    over();
}

static void at(void (*handler)(struct request *r), const char *tail)
{
    struct request *r = new_request();
    r->tail = tail;
    r->method = "GET";
    r->path = "/v1/responses/x";
    fake.r = r;
    handler(r);
}

static void test_conversation(void **state)
{
    (void)state;
    char first[80], second[80], item[80], json[1000];
    answered("{\"input\":\"one\",\"instructions\":\"Be.\"}", first, item);
    snprintf(json, sizeof json, "{\"input\":\"two\",\"previous_response_id\":\"%s\"}", first);
    answered(json, second, item);
    for (int settled = 0; settled < 2; settled++) {
        if (settled)
            responses_settle(store);
        snprintf(json, sizeof json, "{\"input\":\"three\",\"instructions\":\"Other.\",\"previous_response_id\":\"%s\"}", second);
        expect_prompt(json, "[{\"role\":\"system\",\"content\":\"Other.\"},{\"role\":\"user\",\"content\":\"one\"},"
                            "{\"role\":\"assistant\",\"content\":\"ok\"},{\"role\":\"user\",\"content\":\"two\"},"
                            "{\"role\":\"assistant\",\"content\":\"ok\"},{\"role\":\"user\",\"content\":\"three\"}]");
        snprintf(json, sizeof json, "{\"previous_response_id\":\"%s\"}", first);  // nothing new is said
        expect_prompt(json, "[{\"role\":\"user\",\"content\":\"one\"},{\"role\":\"assistant\",\"content\":\"ok\"}]");
        snprintf(json, sizeof json, "{\"input\":[{\"role\":\"user\",\"content\":\"q\"},{\"type\":\"item_reference\",\"id\":\"%s\"},"
                                    "{\"id\":\"%s\",\"type\":null},{\"role\":\"user\",\"content\":\"z\"}]}", item, item);
        expect_prompt(json, "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"ok\"},"
                            "{\"role\":\"assistant\",\"content\":\"ok\"},{\"role\":\"user\",\"content\":\"z\"}]");
    }
    at(api_stored_delete, first);
    same_json(json_object_get(fake.body, "deleted"), "true");
    over();
    snprintf(json, sizeof json, "{\"input\":\"three\",\"previous_response_id\":\"%s\"}", second);
    refused(api_responses_create, json, 400, "previous_response_id", "previous_response_not_found");
}

// A tool's loop: the call is kept, its result is enough.
static void test_tool_loop(void **state)
{
    (void)state;
    char json[1000], id[80], call_id[80];
    post(api_responses_create, "{" HI "," TOOLS "}");
    start(0, 5, 0);
    thought(0, 0, "Hm");
    call(0, 0, 0, "look", "{\"a\":1}", true);
    finish(0, 0, FINISH_CALLS);
    end(0, 5, 5);
    snprintf(id, sizeof id, "%s", text_of(fake.body, "id"));
    snprintf(call_id, sizeof call_id, "%s", text_of(json_array_get(json_object_get(fake.body, "output"), 1), "call_id"));
    over();
    snprintf(json, sizeof json, "{\"previous_response_id\":\"%s\",\"input\":\"x\"}", id);
    post(api_responses_create, json);  // the call is left without its output
    char words[120];
    snprintf(words, sizeof words, "No tool output found for function call %s.", call_id);
    assert_string_equal(text_of(json_object_get(fake.body, "error"), "message"), words);
    was_refused(json, 400, "input", "");
    fake.responses = store;
    snprintf(json, sizeof json, "{\"previous_response_id\":\"%s\",\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"%s\","
                                "\"output\":\"42\"}]}", id, call_id);
    post(api_responses_create, json);
    struct ids ids = {0};
    char *got = json_dumps(asked()->prompt.messages, JSON_COMPACT);
    same(&ids, got, "[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":\"Hm\","
         "\"tool_calls\":[{\"id\":\"call_#0\",\"type\":\"function\",\"function\":{\"name\":\"look\",\"arguments\":{\"a\":1}}}]},"
         "{\"role\":\"tool\",\"tool_call_id\":\"call_#0\",\"content\":\"42\"}]");
    free(got);
    run_out();
    over();
}

// The thoughts travel with the client: nothing is stored.
static void test_encrypted(void **state)
{
    (void)state;
    char json[2000], token[400];
    post(api_responses_create, "{" HI ",\"store\":false,\"include\":[\"reasoning.encrypted_content\"],\"reasoning\":{\"summary\":"
                               "\"auto\"}}");
    start(0, 5, 0);
    thought(0, 0, "Why \xE2\x82\xAC?");
    text(0, 0, "So");
    finish(0, 0, FINISH_STOP);
    end(0, 5, 5);
    assert_true(json_is_false(json_object_get(fake.body, "store")));
    snprintf(token, sizeof token, "%s", text_of(json_array_get(json_object_get(fake.body, "output"), 0), "encrypted_content"));
    assert_memory_equal(token, "ox1.", 4);
    over();
    responses_settle(store);
    assert_int_equal(responses_count(store), 0);
    static const char item[] = "{\"input\":[{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"S\"}],"
                               "\"encrypted_content\":\"%s\"},{\"role\":\"assistant\",\"content\":\"So\"}]}";
    snprintf(json, sizeof json, item, token);
    expect_prompt(json, "[{\"role\":\"assistant\",\"content\":\"So\",\"reasoning_content\":\"Why \xE2\x82\xAC?\"}]");
    snprintf(json, sizeof json, item, "");  // none: the summary stands in
    expect_prompt(json, "[{\"role\":\"assistant\",\"content\":\"So\",\"reasoning_content\":\"S\"}]");
    for (size_t i = 0; i <= strlen(token); i++) {  // damaged anywhere, cut, lengthened, or of another server
        char bad[420];
        snprintf(bad, sizeof bad, i < strlen(token) ? "%s" : "%sx", token);
        bad[i] = i == strlen(token) ? bad[i] : bad[i] == 'g' ? 'h' : 'g';
        snprintf(json, sizeof json, item, bad);
        fake.responses = store;
        refused(api_responses_create, json, 400, "input[0].encrypted_content", "invalid_encrypted_content");
    }
    snprintf(json, sizeof json, item, "gAAAA of another server");
    fake.responses = store;
    refused(api_responses_create, json, 400, "input[0].encrypted_content", "invalid_encrypted_content");
}

static void test_owners(void **state)
{
    (void)state;
    char id[80], item[80], json[400];
    static const struct apikey key;
    struct request *r = new_request();
    r->key = &key;
    r->json = json_pack("{s:s}", "input", "Hi");
    fake.given_key = "sk-one";
    fake.r = r;
    api_responses_create(r);
    run_out();
    snprintf(id, sizeof id, "%s", text_of(fake.body, "id"));
    snprintf(item, sizeof item, "%s", text_of(json_array_get(json_object_get(fake.body, "output"), 0), "id"));
    over();
    for (int own = 0; own < 3; own++) {
        r = new_request();
        r->key = own < 2 ? &key : NULL;
        fake.given_key = own == 1 ? "sk-one" : "sk-two";
        r->tail = id;
        fake.r = r;
        api_stored_get(r);
        assert_int_equal(fake.status, own == 1 ? 200 : 404);
        over();
    }
    snprintf(json, sizeof json, "{\"input\":\"x\",\"previous_response_id\":\"%s\"}", id);
    refused(api_responses_create, json, 400, "previous_response_id", "previous_response_not_found");
    fake.responses = store;
    snprintf(json, sizeof json, IN("{\"type\":\"item_reference\",\"id\":\"%s\"}"), item);
    refused(api_responses_create, json, 404, "input", "");
}

static void list_is(const char *id, const char *query[4][2], const char *want, bool more)
{
    char tail[120], got[200] = "";
    snprintf(tail, sizeof tail, "%s/input_items", id);
    memcpy(fake.query, query, sizeof fake.query);
    at(api_stored_get, tail);
    assert_int_equal(fake.status, 200);
    const json_t *data = json_object_get(fake.body, "data"), *item;
    size_t i;
    json_array_foreach((json_t *)data, i, item)
        strcat(got, text_of(item, "id"));
    assert_string_equal(got, want);
    assert_int_equal(json_is_true(json_object_get(fake.body, "has_more")), more);
    over();
}

static void test_input_items(void **state)
{
    (void)state;
    char id[80], item[80], tail[100];
    answered(IN("{\"role\":\"user\",\"content\":\"a\",\"id\":\"A\"},{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\","
                "\"arguments\":\"\",\"id\":\"B\"},{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"o\",\"id\":\"C\"},"
                "{\"role\":\"user\",\"content\":\"d\",\"id\":\"D\"}"), id, item);
    list_is(id, (const char *[4][2]){{0}}, "DCBA", false);
    list_is(id, (const char *[4][2]){{"order", "asc"}}, "ABCD", false);
    list_is(id, (const char *[4][2]){{"order", "asc"}, {"limit", "2"}}, "AB", true);
    list_is(id, (const char *[4][2]){{"order", "asc"}, {"limit", "2"}, {"after", "B"}}, "CD", false);
    list_is(id, (const char *[4][2]){{"after", "C"}}, "BA", false);
    list_is(id, (const char *[4][2]){{"after", "none"}}, "", false);
    snprintf(tail, sizeof tail, "%s/input_items", id);
    static const char *const bad[][2] = {{"limit", "0"}, {"limit", "101"}, {"limit", "x"}, {"order", "up"}};
    for (int i = 0; i < 4; i++) {
        fake.query[0][0] = bad[i][0];
        fake.query[0][1] = bad[i][1];
        at(api_stored_get, tail);
        was_refused(bad[i][1], 400, bad[i][0], "invalid_value");
        fake.responses = store;
    }
    at(api_stored_get, tail);
    same_json(json_array_get(json_object_get(fake.body, "data"), 3),
              "{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"}],\"id\":\"A\",\"type\":\"message\","
              "\"status\":\"completed\"}");
    over();
}

static void test_addresses(void **state)
{
    (void)state;
    char id[80], item[80], tail[100];
    answered("{" HI "}", id, item);
    at(api_stored_get, id);
    assert_int_equal(fake.status, 200);
    assert_string_equal(text_of(fake.body, "id"), id);
    assert_string_equal(text_of(fake.body, "status"), "completed");
    over();
    fake.query[0][0] = "stream";
    fake.query[0][1] = "true";
    at(api_stored_get, id);
    was_refused("stream", 400, "stream", "unsupported_value");
    fake.responses = store;
    snprintf(tail, sizeof tail, "%s/cancel", id);
    at(api_stored_cancel, tail);
    was_refused("cancel", 400, "", "");
    fake.responses = store;
    at(api_stored_cancel, "resp_none/cancel");
    was_refused("cancel", 404, "", "");
    fake.responses = store;
    fake.running = "resp_running";
    at(api_stored_cancel, "resp_running/cancel");
    assert_string_equal(text_of(fake.body, "status"), "cancelled");
    over();
    fake.running = "resp_running";
    at(api_stored_get, "resp_running");
    assert_non_null(strstr(text_of(json_object_get(fake.body, "error"), "message"), "is still running"));
    was_refused("get", 404, "", "");
    fake.responses = store;
    fake.running = "resp_running";
    at(api_stored_delete, "resp_running");
    assert_int_equal(fake.status, 200);
    over();
    static void (*const handlers[])(struct request *) = {api_stored_cancel, api_stored_compact, api_stored_get};
    for (int i = 0; i < 3; i++) {
        at(handlers[i], "odd/odd");
        was_refused("odd", 404, "", "unknown_url");
        fake.responses = store;
    }
    at(api_stored_delete, id);
    assert_int_equal(fake.status, 200);
    over();
    at(api_stored_delete, id);
    was_refused("delete", 404, "", "");
    fake.responses = store;
    at(api_stored_get, id);
    was_refused("get", 404, "", "");
}

// The client leaves while the store is asked: no work is begun.
static void test_gone(void **state)
{
    (void)state;
    char id[80], item[80], json[200];
    answered("{" HI "}", id, item);
    snprintf(json, sizeof json, "{\"input\":\"x\",\"previous_response_id\":\"%s\"}", id);
    fake.work_waits = true;
    post(api_responses_create, json);
    fake.work(fake.r);
    fake.r->on_gone(fake.r);
    fake.work_done(fake.r);
    assert_int_equal(fake.ntasks, 0);
    assert_int_equal(fake.answers, 1);
    over();
}

static void keep(const char *id, const char *previous, const char *object, const char *item)
{
    struct responses_kept k = {.owner = "", .id = id, .previous = previous, .object = object, .input = "[]", .items = &item,
                               .nitems = 1, .created_unix_s = 1};
    if (!responses_put(store, &k))
        fail_msg("%s is not kept", id);
}

// Long conversations, ones that go round (which no request makes), large ones, and rows that are damaged.
static void test_limits(void **state)
{
    (void)state;
    static const char object[] = "{\"output\":[{\"type\":\"message\",\"role\":\"assistant\",\"content\":\"a\"}]}";
    char id[16], before[16];
    for (int i = 0; i < 1001; i++) {
        snprintf(id, sizeof id, "r%d", i);
        snprintf(before, sizeof before, "r%d", i - 1);
        keep(id, i ? before : NULL, object, id);
    }
    keep("round", "round", object, "item");
    keep("damaged", NULL, "{\"output\"", "item of it");
    post(api_responses_create, "{\"input\":\"x\",\"previous_response_id\":\"r999\"}");
    assert_int_equal(json_array_size(asked()->prompt.messages), 1001);
    run_out();
    over();
    static const char *const ids[] = {"r1000", "round"};
    for (int i = 0; i < 2; i++) {
        char json[100];
        snprintf(json, sizeof json, "{\"input\":\"x\",\"previous_response_id\":\"%s\"}", ids[i]);
        refused(api_responses_create, json, 400, "previous_response_id", "invalid_value");
        fake.responses = store;
    }
    post(api_responses_create, "{\"input\":\"x\",\"previous_response_id\":\"damaged\"}");
    assert_int_equal(fake.status, 500);
    over();
    post(api_responses_create, IN("{\"type\":\"item_reference\",\"id\":\"item of it\"}"));
    assert_int_equal(fake.status, 500);
    over();

    enum { LARGE = 15 << 20 };
    char *large = mem_new(LARGE + 100);
    memset(large, ' ', LARGE);
    strcpy(large + LARGE, "{\"output\":[{\"id\":\"item\"}]}");
    for (int i = 0; i < 3; i++) {
        snprintf(id, sizeof id, "l%d", i);
        snprintf(before, sizeof before, "l%d", i - 1);
        large[LARGE + 18] = (char)('0' + i);
        char item[8] = {(char)('0' + i), 't', 'e', 'm'};
        keep(id, i ? before : NULL, large, item);
    }
    free(large);
    refused(api_responses_create, "{\"input\":\"x\",\"previous_response_id\":\"l2\"}", 400, "previous_response_id",
            "invalid_value");
    fake.responses = store;
    refused(api_responses_create, IN("{\"id\":\"0tem\"},{\"id\":\"1tem\"},{\"id\":\"2tem\"}"), 400, "input", "invalid_value");
}

// What is too large to be kept says so.
static void test_not_kept(void **state)
{
    (void)state;
    static const struct responses_limits small = {10, 100, 600};
    struct responses *tiny;
    err e = {0};
    assert_int_equal(responses_open(NULL, &small, &tiny, &e), ERR_OK);
    fake.responses = tiny;
    post(api_responses_create, "{" HI "}");
    run_out();
    assert_true(json_is_false(json_object_get(fake.body, "store")));
    over();
    responses_close(tiny);
    responses_unref(tiny);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, finish_test)
    const struct CMUnitTest tests[] = {
        TEST(test_whole), TEST(test_stream), TEST(test_items), TEST(test_items_whole), TEST(test_summary), TEST(test_incomplete),
        TEST(test_empty), TEST(test_logprobs), TEST(test_failed), TEST(test_failed_before), TEST(test_ended_from_outside), TEST(test_messages),
        TEST(test_settings), TEST(test_count), TEST(test_refused), TEST(test_conversation), TEST(test_tool_loop),
        TEST(test_encrypted), TEST(test_owners), TEST(test_input_items), TEST(test_addresses), TEST(test_gone),
        TEST(test_limits), TEST(test_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
