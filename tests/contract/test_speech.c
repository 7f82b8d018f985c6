// Orpheus as a whole, on the tiny committed model: tokens and waveforms against transformers and the snac package
// (tests/reference/make_speech.py); through the engine the same bits alone, in company, at 1 and 2 threads, on every
// instruction set and under memory pressure; a cancel at any event leaves nothing behind; which checkpoints are Orpheus.
//
// Waveforms without noise: allowed 1e-5, observed 3.3e-06 (samples reach 1).
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "engine/engine.h"
#include "engine/family/family.h"
#include "engine/model.h"
#include "engine/sched/kv.h"
#include "engine/tools.h"
#include "tests/helpers/client.h"
#include "tests/helpers/engines.h"
#include "tests/helpers/gate.h"
#include "tests/helpers/models.h"

#define FOLDER "tests/fixtures/speech/orpheus-tiny"
#define GGUF "tests/fixtures/speech/orpheus-gguf/model.gguf"

static const char long_text[] = "The first sentence is here, and it is not short at all, because it goes on and on until it ends. "
                                "Dr. Smith <laugh> says so too! Then there is a third one; it is the longest of them, for it has to fill "
                                "the second of the pieces. Is this the end? No. This is.";

// ---- a caller that keeps samples

struct speaker {
    struct ticket ticket;
    atomic_bool done;
    struct buf sound;
    struct usage usage;
    err error;
    bool started, wrong;
    struct engine *cancel_on;
    int cancel_at, events;
};

// The tiny model would end too soon: its end token is <custom_token_2>.
static const struct logit_bias reluctant = {.id = 269, .bias = -4};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;

static void on_event(struct task *t, const struct event *ev)
{
    struct speaker *s = t->ud;
    if (s->cancel_on && s->events++ == s->cancel_at)
        engine_cancel(s->cancel_on, s->ticket);
    s->wrong |= ev->kind == EVENT_START ? s->started : ev->kind == EVENT_AUDIO && !s->started;
    s->started |= ev->kind == EVENT_START;
    if (ev->kind == EVENT_AUDIO)
        buf_add(&s->sound, ev->values, ev->nvalues * sizeof *ev->values);
    if (ev->kind != EVENT_END)
        return;
    s->usage = ev->usage;
    s->error = ev->error;
    pthread_mutex_lock(&lock);
    atomic_store(&s->done, true);
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&lock);
}

static err_code try_speak(struct speaker *s, struct engine *en, const char *text, const char *voice, int max_tokens, err *e)
{
    struct task *t = task_new(TASK_SPEAK);
    *s = (struct speaker){.cancel_on = s->cancel_on, .cancel_at = s->cancel_at};
    buf_init(&s->sound, SIZE_MAX);
    t->model = "m";
    t->speak.text = text;
    t->speak.len = strlen(text);
    t->speak.voice = voice;
    t->speak.max_tokens = max_tokens;
    t->speak.sampling.seed = 17;
    t->speak.sampling.bias = &reluctant;
    t->speak.sampling.nbias = 1;
    t->on_event = on_event;
    t->ud = s;
    if (engine_submit(en, t, &s->ticket, e)) {
        task_free(t);
        return e->code;
    }
    return ERR_OK;
}

static void speak(struct speaker *s, struct engine *en, const char *text, const char *voice)
{
    err e = {0};
    if (try_speak(s, en, text, voice, 60, &e))
        fail_msg("%s", e.text);
}

static void wait_for(struct speaker *s)
{
    pthread_mutex_lock(&lock);
    while (!atomic_load(&s->done))
        pthread_cond_wait(&ended, &lock);
    pthread_mutex_unlock(&lock);
    assert_false(s->wrong);
}

static struct engine *open_engine(int threads, const char *isa, size_t kv_bytes)
{
    struct engine_config c = {.threads = threads, .isa = isa, .kv_bytes = kv_bytes, .max_running = 12, .max_waiting = 64};
    struct model_config m = {.name = "m", .path = FOLDER};
    return engines_open(&c, &m);
}

// ---- against the reference

