// Embeddings through the engine's door: close to sentence-transformers for every way of pooling; the same bits on one and
// two lanes, on every instruction set, alone and in any company; limits, prompts, dimensions; a cancel leaves nothing.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/model.h"
#include "tests/helpers/client.h"
#include "tests/helpers/engines.h"

#define FOLDER "tests/fixtures/embed/"

enum { MAX_INPUTS = 64, MAX_VALUES = 1 << 16 };

static struct engine *open_engine(const char *isa, int threads, const char *name)
{
    struct engine_config c = {.threads = threads, .isa = isa, .max_running = 8, .max_waiting = 64};
    char path[256];
    snprintf(path, sizeof path, FOLDER "%s", name);
    struct model_config m = {.name = "m", .path = path};
    return engines_open(&c, &m);
}

static json_t *load_cases(const char *name)
{
    char path[256];
    json_error_t why;
    snprintf(path, sizeof path, FOLDER "%s/expected.json", name);
    json_t *j = json_load_file(path, 0, &why), *cases = json_object_get(j, "cases");
    if (!cases)
        fail_msg("%s: %s", path, why.text);
    json_incref(cases);
    json_decref(j);
    return cases;
}

static const char *option(struct task *t, const json_t *options, const char *name)
{
    const char *s = json_string_value(json_object_get(options, name));
    return s ? arena_strdup(&t->arena, s) : NULL;
}

// Texts from .. to of a case.
static struct task *make_task(const json_t *texts, const json_t *options, size_t from, size_t to)
{
    struct task *t = task_new(TASK_EMBED);
    struct embed_input *in = arena_alloc(&t->arena, (to - from) * sizeof *in);
    for (size_t i = from; i < to; i++) {
        const json_t *s = json_array_get(texts, i);
        in[i - from] = (struct embed_input){
            .text = arena_strndup(&t->arena, json_string_value(s), json_string_length(s)), .len = json_string_length(s)};
    }
    t->model = "m";
    t->embed.inputs = in;
    t->embed.ninputs = to - from;
    t->embed.prompt = option(t, options, "prompt");
    t->embed.prompt_name = option(t, options, "prompt_name");
    t->embed.dimensions = (int)json_integer_value(json_object_get(options, "dimensions"));
    t->embed.truncate = json_is_true(json_object_get(options, "truncate"));
    return t;
}

// The vectors of a finished task, one after another; returns the numbers of each.
static int take_vectors(struct client *c, size_t n, float *ret_values)
{
    client_wait(c);
    if (c->error.code)
        fail_msg("%s", c->error.text);
    assert_false(c->wrong);
    assert_int_equal(c->starts, 1);
    size_t dims = (c->blob.len / n - sizeof(double)) / sizeof(float);
    assert_int_equal(c->blob.len, n * (sizeof(double) + dims * sizeof(float)));
    for (size_t i = 0; i < n; i++) {
        double head;
        const char *at = c->blob.data + i * (sizeof(double) + dims * sizeof(float));
        memcpy(&head, at, sizeof head);
        assert_true(head == EVENT_VECTOR * 1000.0 + (double)i);  // in the order of the inputs
        memcpy(ret_values + i * dims, at + sizeof head, dims * sizeof(float));
    }
    return (int)dims;
}

static int run(struct engine *en, struct task *t, float *ret_values, int *ret_tokens)
{
    struct client c = {0};
    size_t n = t->embed.ninputs;
    client_must_submit(&c, en, t);
    int dims = take_vectors(&c, n, ret_values);
    if (ret_tokens)
        *ret_tokens = c.usage.prompt_tokens;
    client_done(&c);
    return dims;
}

// ---- close to sentence-transformers

static double check_case(struct engine *en, const json_t *c)
{
    static float got[MAX_VALUES];
    const json_t *texts = json_object_get(c, "texts"), *want = json_object_get(c, "vectors");
    size_t n = json_array_size(texts);
    int tokens, dims = run(en, make_task(texts, json_object_get(c, "options"), 0, n), got, &tokens);
    assert_int_equal(tokens, json_integer_value(json_object_get(c, "tokens")));
    assert_int_equal(dims, json_array_size(json_array_get(want, 0)));
    double worst = 0;
    for (size_t i = 0; i < n; i++)
        for (int d = 0; d < dims; d++) {
            double v = json_number_value(json_array_get(json_array_get(want, i), (size_t)d));
            worst = fmax(worst, fabs((double)got[i * (size_t)dims + (size_t)d] - v) / fmax(1, fabs(v)));
        }
    return worst;
}

