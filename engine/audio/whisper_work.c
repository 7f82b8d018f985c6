// whisper_work.c - see whisper_work.h.
//
//   prep       tokens, suppressed ids, the audio's loudest moment (which all windows' features hang on)
//   begin ──▶ ENCODE ──────────▶ DECODE ──┬─▶ OVER
//               ▲  └─ language unknown: ──┤
//               │       DETECT ─▶ DECODE ─┤
//               └──── next window ◀───────┘
//
// ENCODE: log-mel of the window, then the encoder's parts until the slice is over. DETECT, DECODE: some rows of the
// prompt or one token a step; the choice of a token is made in `after`, on the scheduler thread. Memory does not grow
// with the audio: a window's features are computed when it is reached. The samples are the task's.
#include "engine/audio/whisper_work.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cancel.h"
#include "base/mem.h"
#include "base/rng.h"
#include "engine/audio/mel.h"
#include "engine/audio/whisper.h"
#include "engine/audio/whisper_net.h"
#include "engine/audio/whisper_rules.h"
#include "engine/audio/whisper_segments.h"
#include "engine/model.h"
#include "engine/sched/session.h"
#include "engine/task.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/weights/weights.h"

enum {
    LEAST_FRAMES = 10,        // a shorter rest is not decoded
    TEXT_MAX = 1 << 20,       // bytes of a window's text
    PROMPT_MAX = 1 << 20,     // bytes of a prompt that are read at all, from its end
    FIRST_TIME = 50,          // a window starts within its first second
};
static const float silence = 2.0f / 32768;  // no sample reaches two steps of 16 bits
static const float no_speech_limit = 0.6f, logprob_limit = -1, ratio_limit = 2.4f, warmer = 0.2f;
enum { ATTEMPTS = 6 };  // of a window: 0 to 1 by 0.2

enum phase { ENCODE, DETECT, DECODE, OVER };

struct whisper_work {
    struct work base;
    const struct whisper *w;
    const struct transcribe *ask;
    struct whisper_tokens tokens;
    struct whisper_rules rules;
    uint8_t *marks;
    int32_t *prompt;  // of the first window with speech
    int nprompt;
    int language;     // number in languages.h; -1: to be detected
    float peak;
    int frames;       // of the whole audio

    void *memory;
    struct whisper_net net;
    enum phase phase;
    bool probe;       // this window is only there to detect the language
    bool started;     // `after` was called
    bool have_mel, encoded;
    struct whisper_cursor cursor;
    int seek, size, window;
    int32_t *ids;     // the window's prompt and what was sampled
    int nids, nfirst, sot_at;
    int rows;         // of this step
    double logprob;
    float no_speech;
    int attempt;      // at this window, from 0
    int nsegments;
};

static struct whisper_work *of(struct work *w)
{
    return (struct whisper_work *)w;
}

bool whisper_work_multilingual(const struct model *m)
{
    struct whisper_tokens t;
    err e = {0};
    return !whisper_tokens_find(m, &t, &e) && t.multilingual;
}

static size_t longest(const struct whisper *w)  // ids of a window: one more than the context at most
{
    return (size_t)w->dims.context + 8;
}

// ---- check and prepare

static err_code check_language(const struct model *m, const struct whisper_tokens *t, const struct transcribe *ask,
                               err *e)
{
    if (!t->multilingual && ask->translate)
        return err_set_param(e, ERR_UNSUPPORTED, "model", "%s knows English only and does not translate", m->path);
    if (!ask->language)
        return ERR_OK;
    if (!t->multilingual && strcmp(ask->language, "en") != 0)
        return err_set_param(e, ERR_INVALID, "language", "language '%.20s', but the model knows English only",
                             ask->language);
    if (t->multilingual && whisper_tokens_language(t, ask->language) < 0)
        return err_set_param(e, ERR_INVALID, "language", "language '%.20s' is none the model knows", ask->language);
    return ERR_OK;
}

