// Tasks in steps through the engine's door, with the fake model: right alone, amid others and under memory pressure; and a
// cancel at any event leaves no work, no page and no session behind.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "engine/engine.h"
#include "engine/model.h"
#include "tests/helpers/client.h"
#include "tests/helpers/engines.h"
#include "tests/helpers/fake_model.h"
#include "tests/helpers/gate.h"

enum { TASKS = 12, MAX_AUDIO = 6 * FAKE_ROUND_TOKENS };

static const char *const texts[] = {"a", "sea and sky", "one two three four five six", "wide", "no no no no"};

static struct engine *open_engine(int threads, size_t kv_bytes)
{
    struct engine_config c = {.threads = threads, .kv_bytes = kv_bytes, .max_running = 3 * TASKS, .max_waiting = 64};
    return engines_open_with(&c, "m", fake_model(1024));
}

static void submit(struct client *c, struct engine *en, struct task *t)
{
    t->model = "m";
    client_must_submit(c, en, t);
}

static void submit_embed(struct client *c, struct engine *en, int i)
{
    struct task *t = task_new(TASK_EMBED);
    size_t n = 1 + (size_t)i % 3;
    struct embed_input *in = arena_alloc(&t->arena, n * sizeof *in);
    for (size_t k = 0; k < n; k++) {
        const char *text = texts[((size_t)i + k) % 5];
        in[k] = (struct embed_input){.text = text, .len = strlen(text)};
    }
    t->embed.inputs = in;
    t->embed.ninputs = n;
    submit(c, en, t);
}

static void submit_speak(struct client *c, struct engine *en, int i)
{
    struct task *t = task_new(TASK_SPEAK);
    t->speak.text = texts[i % 5];
    t->speak.len = strlen(texts[i % 5]);
    t->speak.sampling.seed = (uint64_t)i;
    submit(c, en, t);
}

static void submit_chat(struct client *c, struct engine *en, int i)
{
    int32_t ids[40];
    for (int k = 0; k < 40; k++)
        ids[k] = (i + k) % FAKE_VOCAB;
    struct task *t = client_task("m", ids, 40);
    t->generate.max_tokens = 60;
    t->generate.sampling.seed = (uint64_t)i;
    t->generate.logprobs = 0;
    submit(c, en, t);
}

static void check_embed(struct client *c, int i)
{
    client_ended_well(c);
    struct buf want;
    buf_init(&want, SIZE_MAX);
    int tokens = 0;
    for (int k = 0; k < 1 + i % 3; k++) {
        double head = EVENT_VECTOR * 1000 + k;
        float v[FAKE_VALUES];
        const char *text = texts[(i + k) % 5];
        fake_vector(text, v);
        buf_add(&want, &head, sizeof head);
        buf_add(&want, v, sizeof v);
        tokens += (int)strlen(text);
    }
    assert_int_equal(c->blob.len, want.len);
    assert_memory_equal(c->blob.data, want.data, want.len);
    assert_int_equal(c->usage.prompt_tokens, tokens);
    buf_done(&want);
    client_done(c);
}

static void check_speak(struct client *c, int i)
{
    client_ended_well(c);
    struct task *t = task_new(TASK_SPEAK);
    t->speak.sampling.seed = (uint64_t)i;
    float want[MAX_AUDIO], got[MAX_AUDIO];
    int n = fake_audio(texts[i % 5], &t->speak.sampling, want, MAX_AUDIO), have = 0;
    task_free(t);
    for (size_t at = 0; at < c->blob.len;) {
        at += sizeof(double);
        for (int k = 0; k < FAKE_WINDOW && at < c->blob.len && have < n; k++, at += sizeof(float))
            memcpy(&got[have++], c->blob.data + at, sizeof(float));
    }
    assert_int_equal(have, n);
    assert_int_equal(c->usage.completion_tokens, n);
    assert_memory_equal(got, want, (size_t)n * sizeof *want);
    client_done(c);
}

static void check_chat(struct client *c, int i)
{
    client_ended_well(c);
    int32_t prompt[40], want[60];
    for (int k = 0; k < 40; k++)
        prompt[k] = (i + k) % FAKE_VOCAB;
    struct task *t = task_new(TASK_GENERATE);
    t->generate.sampling.seed = (uint64_t)i;
    fake_answer(prompt, 40, &t->generate.sampling, 0, 60, want);
    task_free(t);
    assert_int_equal(c->nids[0], 60);
    assert_memory_equal(c->ids[0], want, sizeof want);
    client_done(c);
}

static void close_clean(struct engine *en)
{
    assert_true(engine_check(en, true));
    struct engine_stats st;
    engine_stats(en, &st);
    assert_int_equal(st.kv_pages_used, 0);
    assert_int_equal(st.running, 0);
    assert_int_equal(fake_works_alive(), 0);
    engine_close(en);
}