static void check_reference(void **state)
{
    const char *name = *state;
    struct engine *en = open_engine(NULL, 1, name);
    json_t *cases = load_cases(name), *c;
    size_t i;
    double worst = 0;
    json_array_foreach (cases, i, c)
        worst = fmax(worst, check_case(en, c));
    print_message("%s: largest difference %.2g\n", name, worst);
    assert_true(worst < 1e-5);  // observed 2.7e-6 (many: sums of 168 numbers), others 6e-7
    json_decref(cases);
    engine_close(en);
}

// The same weights and vocabulary as a GGUF file, which has no Normalize: the same bits once that is done.
static void test_gguf(void **state)
{
    (void)state;
    static float want[MAX_VALUES], got[MAX_VALUES];
    json_t *cases = load_cases("mean"), *c = json_array_get(cases, 0);
    const json_t *texts = json_object_get(c, "texts"), *options = json_object_get(c, "options");
    size_t n = json_array_size(texts);
    int tokens, dims = 0;
    for (int i = 0; i < 2; i++) {
        struct engine *en = open_engine(NULL, 1, i ? "mean.gguf" : "mean");
        dims = run(en, make_task(texts, options, 0, n), i ? got : want, &tokens);
        assert_int_equal(tokens, json_integer_value(json_object_get(c, "tokens")));
        engine_close(en);
    }
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (int d = 0; d < dims; d++)
            sum += (double)got[i * (size_t)dims + (size_t)d] * (double)got[i * (size_t)dims + (size_t)d];
        for (int d = 0; d < dims; d++)
            assert_true(got[i * (size_t)dims + (size_t)d] / (float)sqrt(sum) == want[i * (size_t)dims + (size_t)d]);
    }
    json_decref(cases);
}

// ---- the same bits

static void check_exact(void **state)
{
    static float want[MAX_VALUES], got[MAX_VALUES];
    static const char *const isas[] = {"scalar", "avx2", "avx512"};
    const char *name = *state;
    json_t *cases = load_cases(name), *c = json_array_get(cases, 0);
    const json_t *texts = json_object_get(c, "texts"), *options = json_object_get(c, "options");
    size_t n = json_array_size(texts), bytes = 0;
    err e;
    for (int i = 0; i < 3; i++) {
        if (engine_check_isa(isas[i], &e))
            continue;
        for (int threads = 1; threads <= 2; threads++) {
            struct engine *en = open_engine(isas[i], threads, name);
            int dims = run(en, make_task(texts, options, 0, n), bytes ? got : want, NULL);
            if (bytes)
                assert_memory_equal(got, want, bytes);
            bytes = n * (size_t)dims * sizeof *want;
            for (size_t k = 0; i > 0 && k < n; k++) {
                run(en, make_task(texts, options, k, k + 1), got, NULL);
                assert_memory_equal(got, want + k * (size_t)dims, (size_t)dims * sizeof *want);
            }
            engine_close(en);
        }
    }
    json_decref(cases);
}

// Many tasks at once, each with many inputs: several batches of rows, works taking turns.
static void test_company(void **state)
{
    (void)state;
    enum { TASKS = 6, INPUTS = 400 };
    static float want[MAX_VALUES], got[INPUTS * 40];
    json_t *cases = load_cases("mean"), *texts = json_object_get(json_array_get(cases, 0), "texts");
    size_t n = json_array_size(texts);
    struct engine *en = open_engine(NULL, 2, "mean");
    json_t *options = json_object();
    int dims = run(en, make_task(texts, options, 0, n), want, NULL);
    json_t *lists[TASKS];
    struct client c[TASKS] = {0};
    for (int k = 0; k < TASKS; k++) {
        lists[k] = json_array();
        for (int i = 0; i < INPUTS; i++)
            json_array_append(lists[k], json_array_get(texts, (size_t)(i * (k + 1) + k) % n));
        client_must_submit(&c[k], en, make_task(lists[k], options, 0, INPUTS));
    }
    for (int k = 0; k < TASKS; k++) {
        take_vectors(&c[k], INPUTS, got);
        for (int i = 0; i < INPUTS; i++)
            assert_memory_equal(got + i * dims, want + (size_t)(i * (k + 1) + k) % n * (size_t)dims, (size_t)dims * sizeof *want);
        client_done(&c[k]);
        json_decref(lists[k]);
    }
    engine_close(en);
    json_decref(options);
    json_decref(cases);
}

// ---- what may be asked

static json_t *list_of(const char *text)
{
    return json_pack("[s]", text);
}

static struct task *one(const char *text)
{
    json_t *list = list_of(text);
    struct task *t = make_task(list, NULL, 0, 1);
    json_decref(list);
    return t;
}