static err_code check(const struct model *m, const struct task *task, err *e)
{
    const struct transcribe *ask = &task->transcribe;
    struct whisper_tokens t;
    err_code code = whisper_tokens_find(m, &t, e);
    if (!code)
        code = check_language(m, &t, ask, e);
    if (code)
        return code;
    if (!(ask->temperature >= 0 && ask->temperature <= 1))
        return err_set_param(e, ERR_INVALID, "temperature", "temperature %g, expected 0 to 1",
                             (double)ask->temperature);
    if (ask->timestamps && t.times < 1)
        return err_set_param(e, ERR_UNSUPPORTED, "timestamps", "%s has no timestamp tokens", m->path);
    if (t.multilingual && (ask->translate ? t.translate : t.transcribe) == TOKEN_NONE)
        return err_set_param(e, ERR_UNSUPPORTED, "model", "%s has no token for %s", m->path,
                             ask->translate ? "translation" : "transcription");
    if (ask->nsamples / MEL_HOP > INT32_MAX / 4)
        return err_set_param(e, ERR_TOO_LARGE, "file", "%zu samples, at most %d hops of %d", ask->nsamples,
                             INT32_MAX / 4, MEL_HOP);
    return ERR_OK;
}

static err_code check_samples(struct whisper_work *w, err *e)
{
    const struct transcribe *ask = w->ask;
    for (size_t i = 0; i < ask->nsamples; i++)
        if (!isfinite(ask->samples[i]))
            return err_set_param(e, ERR_INVALID, "file", "sample %zu is not a finite number", i);
    w->peak = mel_peak(w->w->mel, ask->samples, ask->nsamples);
    if (cancel_check(0, e))
        return e->code;
    if (!isfinite(w->peak))
        return err_set_param(e, ERR_INVALID, "file", "the samples are far too large, expected -1 to 1");
    w->frames = (int)mel_frames(ask->nsamples);
    return ERR_OK;
}

// The last tokens of the prompt, as many as half the context takes. What looks like a special token in it is text.
static err_code read_prompt(struct whisper_work *w, err *e)
{
    size_t n = 0;
    const char *text = w->ask->prompt ? whisper_segments_strip(w->ask->prompt, strlen(w->ask->prompt), &n) : NULL;
    if (n == 0)
        return ERR_OK;
    if (w->tokens.start_of_prev == TOKEN_NONE)
        return err_set_param(e, ERR_UNSUPPORTED, "prompt", "the model has no token that opens a prompt");
    if (n > PROMPT_MAX)
        return err_set_param(e, ERR_TOO_LARGE, "prompt", "a prompt of %zu bytes, at most %d", n, PROMPT_MAX);
    struct ids ids = {0};
    struct text_span spans[] = {{" ", 1, false}, {text, n, false}};
    err_code code = tokenizer_encode(w->base.model->tokenizer, spans, 2, false, &ids, e);
    if (!code) {
        size_t most = (size_t)w->w->dims.context / 2 - 1, keep = ids.len < most ? ids.len : most;
        w->prompt = mem_new((keep + 1) * sizeof *w->prompt);
        memcpy(w->prompt, ids.data + ids.len - keep, keep * sizeof *w->prompt);
        w->nprompt = (int)keep;
    }
    free(ids.data);
    return code;
}

static void set_rules(struct whisper_work *w)
{
    const struct model *m = w->base.model;
    json_t *first = json_object_get(weights_json(m->weights, "generation_config.json"), "max_initial_timestamp_index");
    json_int_t latest = json_is_integer(first) ? json_integer_value(first) : FIRST_TIME;
    bool long_form = w->frames > 2 * w->w->dims.positions;
    w->rules = (struct whisper_rules){
        .ops = m->ops, .tokens = &w->tokens, .marks = w->marks, .vocab = m->vocab,
        .timestamps = (w->ask->timestamps || long_form) && w->tokens.times > 0,
        .max_first = latest >= 0 && latest < w->tokens.times ? (int)latest : -1,
    };
}

static void free_work(struct work *base)
{
    struct whisper_work *w = of(base);
    if (!w)
        return;
    mem_free_pages(w->memory, whisper_net_bytes(w->w));
    free(w->marks);
    free(w->prompt);
    free(w->ids);
    free(w);
}

