#include "tests/helpers/speech.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/mem.h"
#include "engine/family/family.h"
#include "engine/model.h"
#include "engine/sched/session.h"
#include "kernels/team.h"

void speech_load(const char *name, struct speech *ret)
{
    char file[192];
    snprintf(ret->path, sizeof ret->path, "tests/fixtures/whisper/%s", name);
    snprintf(file, sizeof file, "%s/expected.json", ret->path);
    ret->expected = json_load_file(file, 0, NULL);
    assert_non_null(ret->expected);
}

void speech_free(struct speech *s)
{
    json_decref(s->expected);
}

// ---- audio

static int64_t number(const json_t *part, size_t i)
{
    return json_integer_value(json_array_get(part, i));
}

static void add_part(const json_t *part, int64_t *out)
{
    bool tone = !strcmp(json_string_value(json_array_get(part, 0)), "tone");
    int64_t start = number(part, 1), length = number(part, 2), amp = number(part, 3), a = number(part, 4);
    int64_t b = number(part, 5);
    uint32_t phase = 0, x = (uint32_t)a;
    for (int64_t i = 0; i < length; i++) {
        int64_t d = (b - a) * i, step = d / length - (d % length < 0);  // rounded down
        phase += (uint32_t)(a + step);
        x = x * 1664525 + 1013904223;
        int64_t wave = tone ? llabs(2 * (int64_t)(phase >> 16) - 65536) - 32768 : (int64_t)(x >> 16) - 32768;
        out[start + i] += (wave * amp) >> 15;
    }
}

float *speech_samples(const struct speech *s, int clip, size_t *ret_n)
{
    const json_t *c = json_array_get(json_object_get(s->expected, "clips"), (size_t)clip), *part;
    size_t n = (size_t)json_integer_value(json_object_get(c, "samples")), i;
    int64_t *sum = calloc(n, sizeof *sum);
    float *out = calloc(n, sizeof *out);
    assert_true(n > 0 && sum && out);
    json_array_foreach(json_object_get(c, "parts"), i, part)
        add_part(part, sum);
    for (i = 0; i < n; i++)
        out[i] = (float)(sum[i] < -32768 ? -32768 : sum[i] > 32767 ? 32767 : sum[i]) / 32768;
    free(sum);
    *ret_n = n;
    return out;
}

void speech_ask(const struct json_t *c, const float *samples, size_t n, struct transcribe *ret_ask)
{
    *ret_ask = (struct transcribe){
        .samples = samples, .nsamples = n, .language = json_string_value(json_object_get(c, "language")),
        .translate = !strcmp(json_string_value(json_object_get(c, "task")), "translate"),
        .timestamps = json_is_true(json_object_get(c, "timestamps")),
        .prompt = json_string_value(json_object_get(c, "prompt")),
    };
}

// ---- running

struct model *speech_open(const char *path, const char *isa, const char *activations)
{
    struct model_options o = {.math = activations && !strcmp(activations, "f32") ? MAT_F32 : MAT_INT8, .kv = KV_F16};
    const struct cpu_ops *ops;
    struct model *m;
    err e = {0};
    if (cpu_select(isa, &ops, &e) || model_open(path, &o, ops, &m, &e))
        fail_msg("%s: %s", path, e.text);
    return m;
}

static void on_event(struct task *t, const struct event *ev)
{
    struct buf *out = t->ud;
    buf_printf(out, "%d %.*s ", ev->kind, (int)ev->len, ev->text ? ev->text : "");
    const struct segment *g = ev->segment;
    if (!g)
        return;
    buf_printf(out, "%d %d %a %a %a %a %a ", g->id, g->seek, g->start, g->end, (double)g->avg_logprob,
               (double)g->no_speech_prob, (double)g->compression_ratio);
    buf_add(out, g->text, g->len);
    buf_add(out, g->ids, (size_t)g->nids * sizeof *g->ids);
}

struct stepping {
    const struct work_ops *ops;
    struct work *work;
};

static void step(struct lane *lane, void *arg)
{
    struct stepping *s = arg;
    s->ops->step(s->work, lane);
}

static err_code run(struct session *s, struct team *team, enum speech_cut cut, int stop_after, int *steps, err *e)
{
    const struct work_ops *ops = s->model->family->transcribe;
    struct stepping run = {ops, s->work};
    err_code code = ops->begin(s->work, e);
    enum work_next next = code ? WORK_FAIL : ops->after(s->work, s, e);
    for (*steps = 0; next == WORK_MORE && *steps != stop_after; (*steps)++) {
        bool end = cut == SPEECH_PARTS || (cut == SPEECH_UNEVEN && *steps % 3 == 0);
        s->work->slice_ns = end ? 0 : INT64_MAX;
        team_run(team, step, &run);
        next = ops->after(s->work, s, e);
    }
    return e->code;
}

int speech_run(const struct model *m, struct team *team, const struct transcribe *ask, enum speech_cut cut,
               int stop_after, struct buf *out, err *ret_error)
{
    const struct work_ops *ops = m->family->transcribe;
    struct task *t = task_new(TASK_TRANSCRIBE);
    t->transcribe = *ask;
    t->on_event = on_event;
    t->ud = out;
    struct session s = {.task = t, .model = m};
    int steps = 0;
    *ret_error = (err){0};
    if (!ops->prepare(m, t, &s.work, &s.prompt_tokens, ret_error)) {
        size_t bytes = ops->scratch_bytes(m, team_size(team));
        s.work->scratch = mem_try_pages(bytes);
        assert_non_null(s.work->scratch);
        run(&s, team, cut, stop_after, &steps, ret_error);
        mem_free_pages(s.work->scratch, bytes);
        ops->free(s.work);
    }
    task_free(t);
    return steps;
}