static void test_limits(void **state)
{
    (void)state;
    char text[200] = "";
    float v[64];
    int tokens;
    struct engine *en = open_engine(NULL, 1, "mean");  // 24 tokens
    struct model_info info;
    assert_true(engine_find_model(en, "m", &info));
    assert_int_equal(info.context, 24);
    assert_int_equal(info.dimensions, 36);
    assert_int_equal(info.can, CAN_EMBED);
    for (int i = 0; i < 22; i++)
        strcat(text, "a ");
    run(en, one(text), v, &tokens);
    assert_int_equal(tokens, 24);
    strcat(text, "b");
    client_refused(en, one(text), ERR_CONTEXT, NULL, "maximum context length is 24 tokens, however input 0 has 25 tokens");
    json_t *list = json_pack("[s, s, s]", "a", text, "b"), *options = json_pack("{s:b}", "truncate", 1);
    client_refused(en, make_task(list, NULL, 0, 3), ERR_CONTEXT, NULL, "input 1 has 25 tokens");
    float cut[3 * 36];
    run(en, make_task(list, options, 0, 3), cut, &tokens);
    assert_int_equal(tokens, 3 + 24 + 3);
    assert_memory_equal(cut + 36, v, 36 * sizeof *v);  // the text without its last word
    json_decref(list);
    json_decref(options);
    engine_close(en);
}

static void test_ids(void **state)
{
    (void)state;
    float v[64], w[64];
    static const int32_t ids[] = {3, 60, 61, 4};
    struct engine *en = open_engine(NULL, 1, "mean");
    for (int i = 0; i < 2; i++) {
        struct task *t = one("x");
        struct embed_input *in = arena_alloc(&t->arena, sizeof *in);
        *in = (struct embed_input){.ids = ids, .nids = 4};
        t->embed.inputs = in;
        int tokens;
        run(en, t, i ? w : v, &tokens);
        assert_int_equal(tokens, 4);
    }
    assert_memory_equal(v, w, 36 * sizeof *v);
    static const int32_t wrong[] = {3, 100000, 4};
    struct task *t = one("x");
    struct embed_input *in = arena_alloc(&t->arena, sizeof *in);
    *in = (struct embed_input){.ids = wrong, .nids = 3};
    t->embed.inputs = in;
    client_refused(en, t, ERR_INVALID, NULL, "check_embedding_ctx_length=False");
    t = one("x");
    in = arena_alloc(&t->arena, sizeof *in);
    *in = (struct embed_input){.ids = wrong, .nids = 0};
    t->embed.inputs = in;
    client_refused(en, t, ERR_INVALID, NULL, "no tokens");
    engine_close(en);
}

static void test_options(void **state)
{
    (void)state;
    struct engine *en = open_engine(NULL, 1, "many");
    struct task *t = one("a");
    t->embed.dimensions = 169;
    client_refused(en, t, ERR_INVALID, NULL, "expected 1 to 168");
    t = one("a");
    t->embed.dimensions = -1;
    client_refused(en, t, ERR_INVALID, NULL, "expected 1 to 168");
    t = one("a");
    t->embed.dimensions = 63;  // 64 is what the model declares
    client_refused(en, t, ERR_UNSUPPORTED, NULL, "63 dimensions");
    t = one("a");
    t->embed.prompt_name = "passage";
    client_refused(en, t, ERR_INVALID, NULL, "'query'");
    t = one("a");
    t->embed.ninputs = 0;
    client_refused(en, t, ERR_INVALID, NULL, "nothing to embed");
    engine_close(en);
}

static void test_cancel(void **state)
{
    (void)state;
    struct engine *en = open_engine(NULL, 2, "mean");
    json_t *list = json_array();
    for (int i = 0; i < 60; i++)
        json_array_append_new(list, json_string("the little server reads a question and answer it every word"));
    bool more = true;
    for (int at = 0; more; at += 7) {
        struct client c = {.cancel_on = en, .cancel_at = at};
        client_must_submit(&c, en, make_task(list, NULL, 0, 60));
        client_wait(&c);
        assert_int_equal(c.ends, 1);
        more = c.error.code == ERR_CANCELLED;
        if (!more && c.error.code)
            fail_msg("%s", c.error.text);
        client_done(&c);
    }
    struct engine_stats st;
    assert_true(engine_check(en, true));  // after the scheduler's turn
    engine_stats(en, &st);
    assert_int_equal(st.running, 0);
    json_decref(list);
    engine_close(en);
}

// ---- folders that are refused

