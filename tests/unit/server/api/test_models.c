// The list of models, one model, and which model a request means.
#include "tests/unit/server/api/drive.h"

static void two_models(void)
{
    fake.models[1] = (struct model_info){.name = "org/big", .family = "qwen3", .format = "safetensors", .state = MODEL_LOADING};
    fake.nmodels = 2;
}

static void test_list(void **state)
{
    (void)state;
    two_models();
    fake.models[0].pinned = fake.models[1].lazy = true;
    fake.models[0].resident_bytes = 100;
    fake.models[0].kv_bytes = 20;
    fake.models[0].memory_bytes = 130;
    fake.models[1].parked = 3;
    fake.models[2] = fake.models[0];
    strcpy(fake.models[2].name, "gpt-4o");
    strcpy(fake.models[2].parent, "tiny");
    fake.nmodels = 3;
    post(api_models_list, NULL);
    json_t *alias = json_array_get(json_object_get(fake.body, "data"), 2);
    assert_string_equal(json_string_value(json_object_get(alias, "parent")), "tiny");
    json_array_remove(json_object_get(fake.body, "data"), 2);
    same_json(fake.body,
              "{\"object\":\"list\",\"data\":[{\"id\":\"tiny\",\"object\":\"model\",\"created\":7,\"owned_by\":\"oxinferd\","
              "\"parent\":null,\"aliases\":[\"gpt-4o\"],\"max_model_len\":512,\"meta\":{\"state\":\"ready\",\"family\":\"llama\",\"format\":\"gguf\","
              "\"tasks\":[\"chat\",\"completion\"],\"context\":512,\"vocab\":300,\"weight_bytes\":0,\"kv_bytes_per_token\":0,"
              "\"input_modalities\":[\"text\"],\"output_modalities\":[\"text\"],\"suffix\":false,"
              "\"resident_bytes\":100,\"kv_bytes\":20,\"memory_bytes\":130,\"pinned\":true,\"lazy\":false,\"waiting\":0}},"
              "{\"id\":\"org/big\",\"object\":\"model\",\"created\":0,\"owned_by\":\"oxinferd\","
              "\"parent\":null,\"aliases\":[],\"max_model_len\":0,\"meta\":{\"state\":\"loading\",\"family\":\"qwen3\",\"format\":\"safetensors\",\"tasks\":[],\"context\":0,"
              "\"vocab\":0,\"weight_bytes\":0,\"kv_bytes_per_token\":0,\"input_modalities\":[],\"output_modalities\":[],\"resident_bytes\":0,\"kv_bytes\":0,"
              "\"memory_bytes\":0,\"pinned\":false,\"lazy\":true,\"waiting\":3}}]}");
    done();
    fake.nmodels = 0;
    post(api_models_list, NULL);
    same_json(fake.body, "{\"object\":\"list\",\"data\":[]}");
    done();
}

static void get_tail(struct request *r)
{
    r->tail = "org/big";
    api_models_get(r);
}

static void get_unknown(struct request *r)
{
    r->tail = "gpt-4o";
    api_models_get(r);
}

static void test_get(void **state)
{
    (void)state;
    two_models();
    post(get_tail, NULL);
    assert_int_equal(fake.status, 200);
    assert_string_equal(json_string_value(json_object_get(fake.body, "id")), "org/big");
    done();
    two_models();
    post(get_unknown, NULL);
    assert_int_equal(fake.status, 404);
    same_json(json_object_get(fake.body, "error"),
              "{\"message\":\"The model 'gpt-4o' does not exist; models served: 'tiny' and 'org/big'.\","
              "\"type\":\"invalid_request_error\",\"param\":null,\"code\":\"model_not_found\"}");
    done();
}

