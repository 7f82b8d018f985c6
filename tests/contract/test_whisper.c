// Whisper: numbers and transcripts against transformers and openai-whisper, and the exactness rule: the same bits for any
// number of lanes, instruction set, cut into steps and company; nothing is left behind wherever it stops.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/audio/whisper_work.h"
#include "engine/model.h"
#include "engine/tools.h"
#include "kernels/team.h"
#include "tests/helpers/client.h"
#include "tests/helpers/engines.h"
#include "tests/helpers/speech.h"

static const char *const names[] = {"multi", "english"};
enum { MODELS = 2 };

// ---- numbers

struct numbers {
    int mels, hidden, vocab, nids, nrows;
    int32_t ids[64];
    float *features, *encoder, *logits;  // [mels, 3000], [1500, hidden], [nids, vocab]
};

static float *read_all(FILE *f, size_t n)
{
    float *x = calloc(n, sizeof *x);
    rewind(f);
    assert_int_equal(fread(x, sizeof *x, n, f), n);
    fclose(f);
    return x;
}

static void compute(const struct speech *s, const char *isa, int threads, struct numbers *x)
{
    json_t *j = json_object_get(s->expected, "numbers"), *ids = json_object_get(j, "ids");
    struct tools_model t = {.path = s->path, .isa = isa, .threads = threads};
    struct model *m = speech_open(s->path, NULL, NULL);
    err e = {0};
    size_t n;
    double seconds;
    x->hidden = m->hidden;
    x->vocab = m->vocab;
    model_close(m);
    x->nids = (int)json_array_size(ids);
    for (int i = 0; i < x->nids; i++)
        x->ids[i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
    float *samples = speech_samples(s, (int)json_integer_value(json_object_get(j, "clip")), &n);
    FILE *mel = tmpfile(), *encoder = tmpfile(), *logits = tmpfile();
    if (tools_audio_mel(&t, samples, n, mel, &e))
        fail_msg("%s", e.text);
    x->features = read_all(mel, (size_t)x->mels * 3000);
    struct tools_whisper q = {.features = x->features, .nfeatures = (size_t)x->mels * 3000, .ids = x->ids,
                              .nids = (size_t)x->nids};
    if (tools_audio_logits(&t, &q, encoder, logits, &seconds, &e))
        fail_msg("%s", e.text);
    x->encoder = read_all(encoder, (size_t)x->hidden * 1500);
    x->logits = read_all(logits, (size_t)(x->nids * x->vocab));
    free(samples);
}

static void forget(struct numbers *x)
{
    free(x->features);
    free(x->encoder);
    free(x->logits);
}

static double distance(FILE *f, const float *x, size_t n)
{
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        float want;
        assert_int_equal(fread(&want, sizeof want, 1, f), 1);
        worst = fmax(worst, fabs((double)(x[i] - want)));
    }
    return worst;
}

static void check_numbers(const struct speech *s, const struct numbers *x)
{
    json_t *j = json_object_get(s->expected, "numbers"), *rows = json_object_get(j, "rows"), *r;
    char file[192];
    size_t i;
    snprintf(file, sizeof file, "%s/expected.bin", s->path);
    FILE *f = fopen(file, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)(json_array_size(json_object_get(j, "frames")) * (size_t)x->mels * sizeof(float)),
                           SEEK_SET), 0);
    double encoder = 0;
    json_array_foreach(rows, i, r)
        encoder = fmax(encoder, distance(f, x->encoder + (size_t)json_integer_value(r) * (size_t)x->hidden,
                                         (size_t)x->hidden));
    double logits = distance(f, x->logits, (size_t)(x->nids * x->vocab));
    assert_int_equal(fgetc(f), EOF);
    fclose(f);
    if (!(encoder <= 1e-4) || !(logits <= 1e-4))  // observed 2.1e-6 and 1.7e-5
        fail_msg("%s: the encoder differs by %g, logits by %g", s->path, encoder, logits);
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *isa;
        int threads;
    } ways[] = {{"auto", 1}, {"auto", 2}, {"avx2", 2}, {"scalar", 1}};
    for (int k = 0; k < MODELS; k++) {
        struct numbers first = {.mels = k ? 128 : 80};
        struct speech s;
        speech_load(names[k], &s);
        compute(&s, ways[0].isa, ways[0].threads, &first);
        check_numbers(&s, &first);
        for (size_t i = 1; i < sizeof ways / sizeof *ways; i++) {
            struct numbers x = {.mels = first.mels};
            if (engine_check_isa(ways[i].isa, NULL))
                continue;  // this machine does not run it
            compute(&s, ways[i].isa, ways[i].threads, &x);
            assert_memory_equal(first.features, x.features, (size_t)x.mels * 3000 * sizeof(float));
            assert_memory_equal(first.encoder, x.encoder, (size_t)x.hidden * 1500 * sizeof(float));
            assert_memory_equal(first.logits, x.logits, (size_t)(x.nids * x.vocab) * sizeof(float));
            forget(&x);
        }
        forget(&first);
        speech_free(&s);
    }
}