static void check_ids(const char *line, const char *head, json_t *want)
{
    json_t *v;
    size_t i;
    assert_int_equal(strncmp(line, head, strlen(head)), 0);
    line += strlen(head);
    json_array_foreach(want, i, v) {
        char *end;
        long id = strtol(line, &end, 10);
        if (end == line || id != json_integer_value(v))
            fail_msg("%s number %zu is %ld, expected %lld", head, i, id, (long long)json_integer_value(v));
        line = end;
    }
    assert_int_equal(*line, '\n');
}

static double check_case(const char *path, json_t *c, const float *want, size_t samples)
{
    struct tools_model m = {.path = path, .vocoder = FOLDER "/snac", .activations = "f32", .kv = "f32", .threads = 1};
    struct tools_speak s = {.text = json_string_value(json_object_get(c, "text")),
                            .voice = json_string_value(json_object_get(c, "voice")), .greedy = true, .max_tokens = 90};
    char *ids, *sound;
    size_t nids, nsound;
    err e = {0};
    FILE *tokens = open_memstream(&ids, &nids), *out = open_memstream(&sound, &nsound);
    err_code code = tools_speech_speak(&m, &s, tokens, out, &e);
    fclose(tokens);
    fclose(out);
    if (code)
        fail_msg("%s: %s", s.text, e.text);
    check_ids(ids, "prompt:", json_object_get(c, "prompt"));
    check_ids(strchr(ids, '\n') + 1, "tokens:", json_object_get(c, "tokens"));
    assert_int_equal(nsound, samples * sizeof(float));
    double worst = 0;
    const float *got = (const float *)(const void *)sound;
    for (size_t i = 0; i < samples; i++) {
        double d = fabs((double)got[i] - (double)want[i]);
        worst = d > worst || isnan(d) ? d : worst;
    }
    free(ids);
    free(sound);
    return worst;
}

// The checkpoint as safetensors and as GGUF.
static void check_reference(const char *path)
{
    json_t *j = json_load_file(FOLDER "/expected.json", 0, NULL), *c;
    char *want;
    size_t len, i, at = 0;
    double worst = 0;
    err e = {0};
    if (file_read(FOLDER "/expected.f32", 1 << 24, &want, &len, &e))
        fail_msg("%s", e.text);
    json_array_foreach(json_object_get(j, "cases"), i, c) {
        size_t samples = (size_t)json_integer_value(json_object_get(c, "samples"));
        double d = check_case(path, c, (const float *)(const void *)want + at, samples);
        worst = d > worst || isnan(d) ? d : worst;
        at += samples;
    }
    assert_int_equal(at * sizeof(float), len);
    assert_true(i > 5);
    print_message("%s: largest difference of a sample %.1e\n", path, worst);
    assert_true(worst <= 1e-5);
    json_decref(j);
    free(want);
}

static void test_agrees_with_the_reference(void **state)
{
    (void)state;
    check_reference(FOLDER);
    check_reference(GGUF);
}

// ---- the same bits whatever else runs

static struct buf alone(const char *text, const char *voice)
{
    struct engine *en = open_engine(1, NULL, 16 << 20);
    struct speaker s = {0};
    speak(&s, en, text, voice);
    wait_for(&s);
    if (s.error.code)
        fail_msg("%s", s.error.text);
    assert_true(s.sound.len > 0 && s.sound.len % (96 * sizeof(float)) == 0);
    assert_true(s.usage.prompt_tokens > 10 && s.usage.completion_tokens > 10);
    engine_close(en);
    return s.sound;
}

static void same_sound(struct speaker *s, const struct buf *want)
{
    wait_for(s);
    if (s->error.code)
        fail_msg("%s", s->error.text);
    assert_int_equal(s->sound.len, want->len);
    assert_memory_equal(s->sound.data, want->data, want->len);
    buf_done(&s->sound);
}

// Three speeches, twice each, and two completions of the same model, all at once.
static uint64_t in_company(const struct buf *want, int threads, const char *isa, size_t kv_bytes)
{
    struct engine *en = open_engine(threads, isa, kv_bytes);
    struct speaker s[6] = {0};
    struct engine_stats stats;
    const char *const texts[] = {long_text, "Hi.", "two words"}, *const voices[] = {"tara", "leo", NULL};
    struct gate g;
    gate_close(&g, en, "m");
    for (int i = 0; i < 6; i++)
        speak(&s[i], en, texts[i % 3], voices[i % 3]);
    gate_prepared(en, "m");
    gate_open(&g);
    for (int i = 0; i < 6; i++)
        same_sound(&s[i], &want[i % 3]);
    assert_true(engine_check(en, true));
    engine_stats(en, &stats);
    assert_int_equal(stats.running, 0);
    engine_close(en);
    return stats.preempted;
}

