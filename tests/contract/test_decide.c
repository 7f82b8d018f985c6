// Decisions through the engine's door, with tiny bundles: what transformers and peft compute; one question or many, alone or
// amid others, on any instruction set: the same bits; chat is not touched by the adapter; a cancel at any event leaves nothing.
//
// Allowed: 1e-4 of a probability, with f32 activations and an f32 KV cache. Observed: 5e-06, and 2.8e-06 of a mass (1e-5).
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/model.h"
#include "tests/helpers/client.h"
#include "tests/helpers/engines.h"

#define FOLDER "tests/fixtures/decide/"

static json_t *expected;

static const struct bundle_case {
    const char *cases, *path, *decision;
    int trained;  // options; 0: by label tokens
} bundles[] = {
    {"judge", FOLDER "judge", NULL, 16},
    {"lm", FOLDER "judge", FOLDER "lm", 16},
    {"lm", FOLDER "judge", FOLDER "lm/adapter_vllm", 16},
    {"plain", FOLDER "merged", FOLDER "plain", 16},
    {"merged", FOLDER "merged", "", 20},
    {"by_labels", FOLDER "merged", "labels", 0},
    {"chat", FOLDER "chat", "labels", 0},
};
enum { BUNDLES = sizeof bundles / sizeof *bundles, PLAIN = 3, LABELS = 5, REST = 4 };

static struct engine *open_engine(const struct bundle_case *b, int threads, const char *isa, const char *math, size_t kv)
{
    struct engine_config c = {.threads = threads, .isa = isa, .kv_bytes = kv, .max_running = 12, .max_waiting = 64};
    struct model_config m = {.name = "m", .path = b->path, .decision = b->decision, .activations = math, .kv = "f32"};
    return engines_open(&c, &m);
}

static void close_clean(struct engine *en)
{
    assert_true(engine_check(en, true));
    struct engine_stats st;
    engine_stats(en, &st);
    assert_int_equal(st.kv_pages_used, 0);
    assert_int_equal(st.running, 0);
    engine_close(en);
}

// ---- tasks from the expected cases

static const json_t *case_of(const struct bundle_case *b, size_t i)
{
    return json_array_get(json_object_get(expected, b->cases), i);
}

static size_t ncases(const struct bundle_case *b)
{
    return json_array_size(json_object_get(expected, b->cases));
}

static enum decide_kind kind_of(const json_t *c)
{
    const char *k = json_string_value(json_object_get(c, "kind"));
    return !strcmp(k, "noul") ? DECIDE_BOOL : !strcmp(k, "score") ? DECIDE_INT : DECIDE_ENUM;
}

static void fill(struct task *t, const json_t *c, struct decide_question *q)
{
    const json_t *options = json_object_get(c, "options");
    size_t n = json_array_size(options);
    const char **o = arena_alloc(&t->arena, (n + 1) * sizeof *o);
    for (size_t i = 0; i < n; i++)
        o[i] = json_string_value(json_array_get(options, i));
    *q = (struct decide_question){kind_of(c), json_string_value(json_object_get(c, "question")), o, n};
}

static struct task *new_task(const char *state, size_t nquestions, struct decide_question **ret_questions)
{
    struct task *t = task_new(TASK_DECIDE);
    *ret_questions = arena_alloc(&t->arena, nquestions * sizeof **ret_questions);
    t->model = "m";
    t->decide = (struct decide){state, *ret_questions, nquestions};
    return t;
}

static struct task *task_of(const json_t *c)
{
    struct decide_question *q;
    struct task *t = new_task(json_string_value(json_object_get(c, "state")), 1, &q);
    fill(t, c, q);
    return t;
}

static void run(struct client *c, struct engine *en, struct task *t)
{
    client_must_submit(c, en, t);
    client_ended_well(c);
}

// ---- against the reference

static double check_probabilities(const json_t *want, const double *got, size_t n, int best)
{
    double worst = 0, sum = 0;
    assert_int_equal(n, json_array_size(want));
    for (size_t i = 0; i < n; i++) {
        double d = fabs(got[i] - json_real_value(json_array_get(want, i)));
        worst = d > worst || isnan(d) ? d : worst;
        sum += got[i];
        assert_true(got[i] <= got[best] && (got[i] < got[best] || (int)i >= best));
    }
    assert_true(fabs(sum - 1) < 1e-12);
    return worst;
}

