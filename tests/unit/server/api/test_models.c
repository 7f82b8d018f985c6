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
    post(api_models_list, NULL);
    same_json(fake.body,
              "{\"object\":\"list\",\"data\":[{\"id\":\"tiny\",\"object\":\"model\",\"created\":7,\"owned_by\":\"oxinferd\","
              "\"max_model_len\":512,\"meta\":{\"state\":\"ready\",\"family\":\"llama\",\"format\":\"gguf\","
              "\"tasks\":[\"chat\",\"completion\"],\"context\":512,\"vocab\":300,\"weight_bytes\":0,\"kv_bytes_per_token\":0,"
              "\"input_modalities\":[\"text\"],\"output_modalities\":[\"text\"]}},"
              "{\"id\":\"org/big\",\"object\":\"model\",\"created\":0,\"owned_by\":\"oxinferd\",\"max_model_len\":0,"
              "\"meta\":{\"state\":\"loading\",\"family\":\"qwen3\",\"format\":\"safetensors\",\"tasks\":[],\"context\":0,"
              "\"vocab\":0,\"weight_bytes\":0,\"kv_bytes_per_token\":0,\"input_modalities\":[],\"output_modalities\":[]}}]}");
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
    post(api_completions_create, "{\"prompt\":[1000],\"model\":\"org/big\"}");  // the engine says that it is loading
    assert_string_equal(fake.tasks[0]->model, "org/big");
    end_badly(0, ERR_CANCELLED, "");
    done();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_list, set_up),
        cmocka_unit_test_setup(test_get, set_up),
        cmocka_unit_test_setup(test_which, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