static void test_which(void **state)
{
    (void)state;
    two_models();
    refused(api_completions_create, "{\"prompt\":\"a\"}", 400, "model", "missing_required_parameter");
    fake.models[0].can = CAN_EMBED;
    refused(api_completions_create, "{\"prompt\":\"a\",\"model\":\"tiny\"}", 400, "model", "model_not_supported");
    two_models();
    fake.models[2] = fake.models[0];  // another name of the only one that can is no second model
    strcpy(fake.models[2].name, "also");
    strcpy(fake.models[2].parent, "tiny");
    fake.models[2].can = fake.models[0].can = CAN_COMPLETE;
    fake.models[1].state = MODEL_FAILED;
    fake.nmodels = 3;
    post(api_completions_create, "{\"prompt\":\"a\"}");
    assert_string_equal(fake.tasks[0]->model, "tiny");
    end_badly(0, ERR_CANCELLED, "");
    done();
}

// A model that was never in memory: the request waits for it, and then its handler is called again.
static void test_await(void **state)
{
    (void)state;
    two_models();
    fake.models[1].state = MODEL_UNLOADED;
    post(api_completions_create, "{\"prompt\":[1000],\"model\":\"org/big\"}");
    assert_int_equal(fake.tasks[0]->kind, TASK_LOAD);
    assert_string_equal(fake.tasks[0]->model, "org/big");
    assert_int_equal(fake.answers, 0);
    end(0, 0, 0);
    assert_int_equal(fake.again, 1);
    assert_int_equal(fake.answers, 0);
    fake.models[1].can = CAN_COMPLETE;  // and unloaded again: it is known all the same
    fake.models[1].vocab = 900;
    api_completions_create(fake.r);
    assert_int_equal(fake.status, 400);  // the id is outside the vocabulary, which is known now
    done();

    two_models();
    post(api_completions_create, "{\"prompt\":\"a\",\"model\":\"org/big\"}");
    assert_true(fake.r->on_gone != NULL);
    fake.r->on_gone(fake.r);
    assert_true(fake.cancelled[0]);
    end_badly(0, ERR_CANCELLED, "");
    assert_int_equal(fake.again, 0);
    done();

    two_models();
    err_set(&fake.refuse, ERR_BUSY, "full");
    post(api_completions_create, "{\"prompt\":\"a\",\"model\":\"org/big\"}");
    assert_int_equal(fake.status, 503);
    done();
    two_models();
    refused(api_completions_create, "{\"prompt\":\"a\",\"model\":\"org/big\",\"timeout\":-1}", 400, "timeout", "decimal_below_min_value");
    two_models();
    refused(api_completions_create, "{\"prompt\":\"a\",\"model\":7}", 400, "model", "invalid_type");
}

static void test_load_and_unload(void **state)
{
    (void)state;
    static const char *const strange[] = {"../../etc/hostname", "/etc/passwd", "a/../../b", "..%2f..%2fx", "tiny\\u0000x"};
    two_models();
    post(api_models_load, "{\"model\":\"org/big\"}");
    assert_string_equal(fake.loaded, "org/big");
    same_json(fake.body, "{\"success\":true,\"model\":\"org/big\",\"state\":\"loading\"}");
    done();
    post(api_models_unload, "{\"model\":\"tiny\"}");
    assert_string_equal(fake.unloaded, "tiny");
    done();
    err_set_param(&fake.refuse, ERR_INVALID, "model", "pinned");
    post(api_models_unload, "{\"model\":\"tiny\"}");
    assert_int_equal(fake.status, 400);
    done();
    refused(api_models_load, "{}", 400, "model", "missing_required_parameter");
    refused(api_models_unload, "{\"model\":[]}", 400, "model", "invalid_type");
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
        char json[100];
        snprintf(json, sizeof json, "{\"model\":\"%s\"}", strange[i]);
        two_models();
        post(api_models_load, json);
        assert_true(fake.status == 404 || fake.status == 400);
        assert_null(fake.loaded);
        done();
        two_models();
        post(api_models_unload, json);
        assert_true(fake.status == 404 || fake.status == 400);
        assert_null(fake.unloaded);
        done();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_list, set_up),
        cmocka_unit_test_setup(test_get, set_up),
        cmocka_unit_test_setup(test_which, set_up),
        cmocka_unit_test_setup(test_await, set_up),
        cmocka_unit_test_setup(test_load_and_unload, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
