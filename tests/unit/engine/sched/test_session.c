// From tokens to text: stop strings, end markers, characters that tokens cut, echo, log-probabilities held back with their
// text, and the tasks that only prepare. The fake model draws from a tokenizer of 61 tokens.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <jansson.h>
#include <string.h>

#include "base/rng.h"
#include "engine/engine.h"
#include "engine/model.h"
#include "engine/text/chat.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/helpers/client.h"
#include "tests/helpers/engines.h"
#include "tests/helpers/fake_model.h"
#include "tests/helpers/fake_tokenizer.h"

enum { CONTEXT = 256, MAX_OUT = 40 };

static struct engine *open_engine(struct model **ret_model)
{
    struct engine_config c = {.threads = 1, .kv_bytes = 1 << 20, .max_running = 8, .isa = "scalar"};
    struct model *m = *ret_model = fake_model(CONTEXT);
    m->tokenizer = fake_tokenizer();
    return engines_open_with(&c, "fake", m);
}

// What a choice must give, worked out from its tokens as a whole.
struct want {
    struct buf text;
    int sampled, shown;  // tokens; shown: with logprobs
    enum finish finish;
};

// The stop string that ends first, the longest of those; its start, or -1.
static long find_stop(const char *text, size_t len, const char *const *stops, size_t nstops, size_t *ret_end)
{
    long start = -1;
    *ret_end = len + 1;
    for (size_t i = 0; i < nstops; i++) {
        const char *at = strstr(text, stops[i]);
        if (!at)
            continue;
        size_t end = (size_t)(at - text) + strlen(stops[i]);
        if (end < *ret_end || (end == *ret_end && at - text < start)) {
            *ret_end = end;
            start = at - text;
        }
    }
    return start;
}

static void work_out(const struct tokenizer *t, const int32_t *ids, int n, bool ignore_eos, const char *const *stops,
                     size_t nstops, struct want *w)
{
    size_t starts[MAX_OUT + 1], end;
    struct detok d;
    detok_init(&d, t, true);
    buf_init(&w->text, SIZE_MAX);
    buf_add(&w->text, "", 0);
    w->finish = FINISH_LENGTH;
    w->shown = n;
    w->sampled = n;
    for (int i = 0; i < n; i++) {
        starts[i] = w->text.len;
        if (ids[i] == FAKE_EOS && !ignore_eos) {
            w->finish = FINISH_STOP;
            w->shown = i;
            w->sampled = i + 1;
            break;
        }
        detok_add(&d, ids[i], &w->text);
        long cut = find_stop(w->text.data, w->text.len, stops, nstops, &end);
        if (cut < 0)
            continue;
        w->finish = FINISH_STOP;
        w->sampled = i + 1;
        w->text.len = (size_t)cut;
        w->text.data[cut] = 0;
        for (w->shown = 0; w->shown <= i && starts[w->shown] < (size_t)cut;)
            w->shown++;
        return;
    }
    detok_finish(&d, &w->text);
}

static const char *const stop_pool[] = {"a", "bc", "ab", "END", "E", "\n", "\xC3\xA9", " the", "cab", "1", "the", "bb",
                                        "ca", "zz", "aab", ", "};

static void test_text_equals_whole_text(void **state)
{
    (void)state;
    struct model *m;
    struct engine *en = open_engine(&m);
    int stopped = 0, cut_in_token = 0;
    for (uint64_t round = 0; round < 400; round++) {
        uint64_t r = rng_u64(21, round, 0);
        int32_t prompt[8], ids[MAX_OUT];
        for (int i = 0; i < 8; i++)
            prompt[i] = (int32_t)(rng_u64(r, (uint64_t)i, 1) % FAKE_VOCAB);
        const char *stops[3];
        size_t nstops = r % 4;
        for (size_t i = 0; i < nstops; i++)
            stops[i] = stop_pool[(r >> (8 + 8 * i)) % (sizeof stop_pool / sizeof *stop_pool)];
        struct client c = {0};
        struct task *t = client_task("fake", prompt, 8);
        struct generate *g = &t->generate;
        g->stop = arena_alloc(&t->arena, sizeof stops);
        memcpy((void *)g->stop, stops, nstops * sizeof *stops);
        g->nstop = nstops;
        g->max_tokens = MAX_OUT;
        g->ignore_eos = r >> 40 & 1;
        g->logprobs = 1;
        g->n = 1 + (int)(r >> 41 & 1);
        g->sampling.seed = r;
        g->sampling.temperature = 2;
        struct sampling sampling = g->sampling;
        bool ignore_eos = g->ignore_eos;
        int n = g->n, sampled = 0;
        err e = {0};
        assert_true(client_submit(&c, en, t, &e));
        client_wait(&c);
        assert_int_equal(c.error.code, ERR_OK);
        assert_false(c.wrong);
        for (int k = 0; k < n; k++) {
            struct want w;
            fake_answer(prompt, 8, &sampling, k, MAX_OUT, ids);
            work_out(m->tokenizer, ids, MAX_OUT, ignore_eos, stops, nstops, &w);
            assert_string_equal(c.text[k].data ? c.text[k].data : "", w.text.data);
            assert_int_equal(c.finish[k], w.finish);
            assert_int_equal(c.nids[k], w.shown);
            assert_memory_equal(c.ids[k] ? c.ids[k] : ids, ids, (size_t)w.shown * sizeof *ids);
            stopped += w.finish == FINISH_STOP;
            cut_in_token += w.finish == FINISH_STOP && w.shown < w.sampled - 1;
            sampled += w.sampled;
            buf_done(&w.text);
        }
        assert_int_equal(c.usage.completion_tokens, sampled);
        client_done(&c);
    }
    assert_true(stopped > 100 && cut_in_token > 10);
    engine_close(en);
}