static double check_mass(const struct bundle_case *b, const json_t *want, double got)
{
    if (b->trained) {
        assert_true(isnan(got));
        return 0;
    }
    return fabs(got - json_real_value(want));
}

static void check_case(struct engine *en, const struct bundle_case *b, const json_t *c, double *worst, double *worst_mass)
{
    struct client client = {0};
    run(&client, en, task_of(c));
    const double *got = (const double *)client.blob.data;
    size_t n = client.blob.len / sizeof *got - 1 - REST;
    const double *rest = got + 1 + n;
    double p = check_probabilities(json_object_get(c, "p"), got + 1, n, (int)rest[0]);
    double mass = check_mass(b, json_object_get(c, "mass"), rest[1]);
    if (!(p <= 1e-4 && mass <= 1e-5))
        fail_msg("%s, %zu options: a probability is off by %g, the mass by %g", b->cases, n, p, mass);
    assert_int_equal(got[0], EVENT_DECISION * 1000);
    assert_int_equal(rest[2], b->trained > 0);
    assert_int_equal(rest[3], b->trained > 0 && kind_of(c) == DECIDE_ENUM && n > (size_t)b->trained);
    assert_int_equal(client.usage.prompt_tokens, json_array_size(json_object_get(c, "ids")));
    assert_int_equal(client.usage.completion_tokens, 1);
    *worst = p > *worst ? p : *worst;
    *worst_mass = mass > *worst_mass ? mass : *worst_mass;
    client_done(&client);
}

static void test_reference(void **state)
{
    (void)state;
    double worst = 0, mass = 0;
    for (int i = 0; i < BUNDLES; i++) {
        struct engine *en = open_engine(&bundles[i], 2, NULL, "f32", 64 << 20);
        assert_true(ncases(&bundles[i]) >= 8);
        for (size_t k = 0; k < ncases(&bundles[i]); k++)
            check_case(en, &bundles[i], case_of(&bundles[i], k), &worst, &mass);
        close_clean(en);
    }
    print_message("largest difference of a probability %.2g, of a mass %.2g\n", worst, mass);
}

static void test_describe(void **state)
{
    (void)state;
    for (int i = 0; i < BUNDLES; i++) {
        struct engine *en = open_engine(&bundles[i], 1, NULL, "f32", 64 << 20);
        struct model_info info;
        assert_true(engine_find_model(en, "m", &info));
        assert_true(info.can & CAN_DECIDE);
        assert_int_equal(info.max_options, json_array_size(json_object_get(expected, "labels")));
        assert_int_equal(info.native_decisions, bundles[i].trained > 0);
        assert_int_equal(info.trained_options, bundles[i].trained);
        if (i == 0)
            assert_true(info.temperatures[DECIDE_BOOL] == 1.3 && info.temperatures[DECIDE_INT] == 1.1 &&
                        info.temperatures[DECIDE_ENUM] == 0.7);
        if (i == 1)  // calibration.json has no score
            assert_true(info.temperatures[DECIDE_BOOL] == 0.6 && info.temperatures[DECIDE_INT] == 1);
        close_clean(en);
    }
}

// ---- the same bits

static const char long_state[] = "SKU AX-330 stock at 8% of safety level; supplier late twice this quarter. The customer is waiting.";
static const char *const texts[] = {"Is it urgent?", "Is it late?", "Is it urgent", "", "Does the customer wait for an answer?"};
static const char *const words[] = {"issue_warning", "renegotiate", "dual_source", "maintain"};
enum { TEXTS = 5 };

static struct task *ask(enum decide_kind kind, int first, int n)
{
    struct decide_question *q;
    struct task *t = new_task(long_state, (size_t)n, &q);
    for (int i = 0; i < n; i++)
        q[i] = (struct decide_question){kind, texts[first + i], words, kind == DECIDE_ENUM ? 2 + (size_t)(first + i) % 3 : 0};
    return t;
}

// Answers of all texts, asked one at a time; the events are numbered as when they are asked together.
static void one_by_one(struct engine *en, enum decide_kind kind, struct buf *ret_blob)
{
    buf_init(ret_blob, SIZE_MAX);
    for (int i = 0; i < TEXTS; i++) {
        struct client c = {0};
        run(&c, en, ask(kind, i, 1));
        double head = EVENT_DECISION * 1000 + i;
        buf_add(ret_blob, &head, sizeof head);
        buf_add(ret_blob, c.blob.data + sizeof head, c.blob.len - sizeof head);
        client_done(&c);
    }
}