// ---- transcripts, through the engine

static struct engine *open_engine(const struct speech *s)
{
    struct engine_config c = {.threads = 2, .kv_bytes = 1 << 20, .max_running = 4, .max_waiting = 16};
    struct model_config m = {.name = "m", .path = s->path};
    return engines_open(&c, &m);
}

struct transcript {
    const json_t *c;  // what is expected
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool over;
    int languages, segments;
    char wrong[512];
    err error;
    struct usage usage;
};

static void check_segment(struct transcript *t, const struct segment *g)
{
    const json_t *want = json_array_get(json_object_get(t->c, "segments"), (size_t)t->segments++);
    const json_t *ids = json_object_get(want, "tokens");
    const char *text = json_string_value(json_object_get(want, "text"));
    bool same = want && json_array_size(ids) == (size_t)g->nids && strlen(text) == g->len &&
                !memcmp(text, g->text, g->len) && g->id == t->segments - 1;
    for (int i = 0; same && i < g->nids; i++)
        same = json_integer_value(json_array_get(ids, (size_t)i)) == g->ids[i];
    struct {
        const char *key;
        double got, tolerance;
    } numbers[] = {{"seek", g->seek, 0}, {"start", g->start, 1e-9}, {"end", g->end, 1e-9},
                   {"avg_logprob", (double)g->avg_logprob, 1e-5},         // observed 9e-7
                   {"no_speech_prob", (double)g->no_speech_prob, 1e-5},  // observed 1e-6
                   {"ratio", (double)g->compression_ratio, 1e-4}};        // observed 5e-5
    for (size_t i = 0; same && i < sizeof numbers / sizeof *numbers; i++)
        same = fabs(json_number_value(json_object_get(want, numbers[i].key)) - numbers[i].got) <= numbers[i].tolerance;
    if (!same && !t->wrong[0]) {
        char *expected = want ? json_dumps(want, JSON_COMPACT) : NULL;
        snprintf(t->wrong, sizeof t->wrong, "segment %d is %g-%g '%.*s' (%g %g %g), expected %s", t->segments - 1, g->start,
                 g->end, (int)g->len, g->text, (double)g->avg_logprob, (double)g->no_speech_prob,
                 (double)g->compression_ratio, expected ? expected : "none");
        free(expected);
    }
}

static void on_event(struct task *task, const struct event *ev)
{
    struct transcript *t = task->ud;
    if (ev->kind == EVENT_LANGUAGE) {
        t->languages++;
        if (strcmp(ev->text, json_string_value(json_object_get(t->c, "found"))) != 0)
            snprintf(t->wrong, sizeof t->wrong, "language %s", ev->text);
    } else if (ev->kind == EVENT_SEGMENT) {
        check_segment(t, ev->segment);
    } else if (ev->kind == EVENT_END) {
        t->error = ev->error;
        t->usage = ev->usage;
        pthread_mutex_lock(&t->lock);
        t->over = true;
        pthread_cond_signal(&t->ended);
        pthread_mutex_unlock(&t->lock);
    }
}

static void run_case(struct engine *en, const struct speech *s, const json_t *c)
{
    struct transcript t = {.c = c, .lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};
    struct task *task = task_new(TASK_TRANSCRIBE);
    struct ticket ticket;
    err e = {0};
    size_t n;
    int clip = (int)json_integer_value(json_object_get(c, "clip"));
    float *samples = speech_samples(s, clip, &n);
    task->model = "m";
    task->on_event = on_event;
    task->ud = &t;
    speech_ask(c, samples, n, &task->transcribe);
    if (engine_submit(en, task, &ticket, &e))
        fail_msg("%s", e.text);
    pthread_mutex_lock(&t.lock);
    while (!t.over)
        pthread_cond_wait(&t.ended, &t.lock);
    pthread_mutex_unlock(&t.lock);
    free(samples);
    if (t.error.code || t.wrong[0])
        fail_msg("%s, clip %d: %s%s", s->path, clip, t.error.text, t.wrong);
    assert_int_equal(t.languages, 1);
    assert_int_equal(t.segments, json_array_size(json_object_get(c, "segments")));
    assert_true(t.usage.completion_tokens > 0 && t.usage.prompt_tokens >= (int)(n / 320));
}

