// The exactness rule for answers that are more than text: reasoning with a budget, calls, forms, several choices and
// log-probabilities together have the same bits token by token, with runs and drafts, in a crowd, after preemptions, cut into
// any chunks, with a recurrent state, and whether all logits are computed or those that are read. And each is what was asked
// for.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/engine.h"
#include "engine/metrics.h"
#include "engine/model.h"
#include "engine/text/chat.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/helpers/byte_tokenizer.h"
#include "tests/helpers/client.h"
#include "tests/helpers/engines.h"
#include "tests/helpers/fake_model.h"
#include "tests/helpers/gate.h"

enum { CONTEXT = 2048, MAX_OUT = 450, BUDGET = 7, CASES = 24, PAGE_BYTES = 2 * 2 * 2 * 64 * 8 };

// Qwen's and Hermes' ways: reasoning that the template opens, calls as JSON between markers.
static const char template[] =
    "{% if tools %}{{ '<|im_start|>system\n' ~ (tools | tojson) ~ '<|im_end|>\n' }}{% endif %}"
    "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\n' }}"
    "{% if m.role == 'assistant' and m.reasoning_content %}{{ '<think>\n' ~ m.reasoning_content ~ '\n</think>\n\n' }}{% endif %}"
    "{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ '\n<tool_call>\n{\"name\": \"' ~ c.function.name ~ '\", \"arguments\": ' "
    "~ (c.function.arguments | tojson) ~ '}\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% if enable_thinking is not defined or enable_thinking %}{{ '<think>\n' }}{% endif %}{% endif %}";

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\",\"maxLength\":6},\"kind\":{\"enum\":[\"alpha-long-name\","
    "\"alpha-longer-name\",\"thing\"]},\"ok\":{\"type\":\"boolean\"}},\"required\":[\"city\",\"kind\",\"ok\"],"
    "\"additionalProperties\":false}";