static void all_at_once(int threads, size_t kv_bytes, bool must_preempt)
{
    struct engine *en = open_engine(threads, kv_bytes);
    struct client embeds[TASKS] = {0}, speaks[TASKS] = {0}, chats[TASKS] = {0};
    struct gate g;
    gate_close(&g, en, "m");  // none is over before all have come
    for (int i = 0; i < TASKS; i++) {
        submit_chat(&chats[i], en, i);
        submit_embed(&embeds[i], en, i);
        submit_speak(&speaks[i], en, i);
    }
    gate_prepared(en, "m");
    gate_open(&g);
    for (int i = 0; i < TASKS; i++) {
        check_chat(&chats[i], i);
        check_embed(&embeds[i], i);
        check_speak(&speaks[i], i);
    }
    struct engine_stats st;
    engine_stats(en, &st);
    if (must_preempt)
        assert_true(st.preempted > 0);
    close_clean(en);
}

static void test_together(void **state)
{
    (void)state;
    all_at_once(1, 64 << 20, false);
    all_at_once(2, 64 << 20, false);
}

static void test_little_memory(void **state)
{
    (void)state;
    all_at_once(2, 16 * 64 * 64, true);  // 16 pages: one long task and little more
}

static void test_cancel_at_any_event(void **state)
{
    (void)state;
    struct engine *en = open_engine(2, 64 << 20);
    void (*const submits[])(struct client *, struct engine *, int) = {submit_embed, submit_speak};
    for (int kind = 0; kind < 2; kind++) {
        bool more = true;
        for (int at = 0; more; at += 1 + at / 4) {  // each of the first, then ever fewer
            struct client c = {.cancel_on = en, .cancel_at = at};
            submits[kind](&c, en, 2);
            client_wait(&c);
            assert_int_equal(c.ends, 1);
            more = c.error.code == ERR_CANCELLED;
            if (!more && c.error.code)
                fail_msg("%s", c.error.text);
            client_done(&c);
        }
    }
    close_clean(en);
}

static void test_refused(void **state)
{
    (void)state;
    struct engine *en = open_engine(1, 1 << 20);
    struct task *t = task_new(TASK_IMAGE);
    struct client c = {0};
    err e = {0};
    t->model = "m";
    assert_false(client_submit(&c, en, t, &e));
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    client_done(&c);
    t = task_new(TASK_EMBED);
    t->embed.inputs = &(struct embed_input){.text = "", .len = 0};
    t->embed.ninputs = 1;
    submit(&c, en, t);
    client_wait(&c);
    assert_int_equal(c.error.code, ERR_INVALID);
    assert_int_equal(c.starts, 0);
    client_done(&c);
    close_clean(en);
}

// Works beyond their max_running wait for their own kind only: a chat that came after them is done before any of them.
static void test_others_pass(void **state)
{
    (void)state;
    enum { LONG = 200000, EMBEDS = 4 };
    static char text[LONG + 1];
    memset(text, 'x', LONG);
    struct engine *en = open_engine(1, 64 << 20);
    struct client embeds[EMBEDS] = {0}, chat = {0};
    for (int i = 0; i < EMBEDS; i++) {
        struct task *t = task_new(TASK_EMBED);
        struct embed_input *in = arena_alloc(&t->arena, sizeof *in);
        *in = (struct embed_input){.text = text, .len = LONG};
        t->embed.inputs = in;
        t->embed.ninputs = 1;
        submit(&embeds[i], en, t);
    }
    submit_chat(&chat, en, 1);
    client_wait(&chat);
    int place = chat.place;
    check_chat(&chat, 1);
    for (int i = 0; i < EMBEDS; i++) {
        engine_cancel(en, embeds[i].ticket);
        client_wait(&embeds[i]);
        assert_true(embeds[i].place > place);
        client_done(&embeds[i]);
    }
    close_clean(en);
}

// The engine closes amid work: every task ends once, with ERR_DRAINING.
static void test_close_amid_work(void **state)
{
    (void)state;
    struct engine *en = open_engine(2, 64 << 20);
    struct client c[2 * TASKS] = {0};
    for (int i = 0; i < TASKS; i++) {
        submit_speak(&c[i], en, 2);
        submit_embed(&c[TASKS + i], en, 2);
    }
    engine_close(en);
    for (int i = 0; i < 2 * TASKS; i++) {
        assert_int_equal(c[i].ends, 1);
        assert_true(c[i].error.code == ERR_OK || c[i].error.code == ERR_DRAINING);
        client_done(&c[i]);
    }
    assert_int_equal(fake_works_alive(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_together),        cmocka_unit_test(test_little_memory),
        cmocka_unit_test(test_cancel_at_any_event), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_others_pass),     cmocka_unit_test(test_close_amid_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