static void test_transcripts(void **state)
{
    (void)state;
    for (int k = 0; k < MODELS; k++) {
        struct speech s;
        size_t i;
        json_t *c;
        speech_load(names[k], &s);
        struct engine *en = open_engine(&s);
        json_array_foreach(json_object_get(s.expected, "cases"), i, c)
            run_case(en, &s, c);
        engine_close(en);
        speech_free(&s);
    }
}

static struct task *task_of(const struct transcribe *ask)
{
    struct task *t = task_new(TASK_TRANSCRIBE);
    t->model = "m";
    t->transcribe = *ask;
    return t;
}

static void submit(struct client *c, struct engine *en, const struct transcribe *ask)
{
    client_must_submit(c, en, task_of(ask));
}

// Several at once, of different kinds: each answers as it does alone, and after them the first one again.
static void test_company(void **state)
{
    (void)state;
    enum { TASKS = 5 };
    struct speech s;
    struct client alone[TASKS] = {0}, amid[TASKS + 1] = {0};
    struct transcribe asks[TASKS];
    float *samples[TASKS];
    size_t n;
    speech_load("multi", &s);
    struct engine *en = open_engine(&s);
    for (int i = 0; i < TASKS; i++) {
        samples[i] = speech_samples(&s, i == 3 ? 3 : 1 + i % 2, &n);
        speech_ask(json_array_get(json_object_get(s.expected, "cases"), (size_t)i), samples[i], n, &asks[i]);
        asks[i].temperature = i == 2 ? 0.7f : 0;
        asks[i].seed = 12;
        submit(&alone[i], en, &asks[i]);
        client_wait(&alone[i]);
    }
    for (int i = 0; i < TASKS + 1; i++)
        submit(&amid[i], en, &asks[i % TASKS]);
    for (int i = 0; i < TASKS + 1; i++) {
        const struct client *a = &alone[i % TASKS];
        client_wait(&amid[i]);
        assert_false(amid[i].wrong || amid[i].error.code);
        assert_int_equal(a->blob.len, amid[i].blob.len);
        assert_memory_equal(a->blob.data, amid[i].blob.data, a->blob.len);
    }
    for (int i = 0; i < TASKS; i++)
        client_done(&alone[i]);
    for (int i = 0; i < TASKS + 1; i++)
        client_done(&amid[i]);
    for (int i = 0; i < TASKS; i++)
        free(samples[i]);
    assert_true(engine_check(en, true));
    engine_close(en);
    speech_free(&s);
}

// ---- steps

static struct team *open_team(int threads)
{
    struct team *team;
    err e = {0};
    if (team_open(threads, false, &team, &e))
        fail_msg("%s", e.text);
    return team;
}

// The same transcript, cut and computed in `ways` ways.
static void check_cuts(const struct speech *s, int clip, int number, int ways)
{
    static const char *const isas[] = {"auto", "avx2", "scalar"};
    struct buf first, again;
    struct transcribe ask;
    err e;
    size_t n;
    int steps = 0;
    float *samples = speech_samples(s, clip, &n);
    speech_ask(json_array_get(json_object_get(s->expected, "cases"), (size_t)number), samples, n, &ask);
    buf_init(&first, 1 << 20);
    for (int way = 0; way < ways; way++) {
        if (engine_check_isa(isas[way / 3], NULL))
            continue;  // this machine does not run it
        struct team *team = open_team(1 + way % 2);
        struct model *m = speech_open(s->path, isas[way / 3], NULL);
        buf_init(&again, 1 << 20);
        steps = speech_run(m, team, &ask, (enum speech_cut)(way % 3), -1, way ? &again : &first, &e);
        assert_int_equal(e.code, ERR_OK);
        if (way) {
            assert_int_equal(first.len, again.len);
            assert_memory_equal(first.data, again.data, first.len);
        }
        buf_done(&again);
        model_close(m);
        team_close(team);
    }
    assert_true(steps > 20 && first.len > 100);
    buf_done(&first);
    free(samples);
}

static void test_any_cut(void **state)
{
    (void)state;
    struct speech s;
    speech_load("multi", &s);
    check_cuts(&s, 3, 9, 3);
    check_cuts(&s, 1, 3, 7);
    speech_free(&s);
}

