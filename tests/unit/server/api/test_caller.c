// Who a task is for: account, weight, class, cache domain and deadlines, at every kind of endpoint alike.
#include "tests/unit/server/api/drive.h"

#include "server/api/caller.h"
#include "server/apikey.h"

static struct api_caller caller;
static char failed_param[96];

static const struct field none[] = {{"model", FIELD_HONOURED, "string"}};
API_BODY(here, none, caller);

static void read_caller(struct request *r)
{
    struct fields f;
    api_fields_init(&f, r);
    api_fields_check(&f, &here_body);
    api_caller_read(&caller, &f);
    snprintf(failed_param, sizeof failed_param, "%s", f.failed ? f.e.param : "");
}

// Reads a body as a key's owner (NULL: without keys) and keeps what it gave; the strings are copied.
static char account[200], salt[100], tier[20];
static void ask(const struct apikey *k, const char *json)
{
    struct request *r = new_request();
    json_error_t error;
    r->key = k;
    r->key_id = k ? k->name : "";
    r->peer = "10.1.2.3";
    r->json = json_loads(json, 0, &error);
    assert_non_null(r->json);
    read_caller(r);
    snprintf(account, sizeof account, "%s", caller.account);
    snprintf(salt, sizeof salt, "%s", caller.cache_salt ? caller.cache_salt : "");
    snprintf(tier, sizeof tier, "%s", caller.tier ? caller.tier : "");
    caller.arrived_ns -= r->received_ns;
    caller.deadline_ns -= caller.deadline_ns ? r->received_ns : 0;
    caller.begin_deadline_ns -= caller.begin_deadline_ns ? r->received_ns : 0;
    json_decref(r->json);
    arena_done(&r->arena);
    free(r);
}

static struct apikey key(const char *name, const char *options)
{
    struct apikey k;
    err e = {0};
    apikey_init(&k);
    assert_int_equal(apikey_set_name(&k, name, &e), ERR_OK);
    assert_int_equal(apikey_set_all(&k, options, &e), ERR_OK);
    apikey_digest(k.salt, name, k.digest);
    return k;
}

static void accounts(void **state)
{
    (void)state;
    struct apikey k = key("ada", "weight=2.5");
    ask(NULL, "{}");
    assert_string_equal(account, "address:10.1.2.3");
    assert_true(caller.weight == 1);
    ask(&k, "{}");
    assert_string_equal(account, "ada");
    assert_true(caller.weight == 2.5f);
    fake.header_name = "x-llm-d-inference-fairness-id";
    fake.header = "tenant-7";
    ask(&k, "{}");
    assert_string_equal(account, "ada");  // not believed
    fake.settings.trust_gateway = true;
    ask(&k, "{}");
    assert_string_equal(account, "fairness:tenant-7");
    fake.header_name = "x-gateway-inference-fairness-id";
    ask(NULL, "{}");
    assert_string_equal(account, "fairness:tenant-7");
    fake.header = "";
    ask(NULL, "{}");
    assert_string_equal(account, "address:10.1.2.3");
}