// The end marker is not sampled before min_tokens, counts when it is, and is not shown.
static void test_min_tokens(void **state)
{
    (void)state;
    struct model *m;
    struct engine *en = open_engine(&m);
    struct logit_bias bias = {FAKE_EOS, 100};
    for (int min = 0; min < 5; min++) {
        struct client c = {0};
        struct task *t = client_task("fake", (int32_t[]){1, 2, 3}, 3);
        t->generate.sampling.bias = &bias;
        t->generate.sampling.nbias = 1;
        t->generate.min_tokens = min;
        t->generate.max_tokens = 10;
        t->generate.logprobs = 0;
        err e = {0};
        assert_true(client_submit(&c, en, t, &e));
        client_wait(&c);
        assert_int_equal(c.finish[0], FINISH_STOP);
        assert_int_equal(c.nids[0], min);
        assert_int_equal(c.usage.completion_tokens, min + 1);
        assert_null(c.text[0].data ? strstr(c.text[0].data, "im_end") : NULL);
        client_done(&c);
    }
    engine_close(en);
}

static void test_echo(void **state)
{
    (void)state;
    struct model *m;
    struct engine *en = open_engine(&m);
    for (int logprobs = -1; logprobs <= 1; logprobs++) {
        struct client c = {0};
        struct task *t = client_task("fake", NULL, 0);
        t->generate.prompt.ids = NULL;
        t->generate.prompt.text = "abc the end";
        t->generate.prompt.text_len = 11;
        const char *stop[] = {"the"};  // does not look at the prompt
        t->generate.stop = stop;
        t->generate.nstop = 1;
        t->generate.echo = true;
        t->generate.max_tokens = 0;
        t->generate.n = 2;
        t->generate.logprobs = logprobs;
        err e = {0};
        assert_true(client_submit(&c, en, t, &e));
        client_wait(&c);
        assert_int_equal(c.error.code, ERR_OK);
        for (int k = 0; k < 2; k++) {
            assert_string_equal(c.text[k].data, "abc the end");
            assert_int_equal(c.finish[k], FINISH_LENGTH);
            assert_int_equal(c.nids[k], logprobs < 0 ? 0 : c.usage.prompt_tokens);
        }
        assert_int_equal(c.usage.completion_tokens, 0);
        client_done(&c);
    }
    engine_close(en);
}

static void run_prep(struct engine *en, struct client *c, enum task_kind kind, const char *text, const int32_t *ids, int n)
{
    struct task *t = task_new(kind);
    t->model = "fake";
    t->tokenize.prompt.text = text;
    t->tokenize.prompt.text_len = text ? strlen(text) : 0;
    t->tokenize.prompt.ids = ids;
    t->tokenize.prompt.nids = (size_t)n;
    t->tokenize.with_pieces = true;
    client_must_submit(c, en, t);
    client_wait(c);
}

static void test_tokenize(void **state)
{
    (void)state;
    struct model *m;
    struct engine *en = open_engine(&m);
    struct client c = {0};
    run_prep(en, &c, TASK_TOKENIZE, "a\xC3\xA9<|im_end|>b", NULL, 0);
    const int32_t want[] = {0, 50, 51, FAKE_EOS, 1};
    assert_int_equal(c.error.code, ERR_OK);
    assert_int_equal(c.nids[0], 5);
    assert_memory_equal(c.ids[0], want, sizeof want);
    client_done(&c);
    run_prep(en, &c, TASK_DETOKENIZE, NULL, want, 5);
    assert_string_equal(c.text[0].data, "a\xC3\xA9<|im_end|>b");
    client_done(&c);
    run_prep(en, &c, TASK_DETOKENIZE, NULL, (const int32_t[]){99}, 1);
    assert_int_equal(c.error.code, ERR_INVALID);
    assert_int_equal(c.starts, 0);
    client_done(&c);
    run_prep(en, &c, TASK_TOKENIZE, "bad \xFF", NULL, 0);
    assert_int_equal(c.error.code, ERR_INVALID);
    client_done(&c);
    err e = {0};
    struct ticket ticket;
    struct task *t = task_new(TASK_RENDER);
    t->model = "fake";
    assert_int_equal(engine_submit(en, t, &ticket, &e), ERR_INVALID);
    task_free(t);
    struct engine_stats st;
    engine_stats(en, &st);
    assert_int_equal(st.waiting, 0);
    engine_close(en);
}

static void drop_json(void *v)
{
    json_decref(v);
}

static void test_render(void **state)
{
    (void)state;
    struct model *m;
    struct engine *en = open_engine(&m);
    err e = {0};
    struct ticket ticket;
    struct client c = {0};
    struct task *t = task_new(TASK_RENDER);
    t->model = "fake";
    json_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", "hi");
    arena_defer(&t->arena, drop_json, messages);
    t->tokenize.prompt.messages = messages;
    assert_int_equal(engine_submit(en, t, &ticket, &e), ERR_UNSUPPORTED);  // no template
    assert_int_equal(chat_open(NULL, "chatml", &m->chat, &e), ERR_OK);
    assert_true(client_submit(&c, en, t, &e));
    client_wait(&c);
    assert_int_equal(c.error.code, ERR_OK);
    assert_string_equal(c.text[0].data, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
    client_done(&c);
    engine_close(en);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_equals_whole_text),
        cmocka_unit_test(test_min_tokens),
        cmocka_unit_test(test_echo),
        cmocka_unit_test(test_tokenize),
        cmocka_unit_test(test_render),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