// Ended after every step in turn; the sanitizers see what is left.
static void test_stop_anywhere(void **state)
{
    (void)state;
    struct speech s;
    struct buf out;
    struct transcribe ask;
    err e;
    size_t n;
    speech_load("english", &s);
    float *samples = speech_samples(&s, 2, &n);
    speech_ask(json_array_get(json_object_get(s.expected, "cases"), 6), samples, n, &ask);
    struct team *team = open_team(2);
    struct model *m = speech_open(s.path, NULL, NULL);
    buf_init(&out, 1 << 20);
    int steps = speech_run(m, team, &ask, SPEECH_PARTS, -1, &out, &e);
    assert_true(steps > 30);
    for (int at = 0; at < steps; at += at < 20 ? 1 : 5) {
        buf_clear(&out);
        assert_int_equal(speech_run(m, team, &ask, SPEECH_PARTS, at, &out, &e), at);
    }
    buf_done(&out);
    model_close(m);
    team_close(team);
    free(samples);
    speech_free(&s);
}

// Cancelled through the engine, at the first event and while it runs.
static void test_cancel(void **state)
{
    (void)state;
    struct speech s;
    struct transcribe ask;
    size_t n;
    speech_load("multi", &s);
    struct engine *en = open_engine(&s);
    float *samples = speech_samples(&s, 4, &n);
    speech_ask(json_array_get(json_object_get(s.expected, "cases"), 12), samples, n, &ask);
    for (int at = 0; at < 4; at++) {
        struct client c = {.cancel_on = en, .cancel_at = at};
        submit(&c, en, &ask);
        client_wait(&c);
        assert_int_equal(c.error.code, ERR_CANCELLED);
        client_done(&c);
    }
    assert_true(engine_check(en, true));
    engine_close(en);
    free(samples);
    speech_free(&s);
}

// ---- ends of the range

struct odd {
    const char *model;
    struct transcribe ask;
    err_code code;
    const char *param;
};

static void test_refusals(void **state)
{
    (void)state;
    static float fine[16000], nan[16000], huge[16000];
    nan[15999] = NAN;
    huge[3] = 1e30f;
    const struct odd all[] = {
        {"english", {.samples = fine, .nsamples = 16000, .language = "de"}, ERR_INVALID, "language"},
        {"english", {.samples = fine, .nsamples = 16000, .translate = true}, ERR_UNSUPPORTED, "model"},
        {"multi", {.samples = fine, .nsamples = 16000, .language = "yue"}, ERR_INVALID, "language"},
        {"multi", {.samples = fine, .nsamples = 16000, .language = "klingon"}, ERR_INVALID, "language"},
        {"multi", {.samples = fine, .nsamples = 16000, .temperature = -1}, ERR_INVALID, "temperature"},
        {"multi", {.samples = fine, .nsamples = 16000, .temperature = NAN}, ERR_INVALID, "temperature"},
        {"multi", {.samples = nan, .nsamples = 16000}, ERR_INVALID, "file"},
        {"multi", {.samples = huge, .nsamples = 16000}, ERR_INVALID, "file"},
    };
    struct team *team = open_team(1);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct speech s;
        struct buf out;
        err e;
        speech_load(all[i].model, &s);
        struct model *m = speech_open(s.path, NULL, NULL);
        buf_init(&out, 1 << 16);
        speech_run(m, team, &all[i].ask, SPEECH_WHOLE, -1, &out, &e);
        assert_int_equal(e.code, all[i].code);
        assert_string_equal(e.param, all[i].param);
        assert_int_equal(out.len, 0);
        buf_done(&out);
        model_close(m);
        speech_free(&s);
    }
    team_close(team);
}

// Nothing said: a language, no segment, no error.
static void test_nothing(void **state)
{
    (void)state;
    static float silence[45 * 16000], click[800];
    click[0] = 0.5f;
    const struct transcribe all[] = {
        {.samples = silence, .nsamples = 0, .timestamps = true}, {.samples = silence, .nsamples = 1},
        {.samples = click, .nsamples = 1, .language = "en"}, {.samples = click, .nsamples = 800, .timestamps = true},
        {.samples = silence, .nsamples = 16000, .language = "en", .prompt = "the stone"},
        {.samples = silence, .nsamples = 45 * 16000, .timestamps = true},
    };
    struct team *team = open_team(2);
    for (int k = 0; k < MODELS; k++) {
        struct speech s;
        speech_load(names[k], &s);
        struct model *m = speech_open(s.path, NULL, NULL);
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            struct buf out;
            err e;
            buf_init(&out, 1 << 16);
            speech_run(m, team, &all[i], SPEECH_WHOLE, -1, &out, &e);
            assert_int_equal(e.code, ERR_OK);
            assert_true(out.len >= 5 && out.len <= 8);  // "<kind> <code> ", once
            buf_done(&out);
        }
        model_close(m);
        speech_free(&s);
    }
    team_close(team);
}