static void test_company_changes_nothing(void **state)
{
    (void)state;
    struct buf want[] = {alone(long_text, "tara"), alone("Hi.", "leo"), alone("two words", NULL)};
    in_company(want, 1, NULL, 16 << 20);
    in_company(want, 2, NULL, 16 << 20);
    in_company(want, 1, "scalar", 16 << 20);
    err e = {0};
    if (!engine_check_isa("avx2", &e))
        in_company(want, 2, "avx2", 16 << 20);
    for (int i = 0; i < 3; i++)
        buf_done(&want[i]);
}

// Little KV memory: speeches wait for each other or lose their pages and go on.
static void test_little_memory(void **state)
{
    (void)state;
    struct buf want[] = {alone(long_text, "tara"), alone("Hi.", "leo"), alone("two words", NULL)};
    struct engine *en = open_engine(1, NULL, 16 << 20);
    struct model_info info;
    assert_true(engine_find_model(en, "m", &info));
    size_t page = info.kv_bytes_per_token * KV_PAGE_TOKENS;
    engine_close(en);
    uint64_t preempted = 0;
    for (size_t pages = 5; pages <= 12; pages++)
        preempted += in_company(want, 1, NULL, pages * page);
    print_message("preempted %d times\n", (int)preempted);
    assert_true(preempted > 0);
    for (int i = 0; i < 3; i++)
        buf_done(&want[i]);
}

static void test_chat_beside_speech(void **state)
{
    (void)state;
    struct buf want = alone(long_text, "tara");
    struct engine_config c = {.threads = 2, .kv_bytes = 16 << 20, .max_running = 12, .max_waiting = 64};
    struct model_config m = {.name = "m", .path = FOLDER}, chat = {.name = "chat", .path = models_path("llama-f32")};
    struct engine *en;
    err e = {0};
    if (engine_open(&c, &en, &e) || engine_add_model(en, &m, &e) || engine_add_model(en, &chat, &e) ||
        engine_wait_model(en, "m", &e) || engine_wait_model(en, "chat", &e))
        fail_msg("%s", e.text);
    int32_t ids[] = {5, 6, 7, 8}, first[40];
    for (int round = 0; round < 2; round++) {
        struct speaker s[2] = {0};
        struct client k = {0};
        struct task *t = client_task("chat", ids, 4);
        t->generate.max_tokens = 40;
        t->generate.ignore_eos = true;
        t->generate.logprobs = 0;
        t->generate.sampling.seed = 3;
        for (int i = 0; i < 2 * round; i++)
            speak(&s[i], en, long_text, "tara");
        assert_true(client_submit(&k, en, t, &e));
        client_wait(&k);
        assert_int_equal(k.error.code, ERR_OK);
        assert_int_equal(k.nids[0], 40);
        if (round == 0)
            memcpy(first, k.ids[0], sizeof first);
        assert_memory_equal(first, k.ids[0], sizeof first);
        client_done(&k);
        for (int i = 0; i < 2 * round; i++)
            same_sound(&s[i], &want);
    }
    engine_close(en);
    buf_done(&want);
}

static void test_cancel_at_any_event(void **state)
{
    (void)state;
    struct engine *en = open_engine(2, NULL, 16 << 20);
    struct engine_stats stats;
    int cancelled = 0;
    for (int at = 0; at < 200; at++) {
        struct speaker s = {.cancel_on = en, .cancel_at = at};
        speak(&s, en, long_text, "tara");
        wait_for(&s);
        buf_done(&s.sound);
        if (s.error.code == ERR_OK)
            break;
        assert_int_equal(s.error.code, ERR_CANCELLED);
        cancelled++;
    }
    assert_true(cancelled > 3 && cancelled < 200);
    assert_true(engine_check(en, true));
    engine_stats(en, &stats);
    assert_int_equal(stats.running + stats.waiting, 0);
    engine_close(en);
}