static void classes(void **state)
{
    (void)state;
    struct apikey low = key("low", "class=batch"), usual = key("usual", ""), high = key("high", "class=interactive");
    static const struct {
        const char *json;
        enum task_class none, low, usual, high;
        const char *tier;  // with no key
    } cases[] = {
        {"{}", CLASS_NORMAL, CLASS_BATCH, CLASS_NORMAL, CLASS_NORMAL, ""},
        {"{\"service_tier\":null}", CLASS_NORMAL, CLASS_BATCH, CLASS_NORMAL, CLASS_NORMAL, ""},
        {"{\"service_tier\":\"auto\"}", CLASS_NORMAL, CLASS_BATCH, CLASS_NORMAL, CLASS_NORMAL, "default"},
        {"{\"service_tier\":\"flex\"}", CLASS_BATCH, CLASS_BATCH, CLASS_BATCH, CLASS_BATCH, "flex"},
        {"{\"service_tier\":\"priority\"}", CLASS_INTERACTIVE, CLASS_BATCH, CLASS_NORMAL, CLASS_INTERACTIVE, "priority"},
        {"{\"priority\":-1}", CLASS_INTERACTIVE, CLASS_BATCH, CLASS_NORMAL, CLASS_INTERACTIVE, ""},
        {"{\"priority\":0}", CLASS_NORMAL, CLASS_BATCH, CLASS_NORMAL, CLASS_NORMAL, ""},
        {"{\"priority\":5}", CLASS_BATCH, CLASS_BATCH, CLASS_BATCH, CLASS_BATCH, ""},
        {"{\"priority\":5,\"service_tier\":\"priority\"}", CLASS_BATCH, CLASS_BATCH, CLASS_BATCH, CLASS_BATCH, "flex"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ask(&low, cases[i].json);
        assert_int_equal(caller.class, cases[i].low);
        ask(&usual, cases[i].json);
        assert_int_equal(caller.class, cases[i].usual);
        ask(&high, cases[i].json);
        assert_int_equal(caller.class, cases[i].high);
        ask(NULL, cases[i].json);
        assert_int_equal(caller.class, cases[i].none);
        assert_string_equal(tier, cases[i].tier);
    }
    ask(NULL, "{\"service_tier\":\"gold\"}");
    assert_string_equal(failed_param, "service_tier");
    ask(NULL, "{\"priority\":\"high\"}");
    assert_string_equal(failed_param, "priority");
}

// Two keys never share; a group's do; a salt in the body only ever narrows.
static void cache_domains(void **state)
{
    (void)state;
    struct apikey a = key("a", ""), b = key("b", ""), g1 = key("g1", "group=team"), g2 = key("g2", "group=team"),
                  like = key("team", ""), odd = key("key", "");
    static const char with_salt[] = "{\"cache_salt\":\"s\"}";
    char seen[16][100];
    int n = 0;
    ask(NULL, "{}");
    assert_string_equal(salt, "");
    const struct apikey *const owners[] = {&a, &b, &g1, &like, &odd, NULL};
    for (size_t i = 0; i < sizeof owners / sizeof *owners; i++) {
        if (owners[i]) {
            ask(owners[i], "{}");
            strcpy(seen[n++], salt);
        }
        ask(owners[i], with_salt);
        strcpy(seen[n++], salt);
    }
    ask(&b, "{\"cache_salt\":\"a s\"}");
    strcpy(seen[n++], salt);
    ask(NULL, "{\"cache_salt\":\"key:a\"}");  // another's name guessed
    strcpy(seen[n++], salt);
    for (int i = 0; i < n; i++) {
        assert_int_equal(strlen(seen[i]), 2 * APIKEY_DIGEST);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(seen[i], seen[j]);
    }
    ask(&a, "{}");
    assert_string_equal(salt, seen[0]);  // the same every time
    ask(&g2, "{}");
    assert_string_equal(salt, seen[4]);  // as g1's
    ask(&g2, with_salt);
    assert_string_equal(salt, seen[5]);
}

static void deadlines(void **state)
{
    (void)state;
    ask(NULL, "{}");
    assert_int_equal(caller.arrived_ns, 0);
    assert_int_equal(caller.deadline_ns, 0);
    assert_int_equal(caller.begin_deadline_ns, 0);
    fake.settings.queue_timeout_s = 120;
    ask(NULL, "{\"timeout\":2.5}");
    assert_int_equal(caller.deadline_ns, 2500000000);
    assert_int_equal(caller.begin_deadline_ns, 120000000000);
    fake.header_name = "x-request-timeout-ms";
    fake.header = "1500";
    ask(NULL, "{\"timeout\":2.5}");
    assert_int_equal(caller.deadline_ns, 1500000000);
    ask(NULL, "{\"timeout\":1}");
    assert_int_equal(caller.deadline_ns, 1000000000);
    ask(NULL, "{}");
    assert_int_equal(caller.deadline_ns, 1500000000);
    static const char *const wrong[] = {"", "x", "0", "-1", "1.5", "99999999999999999999", "604800001"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fake.header = wrong[i];
        ask(NULL, "{}");
        assert_string_equal(failed_param, "x-request-timeout-ms");
    }
}

// Every endpoint that makes tasks says the same of them.
static void every_endpoint(void **state)
{
    (void)state;
    static const struct {
        void (*handler)(struct request *r);
        const char *json;
    } cases[] = {
        {api_chat_create, "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"priority\":1,\"timeout\":9}"},
        {api_completions_create, "{\"model\":\"tiny\",\"prompt\":\"x\",\"priority\":1,\"timeout\":9}"},
        {api_embeddings_create, "{\"model\":\"tiny\",\"input\":\"x\",\"priority\":1,\"timeout\":9}"},
        {api_speech_create, "{\"model\":\"tiny\",\"input\":\"x\",\"voice\":\"v\",\"priority\":1,\"timeout\":9}"},
        {api_decide_create, "{\"model\":\"tiny\",\"kind\":\"noul\",\"state\":\"s\",\"question\":\"q\",\"priority\":1,\"timeout\":9}"},
        {api_decisions_create, "{\"model\":\"tiny\",\"input\":\"s\",\"questions\":[{\"type\":\"predicate\",\"instructions\":\"q\"}],\"priority\":1,\"timeout\":9}"},
        {api_tokenize_encode, "{\"model\":\"tiny\",\"content\":\"x\",\"priority\":1,\"timeout\":9}"},
        {api_tokenize_decode, "{\"model\":\"tiny\",\"tokens\":[1],\"priority\":1,\"timeout\":9}"},
    };
    struct apikey k = key("ada", "weight=3");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fake.models[0].can = ~0u;
        fake.models[0].max_options = 8;
        fake.models[0].sample_rate = 24000;
        fake.models[0].nvoices = 1;
        strcpy(fake.models[0].voices[0], "v");
        fake.settings.queue_timeout_s = 60;
        struct request *r = new_request();
        json_error_t error;
        r->key = &k;
        r->key_id = k.name;
        r->json = json_loads(cases[i].json, 0, &error);
        assert_non_null(r->json);
        fake.r = r;
        cases[i].handler(r);
        if (fake.ntasks != 1)
            fail_msg("case %zu: %d tasks", i, fake.ntasks);
        const struct task *t = fake.tasks[0];
        assert_string_equal(t->account, "ada");
        assert_true(t->weight == 3);
        assert_int_equal(t->class, CLASS_BATCH);
        assert_int_equal(strlen(t->cache_salt), 2 * APIKEY_DIGEST);
        assert_int_equal(t->arrived_ns, r->received_ns);
        assert_int_equal(t->deadline_ns - r->received_ns, 9000000000);
        assert_int_equal(t->begin_deadline_ns - r->received_ns, 60000000000);
        assert_string_equal(fake.ignored, "");
        end_badly(0, ERR_INTERNAL, "enough");
        done();
    }
}