// The same seed says the same, another one something else, and prompts matter however long they are.
static void test_sampling_and_prompt(void **state)
{
    (void)state;
    struct speech s;
    struct transcribe ask;
    struct buf out[5];
    static char long_prompt[60000];
    size_t n;
    err e;
    for (size_t i = 0; i + 13 < sizeof long_prompt; i += 13)
        memcpy(long_prompt + i, " river <|en|>", 13);
    speech_load("multi", &s);
    float *samples = speech_samples(&s, 1, &n);
    speech_ask(json_array_get(json_object_get(s.expected, "cases"), 3), samples, n, &ask);
    struct team *team = open_team(2);
    struct model *m = speech_open(s.path, NULL, NULL);
    ask.temperature = 1;
    for (int i = 0; i < 5; i++) {
        ask.seed = i == 2 ? 8 : 7;
        ask.temperature = i < 3 ? 1 : 0;
        ask.prompt = i < 3 ? NULL : i == 3 ? long_prompt : "stone";
        buf_init(&out[i], 1 << 20);
        speech_run(m, team, &ask, SPEECH_WHOLE, -1, &out[i], &e);
        assert_int_equal(e.code, ERR_OK);
    }
    assert_true(out[0].len == out[1].len && !memcmp(out[0].data, out[1].data, out[0].len));
    assert_true(out[0].len != out[2].len || memcmp(out[0].data, out[2].data, out[0].len) != 0);
    assert_true(out[3].len != out[4].len || memcmp(out[3].data, out[4].data, out[3].len) != 0);
    for (int i = 0; i < 5; i++)
        buf_done(&out[i]);
    model_close(m);
    team_close(team);
    free(samples);
    speech_free(&s);
}

// With fallback a window that went wrong is tried again, warmer: the same for the same seed and on any number of lanes, and
// where nothing went wrong nothing changes. Noise and a high temperature are what makes this model err.
static void test_fallback(void **state)
{
    (void)state;
    enum { N = 16000 * 8 };
    struct speech s;
    speech_load("multi", &s);
    struct model *m = speech_open(s.path, NULL, NULL);
    float *samples = mem_new(N * sizeof *samples);
    int tried = 0;
    for (int level = 0; level < 8; level++) {
        struct transcribe ask = {.samples = samples, .nsamples = N, .timestamps = level % 2, .temperature = 0.8f,
                                  .seed = (uint64_t)level};
        struct buf out[3];
        int steps[3];
        err e;
        for (uint64_t i = 0; i < N; i++)
            samples[i] = (float)(rng_unit(9, i / (1 + (uint64_t)level * 7), 0) - 0.5) * 0.1f * (float)(level + 1);
        for (int k = 0; k < 3; k++) {
            struct team *team = open_team(k == 2 ? 1 : 2);
            ask.fallback = k > 0;
            buf_init(&out[k], 1 << 20);
            steps[k] = speech_run(m, team, &ask, SPEECH_WHOLE, -1, &out[k], &e);
            assert_int_equal(e.code, ERR_OK);
            team_close(team);
        }
        assert_true(out[1].len == out[2].len && !memcmp(out[1].data, out[2].data, out[1].len));
        assert_true(steps[1] >= steps[0]);
        if (steps[1] == steps[0])
            assert_true(out[0].len == out[1].len && !memcmp(out[0].data, out[1].data, out[0].len));
        tried += steps[1] > steps[0];
        for (int k = 0; k < 3; k++)
            buf_done(&out[k]);
    }
    assert_true(tried > 0);
    free(samples);
    model_close(m);
    speech_free(&s);
}

static void test_describe(void **state)
{
    (void)state;
    for (int k = 0; k < MODELS; k++) {
        struct speech s;
        speech_load(names[k], &s);
        struct model *m = speech_open(s.path, NULL, NULL);
        assert_int_equal(model_can(m), CAN_TRANSCRIBE);
        assert_int_equal(whisper_work_multilingual(m), k == 0);
        assert_int_equal(m->context, 448);
        model_close(m);
        speech_free(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_transcripts),
        cmocka_unit_test(test_company),
        cmocka_unit_test(test_any_cut),
        cmocka_unit_test(test_stop_anywhere),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_sampling_and_prompt),
        cmocka_unit_test(test_fallback), cmocka_unit_test(test_describe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