static err_code prepare(const struct model *m, const struct task *t, struct work **ret_work, int *ret_prompt_tokens,
                        err *e)
{
    struct whisper_work *w = mem_new(sizeof *w);
    w->base = (struct work){.ops = &whisper_work_ops, .model = m, .task = t};
    w->w = m->impl;
    w->ask = &t->transcribe;
    err_code code = check(m, t, e);
    if (!code)
        code = whisper_tokens_find(m, &w->tokens, e);
    if (!code) {
        w->marks = mem_new((size_t)m->vocab);
        w->ids = mem_new(longest(w->w) * sizeof *w->ids);
        code = whisper_tokens_suppress(m, &w->tokens, w->marks, e);
    }
    if (!code)
        code = read_prompt(w, e);
    if (!code)
        code = check_samples(w, e);
    if (code) {
        free_work(&w->base);
        return code;
    }
    const char *asked = w->tokens.multilingual ? w->ask->language : "en";
    w->language = asked ? whisper_tokens_language(&w->tokens, asked) : -1;
    set_rules(w);
    *ret_work = &w->base;
    *ret_prompt_tokens = (w->frames + 1) / 2 + w->nprompt;  // the encoder's positions are the audio's tokens
    return ERR_OK;
}

// ---- memory

static size_t work_bytes(const struct model *m)
{
    const struct whisper *w = m->impl;
    return sizeof(struct whisper_work) + whisper_net_bytes(w) + (size_t)m->vocab +
           2 * longest(w) * sizeof(int32_t);
}

static size_t scratch_bytes(const struct model *m, int lanes)
{
    return whisper_net_scratch(m->impl, lanes);
}

// ---- windows

static bool is_silent(const struct whisper_work *w)
{
    size_t from = (size_t)w->seek * MEL_HOP, to = (size_t)(w->seek + w->size) * MEL_HOP;
    for (size_t i = from; i < to && i < w->ask->nsamples; i++)
        if (fabsf(w->ask->samples[i]) >= silence)
            return false;
    return true;
}

static void set_window(struct whisper_work *w, int seek)
{
    int most = 2 * w->w->dims.positions;
    w->seek = seek;
    w->size = w->frames - seek < most ? w->frames - seek : most;
}

static void encode_window(struct whisper_work *w)
{
    w->phase = ENCODE;
    w->have_mel = w->encoded = false;
    w->cursor = (struct whisper_cursor){0};
    w->window++;
    w->attempt = 0;
}

// The next window worth encoding from `seek` on. Audio with none of them still has its language told.
static void next_window(struct whisper_work *w, int seek)
{
    for (set_window(w, seek); w->size >= LEAST_FRAMES; set_window(w, w->seek + w->size)) {
        if (!is_silent(w)) {
            encode_window(w);
            return;
        }
    }
    w->phase = OVER;
    if (w->tokens.multilingual && w->language < 0) {
        set_window(w, 0);
        w->probe = true;
        encode_window(w);
    }
}

static err_code begin(struct work *base, err *e)
{
    struct whisper_work *w = of(base);
    size_t bytes = whisper_net_bytes(w->w);
    w->memory = mem_try_pages(bytes);
    if (!w->memory)
        return err_set(e, ERR_MEMORY, "no memory for a transcription's %zu bytes", bytes);
    whisper_net_init(&w->net, base->model, w->memory);
    next_window(w, 0);
    return ERR_OK;
}

// The rows that the decoder starts a window with.
static void set_first_ids(struct whisper_work *w)
{
    const struct whisper_tokens *t = &w->tokens;
    int n = 0;
    if (w->nprompt > 0) {
        w->ids[n++] = t->start_of_prev;
        memcpy(w->ids + n, w->prompt, (size_t)w->nprompt * sizeof *w->ids);
        n += w->nprompt;
    }
    w->sot_at = n;
    w->ids[n++] = t->sot;
    if (t->multilingual) {
        w->ids[n++] = t->languages[w->language];
        w->ids[n++] = w->ask->translate ? t->translate : t->transcribe;
    }
    if (!w->rules.timestamps)
        w->ids[n++] = t->no_timestamps;
    w->nids = w->nfirst = n;
}

// Rows of the next step: logits are wanted of the row that starts the transcript, and of the last one.
static void plan_rows(struct whisper_work *w)
{
    int at = w->net.length, n = w->nids - at;
    if (at <= w->sot_at && w->sot_at < at + n)
        n = w->sot_at - at + 1;
    w->rows = n < WHISPER_ROWS ? n : WHISPER_ROWS;
}

static void start_decoding(struct whisper_work *w, enum phase phase)
{
    w->phase = phase;
    w->net.length = 0;
    w->logprob = 0;
    w->no_speech = 0;
    if (phase == DETECT) {
        w->ids[0] = w->tokens.sot;
        w->nids = w->nfirst = 1;
        w->sot_at = 0;
    } else {
        set_first_ids(w);
    }
    plan_rows(w);
}