// ---- what is refused

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *voice, *param;
    } cases[] = {{"", NULL, "input"}, {"   ", NULL, "input"}, {" \n\t ", "tara", "input"}, {"Hi", "nobody", "voice"},
                 {"Hi", "", "voice"}, {"Hi", "TARA", "voice"}, {"Hi", "../tara", "voice"}};
    struct engine *en = open_engine(1, NULL, 16 << 20);
    struct speaker s = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        err e = {0};
        if (try_speak(&s, en, cases[i].text, cases[i].voice, 0, &e) == ERR_OK) {
            wait_for(&s);
            e = s.error;
        }
        assert_int_equal(e.code, ERR_INVALID);
        assert_string_equal(e.param, cases[i].param);
        assert_true(strcmp(e.param, "voice") || strstr(e.text, "tara, leah, jess, leo, dan, mia, zac and zoe"));
        buf_done(&s.sound);
    }
    engine_close(en);
}

// TTS-03: too few tokens for any sound are refused, not an empty success. TTS-01: one frame is enough for sound.
static void test_no_audio(void **state)
{
    (void)state;
    struct engine *en = open_engine(1, NULL, 16 << 20);
    for (int tokens = 5; tokens <= 28; tokens += 1) {
        struct speaker s = {0};
        err e = {0};
        err_code refused = try_speak(&s, en, "three", "jess", tokens, &e);
        assert_int_equal(refused, tokens < 7 ? ERR_INVALID : ERR_OK);
        assert_string_equal(e.param, refused ? "max_tokens" : "");
        if (!refused)
            wait_for(&s);
        if (!refused && s.usage.completion_tokens == tokens) {  // not ended by the model
            assert_int_equal(s.error.code, ERR_OK);
            assert_int_equal(s.sound.len, (size_t)(tokens / 7) * 96 * sizeof(float));
        }
        buf_done(&s.sound);
    }
    engine_close(en);
}

// ---- which checkpoints are Orpheus

static void check_family(const char *path, const char *vocoder, const char *want, const char *error)
{
    struct model_options o = {.math = MAT_INT8, .kv = KV_F16, .load_threads = 1, .vocoder = vocoder};
    const struct cpu_ops *ops;
    struct model *m;
    err e = {0};
    assert_int_equal(cpu_select(NULL, &ops, &e), ERR_OK);
    if (model_open(path, &o, ops, &m, &e)) {
        if (!error || !strstr(e.text, error))
            fail_msg("%s: %s", path, e.text);
        return;
    }
    assert_null(error);
    assert_string_equal(m->family->name, want);
    assert_int_equal(model_can(m), strcmp(want, "orpheus") ? model_can(m) & ~(unsigned)CAN_SPEAK : CAN_SPEAK);
    model_close(m);
}

static void test_families(void **state)
{
    (void)state;
    check_family(FOLDER, NULL, "orpheus", NULL);
    check_family(FOLDER, FOLDER "/snac", "orpheus", NULL);
    check_family(models_path("llama-f32"), FOLDER "/snac", "llama", NULL);  // none of its tokens are codes
    check_family(FOLDER "/model.safetensors", NULL, "orpheus", NULL);
    check_family(GGUF, FOLDER "/snac", "orpheus", NULL);
    check_family(GGUF, NULL, "llama", NULL);
    check_family(FOLDER, "tests/fixtures/speech/snac-bare", NULL, "levels");
    check_family(FOLDER, "tests/fixtures/speech/nowhere", NULL, "vocoder");
}

static void test_info(void **state)
{
    (void)state;
    struct engine *en = open_engine(1, NULL, 16 << 20);
    struct model_info info;
    assert_true(engine_find_model(en, "m", &info));
    assert_int_equal(info.can, CAN_SPEAK);
    assert_int_equal(info.sample_rate, 24000);
    assert_int_equal(info.nvoices, 8);
    assert_string_equal(info.voices[0], "tara");
    assert_string_equal(info.voices[7], "zoe");
    engine_close(en);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agrees_with_the_reference), cmocka_unit_test(test_company_changes_nothing),
        cmocka_unit_test(test_little_memory),             cmocka_unit_test(test_chat_beside_speech),
        cmocka_unit_test(test_cancel_at_any_event),       cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_audio),                  cmocka_unit_test(test_families),
        cmocka_unit_test(test_info),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