static const char tools_format[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true,\"parameters\":%s}},"
                                   "{\"type\":\"function\",\"function\":{\"name\":\"long_name\",\"parameters\":%s}}]";

static void drop(void *v)
{
    json_decref(v);
}

struct setup {
    size_t kv_bytes;
    int chunk, threads;
    bool recurrent, step;  // step: one_by_one, which reads all logits
};

static struct engine *open_engine(const struct setup *o)
{
    struct engine_config c = {.threads = o->threads, .kv_bytes = o->kv_bytes, .prefill_chunk = o->chunk, .max_running = 8,
                              .max_waiting = 64, .isa = "scalar"};
    err e = {0};
    struct model *m = fake_model_new(CONTEXT, (struct fake_kind){.recurrent = o->recurrent, .vocab = BYTE_VOCAB});
    m->tokenizer = byte_tokenizer();
    if (chat_open_source(template, strlen(template), NULL, 0, &m->chat, &e))
        fail_msg("%s", e.text);
    return engines_open_with(&c, "fake", m);
}

// Case i: what it asks for is in its bits.
static bool thinks(int i) { return i & 1; }
static bool calls(int i) { return i % 6 == 2 || i % 6 == 3; }    // has to
static bool formed(int i) { return i % 6 == 4 || i % 6 == 5; }   // content by the schema

static json_t *keep(struct task *t, json_t *j)
{
    assert_non_null(j);
    arena_defer(&t->arena, drop, j);
    return j;
}

static struct task *task_of(int i, bool step)
{
    struct task *t = client_task("fake", NULL, 0);
    struct generate *g = &t->generate;
    char text[2000];
    g->prompt.ids = NULL;
    snprintf(text, sizeof text, "%-*s question %d", i % 5 * 40, "a long story", i);
    g->prompt.messages = keep(t, json_pack("[{s:s,s:s}]", "role", "user", "content", text));
    g->prompt.kwargs = keep(t, json_pack("{s:b}", "enable_thinking", thinks(i)));
    g->split = true;
    g->one_by_one = step;
    g->max_tokens = MAX_OUT;
    g->reasoning_max = i % 4 == 3 ? BUDGET : i % 4 == 1 ? 0 : -1;
    g->n = i % 3 == 1 ? 3 : 1;
    g->logprobs = i % 8 < 3 ? 2 : -1;
    g->sampling.temperature = 1.3f;
    g->sampling.seed = (uint64_t)i;
    g->sampling.dry_multiplier = i % 5 == 0 ? 0.5f : 0;
    g->sampling.mirostat = i % 7 == 0 ? 2 : 0;
    if (calls(i)) {
        snprintf(text, sizeof text, tools_format, schema, schema);
        g->prompt.tools = keep(t, json_loads(text, 0, NULL));
        g->tools.choice = TOOLS_REQUIRED;
        g->tools.single = i % 6 == 3;
    }
    if (formed(i))
        g->grammar = (struct grammar_request){GRAMMAR_JSON_SCHEMA, schema, strlen(schema), "response_format", NULL};
    return t;
}

// ---- an answer

struct answer_seen {
    char *parts[3];
    enum finish finish[3];
    int nids[3], tokens, reasoning, reasoned[3];
    float *logprobs[3];
    int32_t *ids[3];
};

static void collect(struct client *c, struct answer_seen *s)
{
    client_wait(c);
    if (c->error.code)
        fail_msg("%s", c->error.text);
    assert_false(c->wrong);
    s->tokens = c->usage.completion_tokens;
    s->reasoning = c->usage.reasoning_tokens;
    for (int k = 0; k < 3; k++) {
        s->parts[k] = mem_strndup(c->parts[k].data ? c->parts[k].data : "", c->parts[k].len);
        for (size_t i = 0; i < c->parts[k].len; i++)  // what is written at random may hold one
            s->parts[k][i] = s->parts[k][i] ? s->parts[k][i] : '?';
        s->finish[k] = c->finish[k];
        s->nids[k] = c->nids[k];
        s->reasoned[k] = c->reasoned[k];
        s->ids[k] = c->ids[k];
        s->logprobs[k] = c->logprobs[k];
        c->ids[k] = NULL;
        c->logprobs[k] = NULL;
    }
    client_done(c);
}

static void forget(struct answer_seen *s)
{
    for (int k = 0; k < 3; k++) {
        free(s->parts[k]);
        free(s->ids[k]);
        free(s->logprobs[k]);
    }
}

static void same(const char *how, int i, const struct answer_seen *want, const struct answer_seen *got)
{
    for (int k = 0; k < 3; k++) {
        if (strcmp(want->parts[k], got->parts[k]))
            fail_msg("%s, case %d choice %d:\n%s\nnot\n%s", how, i, k, got->parts[k], want->parts[k]);
        assert_int_equal(got->finish[k], want->finish[k]);
        assert_int_equal(got->nids[k], want->nids[k]);
        assert_int_equal(got->reasoned[k], want->reasoned[k]);
        if (want->nids[k] == 0)
            continue;
        assert_memory_equal(got->ids[k], want->ids[k], (size_t)want->nids[k] * sizeof *want->ids[k]);
        assert_memory_equal(got->logprobs[k], want->logprobs[k], (size_t)want->nids[k] * sizeof *want->logprobs[k]);
    }
    assert_int_equal(got->tokens, want->tokens);
    assert_int_equal(got->reasoning, want->reasoning);
}

// Returns the steps it took. Token by token each has its own; else runs and drafts save some.
static uint64_t run_alone(const struct setup *o, struct answer_seen *seen)
{
    struct engine *en = open_engine(o);
    struct engine_stats st;
    err e = {0};
    for (int i = 0; i < CASES; i++) {
        struct client c = {0};
        assert_true(client_submit(&c, en, task_of(i, o->step), &e));
        collect(&c, &seen[i]);
    }
    engine_stats(en, &st);
    const struct metrics *m = engine_metrics(en, "fake");
    uint64_t drafted = atomic_load(&m->draft_tokens), accepted = atomic_load(&m->accepted_tokens);
    assert_true(o->step || o->recurrent ? drafted == 0 : accepted > 0 && accepted < drafted);
    assert_int_equal(atomic_load(&m->spared_logits) > 0, !o->step);
    engine_close(en);
    return st.steps;
}

static uint64_t run_together(const struct setup *o, struct answer_seen *seen)
{
    struct engine *en = open_engine(o);
    struct client *all = mem_new(CASES * sizeof *all);
    struct engine_stats st;
    err e = {0};
    struct gate g;
    gate_close(&g, en, "fake");
    for (int i = 0; i < CASES; i++)
        assert_true(client_submit(&all[i], en, task_of(i, o->step), &e));
    gate_prepared(en, "fake");
    gate_open(&g);
    for (int i = 0; i < CASES; i++)
        collect(&all[i], &seen[i]);
    engine_stats(en, &st);
    assert_true(engine_check(en, true));
    engine_close(en);
    free(all);
    return st.preempted;
}

// ---- what they must be

static void check_object(const char *text, size_t len)
{
    json_error_t je;
    json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES, &je);
    if (!j)
        fail_msg("%.*s: %s", (int)len, text, je.text);
    assert_int_equal(json_object_size(j), 3);
    assert_true(json_is_string(json_object_get(j, "city")) && json_is_boolean(json_object_get(j, "ok")));
    assert_true(json_is_string(json_object_get(j, "kind")));
    json_decref(j);
}

// What comes behind the reasoning.
static const char *behind_reasoning(const char *parts)
{
    if (strncmp(parts, "{R:", 3) != 0)
        return parts;
    const char *end = strchr(parts, '}');
    while (end && strncmp(end, "}{", 2) != 0 && strcmp(end, "}") != 0 && end[1] != '\n' && strchr(end + 1, '}'))
        end = strchr(end + 1, '}');
    return end ? end + 1 : "";
}