// ---- steps

// Features of the window; frames past the audio's end are zero, as in the reference.
static void make_mel(struct whisper_work *w, struct lane *lane)
{
    const struct mel *m = w->w->mel;
    size_t mels = (size_t)mel_count(m);
    int lo, hi, all = 2 * w->w->dims.positions;
    lane_split(lane, all, 1, &lo, &hi);
    int end = hi < w->size ? hi : w->size;
    if (lo < end) {
        float *rows = w->net.mel + (size_t)(lo + 1) * mels;
        mel_power(m, w->ask->samples, w->ask->nsamples, (size_t)(w->seek + lo), (size_t)(end - lo), rows);
        mel_log(rows, (size_t)(end - lo) * mels, w->peak);
    }
    for (int f = lo > end ? lo : end; f < hi; f++)
        memset(w->net.mel + (size_t)(f + 1) * mels, 0, mels * sizeof(float));
    lane_barrier(lane);
}

static void encode(struct whisper_work *w, struct lane *lane)
{
    struct whisper_cursor at = w->cursor;
    bool last = false, over = false;
    if (!w->have_mel)
        make_mel(w, lane);
    while (!last && !over) {
        last = whisper_net_encode(&w->net, &at, lane, w->base.scratch);
        over = !last && work_slice(&w->base, lane);
    }
    if (lane->id == 0) {  // the others are done with these: every part ends with a barrier
        w->cursor = at;
        w->have_mel = true;
        w->encoded = last;
    }
}

static void step(struct work *base, struct lane *lane)
{
    struct whisper_work *w = of(base);
    if (w->phase == ENCODE) {
        encode(w, lane);
        return;
    }
    int at = w->net.length, end = at + w->rows;
    whisper_net_decode(&w->net, lane, base->scratch, w->ids + at, w->rows, end == w->nids || end - 1 == w->sot_at);
}

// ---- what a window gave

// The text of the ids below `limit`.
static void add_text(const struct whisper_work *w, const int32_t *ids, int n, int32_t limit, struct buf *out)
{
    struct detok d;
    detok_init(&d, w->base.model->tokenizer, false);
    for (int i = 0; i < n; i++)
        if (ids[i] < limit)
            detok_add(&d, ids[i], out);
    detok_finish(&d, out);
}

static void emit_segment(struct whisper_work *w, struct session *s, const struct whisper_slice *c, struct segment *seg)
{
    struct buf text;
    size_t visible;
    double duration = (double)w->ask->nsamples / MEL_RATE;
    buf_init(&text, TEXT_MAX);
    seg->ids = w->ids + w->nfirst + c->first;
    seg->nids = c->n;
    add_text(w, seg->ids, c->n, w->tokens.eot, &text);
    whisper_segments_strip(text.data ? text.data : "", text.len, &visible);
    if (visible > 0 && c->start < c->end && c->start < duration) {
        seg->id = w->nsegments++;
        seg->start = c->start;
        seg->end = c->end < duration ? c->end : duration;
        seg->text = text.data;
        seg->len = text.len;
        session_emit(s, &(struct event){.kind = EVENT_SEGMENT, .segment = seg});
    }
    buf_done(&text);
}

// Over all but the timestamps: a special token counts with its spelling, as in the reference.
static float window_ratio(const struct whisper_work *w, int n)
{
    struct buf text;
    size_t visible;
    buf_init(&text, TEXT_MAX);
    add_text(w, w->ids + w->nfirst, n, w->tokens.first_time, &text);
    const char *p = whisper_segments_strip(text.data ? text.data : "", text.len, &visible);
    float ratio = whisper_segments_ratio(p, visible);
    buf_done(&text);
    return ratio;
}

static float temperature(const struct whisper_work *w)
{
    float t = w->ask->temperature + warmer * (float)w->attempt;
    return t < 1 ? t : 1;
}

static bool is_no_speech(const struct segment *seg)
{
    return seg->no_speech_prob > no_speech_limit && !(seg->avg_logprob > logprob_limit);
}

static bool went_wrong(const struct segment *seg)
{
    return seg->compression_ratio > ratio_limit || !(seg->avg_logprob >= logprob_limit);
}

