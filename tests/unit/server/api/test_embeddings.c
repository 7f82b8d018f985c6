// /v1/embeddings against a fake engine: what becomes a task, what is refused, and how vectors are written.
#include <math.h>

#include "base/buf.h"
#include "tests/unit/server/api/drive.h"

static int set_up_embed(void **state)
{
    set_up(state);
    fake.models[0].can = CAN_EMBED;
    return 0;
}

static void vector(int input, const float *v, size_t n)
{
    emit(0, (struct event){.kind = EVENT_VECTOR, .choice = input, .values = v, .nvalues = n});
}

static void again(void)
{
    done();
    fake.models[0].can = CAN_EMBED;
}

static const struct embed *asked(void)
{
    assert_int_equal(fake.ntasks, 1);
    assert_int_equal(fake.tasks[0]->kind, TASK_EMBED);
    return &fake.tasks[0]->embed;
}

static void test_inputs(void **state)
{
    (void)state;
    static const float v[] = {0.6f, -0.8f};
    post(api_embeddings_create, "{\"model\":\"tiny\",\"input\":\"hi\"}");
    assert_int_equal(asked()->ninputs, 1);
    assert_string_equal(asked()->inputs[0].text, "hi");
    assert_true(asked()->dimensions == 0 && !asked()->truncate && !asked()->prompt && !asked()->prompt_name);
    start(0, 3, 0);
    vector(0, v, 2);
    end(0, 3, 0);
    same_json(fake.body, "{\"object\":\"list\",\"data\":[{\"object\":\"embedding\",\"index\":0,\"embedding\":[0.6,-0.8]}],"
                         "\"model\":\"tiny\",\"usage\":{\"prompt_tokens\":3,\"total_tokens\":3}}");
    again();

    post(api_embeddings_create, "{\"input\":[\"a\",\"b\\u0000c\"],\"user\":\"u\",\"encoding_format\":null,\"dimensions\":2,\"truncate\":true,"
                                "\"prompt_name\":\"query\",\"prompt\":\"p: \",\"x\":1}");
    assert_int_equal(asked()->ninputs, 2);
    assert_int_equal(asked()->inputs[1].len, 3);
    assert_memory_equal(asked()->inputs[1].text, "b\0c", 3);
    assert_true(asked()->dimensions == 2 && asked()->truncate);
    assert_string_equal(asked()->prompt_name, "query");
    assert_string_equal(asked()->prompt, "p: ");
    assert_string_equal(fake.ignored, "x");
    vector(0, v, 2);
    vector(1, (float[]){0, 0}, 2);
    end(0, 5, 0);
    assert_int_equal(json_array_size(json_object_get(fake.body, "data")), 2);
    again();

    post(api_embeddings_create, "{\"input\":[5,6,7.0]}");
    assert_int_equal(asked()->ninputs, 1);
    assert_true(!asked()->inputs[0].text && asked()->inputs[0].nids == 3 && asked()->inputs[0].ids[2] == 7);
    end_badly(0, ERR_CONTEXT, "maximum context length is 2 tokens");
    assert_int_equal(fake.status, 400);
    again();

    post(api_embeddings_create, "{\"input\":[[5],[6,7]]}");
    assert_int_equal(asked()->ninputs, 2);
    assert_true(asked()->inputs[1].nids == 2 && asked()->inputs[1].ids[0] == 6);
    fake.r->on_gone(fake.r);
    assert_true(fake.cancelled[0]);
    end_badly(0, ERR_CANCELLED, "gone");
    done();
}

static void refuse(const char *json, const char *param, const char *code)
{
    refused(api_embeddings_create, json, 400, param, code);
    fake.models[0].can = CAN_EMBED;
}

static void test_refused(void **state)
{
    (void)state;
    refuse("{}", "input", "missing_required_parameter");
    refuse("{\"input\":null}", "input", "missing_required_parameter");
    refuse("{\"input\":7}", "input", "invalid_type");
    refuse("{\"input\":{}}", "input", "invalid_type");
    refuse("{\"input\":\"\"}", "input", "empty_string");
    refuse("{\"input\":[\"a\",\"\"]}", "input", "empty_string");
    refuse("{\"input\":[]}", "input", "empty_array");
    refuse("{\"input\":[[]]}", "input[0]", "empty_array");
    refuse("{\"input\":[\"a\",5]}", "input[1]", "invalid_type");
    refuse("{\"input\":[5,\"a\"]}", "input[1]", "invalid_type");
    refuse("{\"input\":[[5],\"a\"]}", "input[1]", "invalid_type");
    refuse("{\"input\":[[5],6]}", "input[1]", "invalid_type");
    refuse("{\"input\":[null]}", "input[0]", "invalid_type");
    refuse("{\"input\":[[\"a\"]]}", "input[0][0]", "invalid_type");
    refuse("{\"input\":[1.5]}", "input[0]", "invalid_type");
    refuse("{\"input\":[-1]}", "input[0]", "integer_below_min_value");
    refuse("{\"input\":\"a\",\"encoding_format\":\"hex\"}", "encoding_format", "invalid_value");
    refuse("{\"input\":\"a\",\"dimensions\":0}", "dimensions", "integer_below_min_value");
    refuse("{\"input\":\"a\",\"dimensions\":-1}", "dimensions", "integer_below_min_value");
    refuse("{\"input\":\"a\",\"dimensions\":\"64\"}", "dimensions", "invalid_type");
    struct buf b;
    buf_init(&b, 1 << 20);
    buf_add_str(&b, "{\"input\":[\"a\"");
    for (int i = 0; i < 2048; i++)
        buf_add_str(&b, ",\"a\"");
    buf_add_str(&b, "]}");
    refuse(b.data, "input", "array_above_max_length");
    buf_done(&b);
}

static void test_base64(void **state)
{
    (void)state;
    static const float v[] = {1, 0, 0};  // 00 00 80 3f, ...
    post(api_embeddings_create, "{\"input\":\"hi\",\"encoding_format\":\"base64\"}");
    vector(0, v, 3);
    end(0, 1, 0);
    const json_t *e = json_array_get(json_object_get(fake.body, "data"), 0);
    assert_string_equal(json_string_value(json_object_get(e, "embedding")), "AACAPwAAAAAAAAAA");
    done();
}

static double component(size_t i)
{
    const json_t *e = json_array_get(json_object_get(fake.body, "data"), 0);
    return json_real_value(json_array_get(json_object_get(e, "embedding"), i));
}

static void test_length(void **state)
{
    (void)state;
    post(api_embeddings_create, "{\"input\":\"hi\"}");
    vector(0, (float[]){3, 4}, 2);
    end(0, 1, 0);
    assert_true(fabs(component(0) - 0.6) < 1e-7 && fabs(component(1) - 0.8) < 1e-7);
    again();
    post(api_embeddings_create, "{\"input\":\"hi\",\"normalize\":false}");
    vector(0, (float[]){3, 4}, 2);
    end(0, 1, 0);
    assert_true(component(0) == 3 && component(1) == 4);
    done();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_inputs, set_up_embed), cmocka_unit_test_setup(test_refused, set_up_embed),
        cmocka_unit_test_setup(test_base64, set_up_embed), cmocka_unit_test_setup(test_length, set_up_embed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