static void same(const struct client *c, const struct buf *want)
{
    assert_int_equal(c->blob.len, want->len);
    assert_memory_equal(c->blob.data, want->data, want->len);
}

static void test_one_or_many(void **state)
{
    (void)state;
    for (int i = 0; i < BUNDLES; i++) {
        struct engine *one = open_engine(&bundles[i], 1, "scalar", "int8", 64 << 20);
        struct engine *two = open_engine(&bundles[i], 2, NULL, "int8", 64 << 20);
        for (int kind = DECIDE_BOOL; kind <= DECIDE_ENUM; kind++) {
            struct buf want;
            struct client c = {0};
            one_by_one(one, (enum decide_kind)kind, &want);
            run(&c, two, ask((enum decide_kind)kind, 0, TEXTS));
            same(&c, &want);
            assert_int_equal(c.usage.completion_tokens, TEXTS);
            client_done(&c);
            buf_done(&want);
        }
        close_clean(one);
        close_clean(two);
    }
}

// ---- amid chat

static struct task *chat_task(const json_t *c)
{
    const json_t *ids = json_object_get(c, "ids");
    int32_t prompt[1024];
    int n = (int)json_array_size(ids);
    assert_true(n <= 1024);
    for (int i = 0; i < n; i++)
        prompt[i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
    struct task *t = client_task("m", prompt, n);
    t->generate.max_tokens = 24;
    t->generate.sampling.seed = 7;
    t->generate.logprobs = 0;
    t->generate.ignore_eos = true;
    return t;
}

static void same_chat(const struct client *a, const struct client *b)
{
    assert_int_equal(a->nids[0], 24);
    assert_int_equal(b->nids[0], 24);
    assert_memory_equal(a->ids[0], b->ids[0], 24 * sizeof **a->ids);
    assert_memory_equal(a->logprobs[0], b->logprobs[0], 24 * sizeof **a->logprobs);
}

// Chat and decisions on the same prompt, whose pages are cached with the adapter and without.
static void amid_chat(const struct bundle_case *b, int threads, size_t kv)
{
    enum { CHATS = 4 };
    const struct bundle_case base = {b->cases, b->path, "labels", 0};
    const json_t *c = case_of(b, 4);  // more than a page
    struct engine *plain = open_engine(&base, 1, NULL, "int8", 64 << 20), *en = open_engine(b, threads, NULL, "int8", kv);
    struct client want = {0}, chats[CHATS] = {0}, decisions[CHATS] = {0}, alone = {0};
    struct buf answers;
    run(&want, plain, chat_task(c));
    run(&alone, en, task_of(c));
    one_by_one(en, DECIDE_ENUM, &answers);
    for (int i = 0; i < CHATS; i++) {
        client_must_submit(&decisions[i], en, i % 2 ? ask(DECIDE_ENUM, 0, TEXTS) : task_of(c));
        client_must_submit(&chats[i], en, chat_task(c));
    }
    for (int i = 0; i < CHATS; i++) {
        client_ended_well(&chats[i]);
        same_chat(&chats[i], &want);
        client_ended_well(&decisions[i]);
        same(&decisions[i], i % 2 ? &answers : &alone.blob);
        client_done(&chats[i]);
        client_done(&decisions[i]);
    }
    client_done(&want);
    client_done(&alone);
    buf_done(&answers);
    close_clean(plain);
    close_clean(en);
}

static void test_amid_chat(void **state)
{
    (void)state;
    for (int i = 0; i < BUNDLES; i++)
        amid_chat(&bundles[i], 1 + i % 2, 64 << 20);
    amid_chat(&bundles[PLAIN], 2, 64 * 1024 * 14);  // little memory: sessions are preempted
    amid_chat(&bundles[LABELS], 2, 64 * 1024 * 14);
}

// A state is computed once: what is asked about it later finds it in the cache, with the adapter on as well.
static void test_state_is_cached(void **state)
{
    (void)state;
    for (int i = PLAIN; i < BUNDLES; i++) {
        struct engine *en = open_engine(&bundles[i], 1, NULL, "f32", 64 << 20);
        struct client a = {0}, b = {0};
        run(&a, en, ask(DECIDE_BOOL, 0, 1));
        run(&b, en, ask(DECIDE_BOOL, 1, 1));
        assert_int_equal(a.usage.cached_tokens, 0);
        assert_in_range(b.usage.cached_tokens, 65, b.usage.prompt_tokens - 1);  // a page and part of the next
        client_done(&a);
        client_done(&b);
        close_clean(en);
    }
}

// ---- ends

static void test_cancel_at_every_event(void **state)
{
    (void)state;
    for (int i = 0; i < BUNDLES; i++) {
        struct engine *en = open_engine(&bundles[i], 2, NULL, "int8", 64 << 20);
        bool more = true;
        int at = 0;
        for (; more; at++) {
            struct client c = {.cancel_on = en, .cancel_at = at};
            client_must_submit(&c, en, ask(DECIDE_ENUM, 0, TEXTS));
            client_wait(&c);
            assert_int_equal(c.ends, 1);
            more = c.error.code == ERR_CANCELLED;
            if (!more && c.error.code)
                fail_msg("%s", c.error.text);
            client_done(&c);
        }
        assert_true(at > 3);
        close_clean(en);
    }
}

static void test_cancel_at_once(void **state)
{
    (void)state;
    struct engine *en = open_engine(&bundles[0], 1, NULL, "int8", 64 << 20);
    for (int i = 0; i < 20; i++) {
        struct client c = {0};
        client_must_submit(&c, en, ask(DECIDE_BOOL, 0, TEXTS));
        for (volatile int k = 0; k < i * 20000; k++) {
        }
        engine_cancel(en, c.ticket);
        client_wait(&c);
        assert_true(c.error.code == ERR_CANCELLED || c.error.code == ERR_OK);
        client_done(&c);
    }
    close_clean(en);
}

static struct task *choice_of(size_t noptions)
{
    static const char *options[300];
    for (int i = 0; i < 300; i++)
        options[i] = "x";
    struct decide_question *q;
    struct task *t = new_task("s", 1, &q);
    *q = (struct decide_question){DECIDE_ENUM, "q", options, noptions};
    return t;
}

static void test_refused(void **state)
{
    (void)state;
    static char state_text[9000];
    memset(state_text, 'y', sizeof state_text - 1);
    struct engine *en = open_engine(&bundles[0], 1, NULL, "int8", 64 << 20);
    struct decide_question *q;
    client_refused(en, choice_of(0), ERR_INVALID, NULL, "choice needs 2-35 options, got 0");
    client_refused(en, choice_of(1), ERR_INVALID, NULL, "got 1");
    client_refused(en, choice_of(36), ERR_INVALID, NULL, "got 36");
    client_refused(en, new_task("s", 0, &q), ERR_INVALID, NULL, "0 questions");
    client_refused(en, new_task("s", DECIDE_MAX_QUESTIONS + 1, &q), ERR_INVALID, NULL, "401 questions, expected 1 to 400");
    struct task *t = new_task(state_text, 1, &q);
    *q = (struct decide_question){.kind = DECIDE_BOOL, .text = "q"};
    client_refused(en, t, ERR_CONTEXT, NULL, "maximum context length is 1024 tokens");
    t = new_task("\xff", 1, &q);
    *q = (struct decide_question){.kind = DECIDE_BOOL, .text = "q"};
    client_refused(en, t, ERR_INVALID, NULL, "UTF-8");
    close_clean(en);
}

// A control token spelt in a state stays text: one prompt token more for each further byte, not one for all of them.
static void test_no_control_tokens(void **state)
{
    (void)state;
    struct engine *en = open_engine(&bundles[LABELS], 1, NULL, "f32", 64 << 20);
    int tokens[2];
    for (int i = 0; i < 2; i++) {
        struct decide_question *q;
        struct client c = {0};
        struct task *t = new_task(i ? "a <|im_end|> b" : "a  b", 1, &q);
        *q = (struct decide_question){.kind = DECIDE_BOOL, .text = "q"};
        run(&c, en, t);
        tokens[i] = c.usage.prompt_tokens;
        client_done(&c);
    }
    assert_true(tokens[1] >= tokens[0] + 4);
    close_clean(en);
}

int main(void)
{
    json_error_t why;
    expected = json_load_file(FOLDER "expected.json", 0, &why);
    if (!expected)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),   cmocka_unit_test(test_describe),        cmocka_unit_test(test_one_or_many),
        cmocka_unit_test(test_amid_chat),   cmocka_unit_test(test_state_is_cached), cmocka_unit_test(test_cancel_at_every_event),
        cmocka_unit_test(test_cancel_at_once), cmocka_unit_test(test_refused),      cmocka_unit_test(test_no_control_tokens),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(expected);
    return failed;
}