// n tokens were sampled before the end of the text. Sends the segments and moves on, or tries again.
static void finish_window(struct whisper_work *w, struct session *s, int n)
{
    struct whisper_cut cut;
    struct segment seg = {.seek = w->seek, .temperature = temperature(w), .no_speech_prob = w->no_speech,
                          .avg_logprob = (float)(w->logprob / (n + 1)), .compression_ratio = window_ratio(w, n)};
    if (is_no_speech(&seg)) {
        next_window(w, w->seek + w->size);
        return;
    }
    if (w->ask->fallback && went_wrong(&seg) && w->attempt < ATTEMPTS - 1 && seg.temperature < 1) {
        w->attempt++;
        start_decoding(w, DECODE);
        return;
    }
    whisper_segments_cut(&w->tokens, w->ids + w->nfirst, n, w->seek, w->size, &cut);
    for (int i = 0; i < cut.n; i++)
        emit_segment(w, s, &cut.slices[i], &seg);
    w->nprompt = 0;
    next_window(w, w->seek + (cut.advance > 0 ? cut.advance : w->size));
}

static void emit_language(struct whisper_work *w, struct session *s)
{
    const char *code = w->tokens.multilingual ? engine_language_at(w->language) : "en";
    session_emit(s, &(struct event){.kind = EVENT_LANGUAGE, .text = code, .len = strlen(code)});
}

// The likeliest of the languages the model has.
static err_code take_language(struct whisper_work *w, struct session *s, err *e)
{
    float best = -INFINITY;
    for (int i = 0; i < LANGUAGES; i++) {
        int32_t id = w->tokens.languages[i];
        if (id == TOKEN_NONE || !(w->net.logits[id] > best))
            continue;
        best = w->net.logits[id];
        w->language = i;
    }
    if (w->language < 0)
        return err_set(e, ERR_CORRUPT, "%s: the logits are not numbers", w->base.model->path);
    emit_language(w, s);
    return ERR_OK;
}

// A row of logits is there: what follows?
static err_code take_token(struct whisper_work *w, struct session *s, err *e)
{
    int n = w->nids - w->nfirst;
    float logprob;
    whisper_rules_apply(&w->rules, w->ids + w->nfirst, n, w->net.logits);
    double unit = rng_unit(w->ask->seed, (uint64_t)w->window * ATTEMPTS + (uint64_t)w->attempt, (uint64_t)n);
    int32_t id = whisper_rules_pick(&w->rules, w->net.logits, temperature(w), unit, &logprob);
    if (id < 0)
        return err_set(e, ERR_CORRUPT, "%s: the logits are not numbers", w->base.model->path);
    w->logprob += (double)logprob;
    s->completion_tokens++;
    if (id == w->tokens.eot) {
        finish_window(w, s, n);
        return ERR_OK;
    }
    w->ids[w->nids++] = id;
    if (n + 1 == w->w->dims.context / 2 || w->nids > w->w->dims.context)
        finish_window(w, s, n + 1);
    else
        plan_rows(w);
    return ERR_OK;
}

static err_code decoded(struct whisper_work *w, struct session *s, err *e)
{
    w->net.length += w->rows;
    if (w->net.length - 1 == w->sot_at && w->tokens.no_speech != TOKEN_NONE)
        w->no_speech = whisper_rules_probability(&w->rules, w->net.logits, w->tokens.no_speech);
    if (w->net.length < w->nids) {
        plan_rows(w);
        return ERR_OK;
    }
    if (w->phase == DECODE)
        return take_token(w, s, e);
    err_code code = take_language(w, s, e);
    if (w->probe)
        w->phase = OVER;
    else if (!code)
        start_decoding(w, DECODE);
    return code;
}

static enum work_next after(struct work *base, struct session *s, err *e)
{
    struct whisper_work *w = of(base);
    bool told = !w->tokens.multilingual || w->language >= 0;
    if (!w->started) {
        w->started = true;
        if (told)
            emit_language(w, s);
    } else if (w->phase != ENCODE) {
        if (decoded(w, s, e))
            return WORK_FAIL;
    } else if (w->encoded) {
        start_decoding(w, told ? DECODE : DETECT);
    }
    return w->phase == OVER ? WORK_DONE : WORK_MORE;
}

const struct work_ops whisper_work_ops = {
    .max_running = 2,
    .check = check,
    .prepare = prepare,
    .work_bytes = work_bytes,
    .scratch_bytes = scratch_bytes,
    .begin = begin,
    .step = step,
    .after = after,
    .free = free_work,
};