// The folder "mean" with another modules.json, pooling or architecture.
static void refused_folder(const char *file, const char *text, err_code code, const char *word)
{
    static const char *const files[] = {"config.json", "model.safetensors", "modules.json", "tokenizer.json", "1_Pooling/config.json"};
    char folder[] = "/tmp/oxinferd-embed-XXXXXX", cwd[1024], from[2048], to[256];
    assert_non_null(mkdtemp(folder));
    assert_non_null(getcwd(cwd, sizeof cwd));
    snprintf(to, sizeof to, "%s/1_Pooling", folder);
    assert_int_equal(mkdir(to, 0700), 0);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(from, sizeof from, "%s/" FOLDER "mean/%s", cwd, files[i]);
        snprintf(to, sizeof to, "%s/%s", folder, files[i]);
        if (strcmp(files[i], file) != 0) {
            assert_int_equal(symlink(from, to), 0);
            continue;
        }
        FILE *f = fopen(to, "w");
        fputs(text, f);
        fclose(f);
    }
    struct engine_config c = {.threads = 1, .max_running = 8, .max_waiting = 64};
    struct model_config m = {.name = "m", .path = folder};
    struct engine *en;
    err e = {0};
    assert_int_equal(engine_open(&c, &en, &e), ERR_OK);
    assert_int_equal(engine_add_model(en, &m, &e), ERR_OK);
    err_code got = engine_wait_model(en, "m", &e);
    engine_close(en);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(to, sizeof to, "%s/%s", folder, files[i]);
        unlink(to);
    }
    snprintf(to, sizeof to, "%s/1_Pooling", folder);
    rmdir(to);
    rmdir(folder);
    if (got != code || !strstr(e.text, word))
        fail_msg("%s '%s': %s, expected one of %s", file, text, e.text, word);
}

#define MODULE(type, path) "{\"type\": \"sentence_transformers.models." type "\", \"path\": \"" path "\"}"
#define CONFIG(more) "{\"architectures\": [\"BertModel\"], \"hidden_size\": 36, \"num_hidden_layers\": 3, \"intermediate_size\": 52, " \
                     "\"num_attention_heads\": 3, \"max_position_embeddings\": 30" more "}"

static void test_refused_folders(void **state)
{
    (void)state;
    refused_folder("modules.json", "[" MODULE("Transformer", "") "," MODULE("CNN", "1_CNN") "]", ERR_UNSUPPORTED, "'CNN'");
    refused_folder("modules.json", "[" MODULE("Transformer", "") "," MODULE("Dense", "2_Dense") "]", ERR_UNSUPPORTED, "'Dense'");
    refused_folder("modules.json", "[" MODULE("Transformer", "0_T") "]", ERR_UNSUPPORTED, "0_T");
    refused_folder("1_Pooling/config.json", "{\"pooling_mode\": \"attention\"}", ERR_UNSUPPORTED, "'attention'");
    refused_folder("1_Pooling/config.json", "{\"pooling_mode\": []}", ERR_CORRUPT, "empty list");
    refused_folder("1_Pooling/config.json", "{\"word_embedding_dimension\": 35}", ERR_CORRUPT, "expected the model's 36");
    refused_folder("config.json", CONFIG(", \"position_embedding_type\": \"relative_key\""), ERR_UNSUPPORTED, "relative_key");
    refused_folder("config.json", CONFIG(", \"hidden_act\": \"mish\""), ERR_UNSUPPORTED, "mish");
    refused_folder("config.json", CONFIG(", \"is_decoder\": true"), ERR_UNSUPPORTED, "decoder");
    refused_folder("config.json", "{\"architectures\": [\"RobertaModel\"]}", ERR_UNSUPPORTED, "RobertaModel");
    refused_folder("config.json", "{\"architectures\": [\"BertModel\"], \"hidden_size\": 36}", ERR_CORRUPT, "num_hidden_layers");
}

#define ON(fn, name) {#fn "_" #name, fn, NULL, NULL, #name}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON(check_reference, mean), ON(check_reference, cls_dense), ON(check_reference, many), ON(check_reference, plain),
        ON(check_reference, tiny), ON(check_reference, order),
        ON(check_exact, mean),     ON(check_exact, cls_dense),     ON(check_exact, many),     ON(check_exact, plain),
        ON(check_exact, tiny),
        cmocka_unit_test(test_company), cmocka_unit_test(test_limits), cmocka_unit_test(test_ids),
        cmocka_unit_test(test_options), cmocka_unit_test(test_cancel), cmocka_unit_test(test_refused_folders), cmocka_unit_test(test_gguf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