static void check_case(int i, const struct answer_seen *s)
{
    int n = i % 3 == 1 ? 3 : 1;
    for (int k = 0; k < n; k++) {
        if (s->finish[k] == FINISH_LENGTH)
            continue;
        assert_int_equal(s->finish[k], calls(i) ? FINISH_CALLS : FINISH_STOP);
        const char *rest = behind_reasoning(s->parts[k]);
        if (formed(i))
            check_object(strchr(rest, '{'), strlen(strchr(rest, '{')));
        if (calls(i)) {
            const char *at = strstr(s->parts[k], "{f:");
            at = at ? at + 3 : strstr(s->parts[k], "{long_name:") + 11;
            size_t len = strlen(at);
            if (i % 6 == 3)
                check_object(at, len - 1);
        }
    }
    if (thinks(i) && i % 4 == 1)
        assert_true(s->reasoning > 0 && s->reasoning <= 16 * n);  // the closing text alone
    if (thinks(i) && i % 4 == 3)
        assert_true(s->reasoning >= 1 && s->reasoning <= (BUDGET + 16) * n);
}


static void compare(const char *how, const struct setup *o, const struct answer_seen *want)
{
    struct answer_seen got[CASES] = {0};
    (void)run_together(o, got);
    for (int i = 0; i < CASES; i++) {
        same(how, i, &want[i], &got[i]);
        forget(&got[i]);
    }
}

static void test_same_bits(void **state)
{
    (void)state;
    static struct answer_seen want[CASES], got[CASES];
    int finished = 0;
    uint64_t steps = run_alone(&(struct setup){.kv_bytes = 4 << 20, .threads = 1, .step = true}, want);
    for (int i = 0; i < CASES; i++) {
        check_case(i, &want[i]);
        finished += want[i].finish[0] != FINISH_LENGTH;
    }
    assert_true(finished > CASES / 2);
    uint64_t fewer = run_alone(&(struct setup){.kv_bytes = 4 << 20, .threads = 1}, got);
    for (int i = 0; i < CASES; i++) {
        same("alone", i, &want[i], &got[i]);
        forget(&got[i]);
    }
    assert_true(fewer < steps - 100);
    compare("together", &(struct setup){.kv_bytes = 4 << 20, .threads = 2}, want);
    compare("token by token together", &(struct setup){.kv_bytes = 4 << 20, .threads = 1, .step = true}, want);
    compare("small chunks", &(struct setup){.kv_bytes = 4 << 20, .threads = 1, .chunk = 5}, want);
    uint64_t preempted = 0;
    // How prompts are cut depends on how long steps take, and so who is in whose way: some sizes do it in about half of the runs.
    for (int i = 0; preempted == 0 && i < 40; i++) {
        size_t pages = 34 + (size_t)i % 7 * 4;
        preempted += run_together(&(struct setup){.kv_bytes = pages * PAGE_BYTES, .threads = 1}, got);
        for (int k = 0; k < CASES; k++) {
            same("few pages", k, &want[k], &got[k]);
            forget(&got[k]);
        }
    }
    assert_true(preempted > 0);
    for (int i = 0; i < CASES; i++)
        forget(&want[i]);
}

static void test_recurrent(void **state)
{
    (void)state;
    static struct answer_seen want[CASES];
    (void)run_alone(&(struct setup){.kv_bytes = 4 << 20, .threads = 1, .step = true, .recurrent = true}, want);
    compare("recurrent", &(struct setup){.kv_bytes = 4 << 20, .threads = 1, .recurrent = true}, want);
    for (int i = 0; i < CASES; i++)
        forget(&want[i]);
}

// The same with kernels that compute: several rows of logits in a step are those of single steps.
static void test_kernels(void **state)
{
    (void)state;
    struct engine_config c = {.threads = 2, .kv_bytes = 16 << 20, .max_running = 4};
    struct model_config mc = {.name = "fake", .path = "tests/fixtures/scripted/scripted.gguf", .context = 4096};
    struct engine *en = engines_open(&c, &mc);
    err e = {0};
    for (int i = 4; i < CASES; i += i % 6 == 4 ? 1 : 5) {
        struct answer_seen want = {0}, got = {0};
        for (int step = 1; step >= 0; step--) {
            struct client a = {0};
            struct task *t = task_of(i, step);
            t->generate.max_tokens = 150;
            t->generate.sampling.temperature = 30;  // the model is sure of itself
            assert_true(client_submit(&a, en, t, &e));
            collect(&a, step ? &want : &got);
        }
        same("kernels", i, &want, &got);
        forget(&want);
        forget(&got);
    }
    assert_true(atomic_load(&engine_metrics(en, "fake")->accepted_tokens) > 0);
    assert_true(atomic_load(&engine_metrics(en, "fake")->spared_logits) > 0);
    engine_close(en);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_recurrent),
        cmocka_unit_test(test_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