// Tokens are told to the quota before the answer.
static void usage(void **state)
{
    (void)state;
    post(api_chat_create, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    start(0, 5, 0);
    text(0, 0, "Hi");
    finish(0, 0, FINISH_STOP);
    end(0, 5, 3);
    assert_int_equal(fake.usage, 8);
    done();
    fake.models[0].can = CAN_EMBED;
    post(api_embeddings_create, "{\"input\":\"x\"}");
    end_task(0, (struct event){.usage = {7, 0, 0, 0}});
    assert_int_equal(fake.usage, 7);
    done();
}

// A key that may use some models only: the others do not exist for it.
static void own_models(void **state)
{
    (void)state;
    struct apikey k = key("ada", "models=tiny,third");
    static const char *const names[] = {"tiny", "second", "third"};
    for (int i = 0; i < 3; i++) {
        fake.models[i] = fake.models[0];
        snprintf(fake.models[i].name, sizeof fake.models[i].name, "%s", names[i]);
    }
    fake.nmodels = 3;
    struct request *r = fake.r = new_request();
    r->key = &k;
    api_models_list(r);
    const json_t *data = json_object_get(fake.body, "data");
    assert_int_equal(json_array_size(data), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(data, 1), "id")), "third");
    done();
    fake.models[1] = fake.models[0];
    snprintf(fake.models[1].name, sizeof fake.models[1].name, "second");
    fake.nmodels = 2;
    static const char *const bodies[] = {"{\"model\":\"second\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
                                         "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}"};
    for (int i = 0; i < 2; i++) {
        json_error_t error;
        r = fake.r = new_request();
        r->key = &k;
        r->key_id = k.name;
        r->json = json_loads(bodies[i], 0, &error);
        api_chat_create(r);
        assert_int_equal(fake.ntasks, i);
        if (i)
            end_badly(0, ERR_INTERNAL, "enough");
        else
            assert_int_equal(fake.status, 404);
        if (!i)
            assert_null(strstr(json_string_value(json_object_get(json_object_get(fake.body, "error"), "message")), "'third'"));
        int nmodels = fake.nmodels;
        struct model_info second = fake.models[1];
        done();
        fake.nmodels = nmodels;
        fake.models[1] = second;
    }
    apikey_done(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(accounts, set_up), cmocka_unit_test_setup(classes, set_up),
        cmocka_unit_test_setup(cache_domains, set_up), cmocka_unit_test_setup(deadlines, set_up),
        cmocka_unit_test_setup(every_endpoint, set_up), cmocka_unit_test_setup(usage, set_up),
        cmocka_unit_test_setup(own_models, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
