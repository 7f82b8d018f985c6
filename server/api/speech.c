// speech.c - POST /v1/audio/speech. Samples go through the speed changer and the encoder as the engine makes them, on the
// engine's thread (under a millisecond for each piece), and leave at once. The 200 is sent with the first samples: a task
// that fails before, or makes none, is an ordinary error; one that fails later breaks the stream off.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "codecs/audio_write.h"
#include "codecs/base64.h"
#include "codecs/stretch.h"
#include "server/api/fields.h"
#include "server/api/handlers.h"
#include "server/api/job.h"
#include "server/api/models.h"
#include "server/request.h"

enum { MAX_INPUT = 4096, MAX_WHOLE = 256 << 20, MAX_EVENT = 8 << 20, WAITING_MAX = 32 << 20 };

enum way { WAY_BYTES, WAY_EVENTS, WAY_WHOLE };

struct speech {
    struct api_job job;  // first: the job's callbacks are given its address
    struct model_info model;
    const char *text, *voice;
    enum audio_format format;
    enum way way;
    double speed;
    double temperature, top_p, repetition_penalty;  // negative: the model family's
    int max_tokens;
    int64_t seed;
    bool has_seed;

    struct stretch *stretch;
    struct audio_writer *writer;  // NULL until there are samples
    struct stream *stream;
    struct sse *sse;
    struct buf out;    // the whole file, or what the encoder made since the last event
    uint64_t samples;
    err error;         // ours; the task's is job.error
};

static const struct field speech_fields[] = {
    {"model", FIELD_HONOURED, "string"},
    {"input", FIELD_HONOURED, "!string"},
    {"voice", FIELD_HONOURED, "!string|object"},
    {"response_format", FIELD_HONOURED, "string: mp3 opus flac wav pcm"},
    {"speed", FIELD_HONOURED, "number " FIELD_TEXT(STRETCH_MIN) ".." FIELD_TEXT(STRETCH_MAX)},
    {"stream_format", FIELD_HONOURED, "string: audio sse"},
    {"stream", FIELD_HONOURED, "boolean"},
    {"temperature", FIELD_HONOURED, "number 0..2"},
    {"top_p", FIELD_HONOURED, "number 0..1"},
    {"repetition_penalty", FIELD_HONOURED, "number 0.01..10"},
    {"seed", FIELD_HONOURED, "integer"},
    {"max_tokens", FIELD_HONOURED, "integer 1.."},

    {"instructions", FIELD_ACCEPTED, 0},
    {"language", FIELD_ACCEPTED, 0},
    {"user", FIELD_ACCEPTED, 0},
};
API_BODY(api_speech_create, speech_fields, caller);

// ---- fields

static bool is_blank_character(uint32_t c)
{
    return c <= 0x20 || c == 0x7f || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200F) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x2060 || c == 0x3000 || c == 0xFEFF;
}

static void read_input(struct speech *s, struct fields *f)
{
    if (api_fields_missing(f, "input") || !api_fields_string(f, "input", &s->text))
        return;
    size_t len = strlen(s->text), characters = 0;
    bool blank = true;
    for (size_t at = 0; at < len; characters++) {
        uint32_t c = 0;
        int n = utf8_decode(s->text + at, len - at, &c);
        blank &= is_blank_character(c);
        at += n > 0 ? (size_t)n : 1;
    }
    if (characters > MAX_INPUT)
        api_fields_fail(f, "string_above_max_length", "input",
                        "Invalid 'input': string too long. Expected a string with maximum length %d, but got a string with "
                        "length %zu instead.", MAX_INPUT, characters);
    else if (blank)
        api_fields_fail(f, "invalid_value", "input", "Invalid 'input': the text is blank; there is nothing to say.");
}

// OpenAI's voices, and which of a model's is nearest; a model without that one gives one by number.
static const struct {
    const char *name, *nearest;
} known_voices[] = {
    {"alloy", "tara"}, {"ash", "dan"}, {"ballad", "zac"}, {"coral", "leah"}, {"echo", "leo"}, {"fable", "jess"}, {"onyx", "zac"},
    {"nova", "mia"}, {"sage", "jess"}, {"shimmer", "zoe"}, {"verse", "leo"}, {"marin", "leah"}, {"cedar", "dan"},
};
enum { KNOWN_VOICES = sizeof known_voices / sizeof *known_voices };

static const char *own_voice(const struct model_info *m, const char *name)
{
    for (int i = 0; i < m->nvoices; i++)
        if (!strcmp(m->voices[i], name))
            return m->voices[i];
    return NULL;
}

static void list_voices(const struct model_info *m, char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < m->nvoices && used + 32 < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s, ", m->voices[i]);
    snprintf(text + used, size - used, "and OpenAI's names such as alloy");
}

static void find_voice(struct speech *s, struct fields *f, const char *name)
{
    s->voice = own_voice(&s->model, name);
    for (int i = 0; i < KNOWN_VOICES && !s->voice; i++) {
        if (strcmp(known_voices[i].name, name))
            continue;
        s->voice = own_voice(&s->model, known_voices[i].nearest);
        if (!s->voice && s->model.nvoices)
            s->voice = s->model.voices[i % s->model.nvoices];
        return;
    }
    char voices[400];
    list_voices(&s->model, voices, sizeof voices);
    if (!s->voice)
        api_fields_fail(f, "invalid_value", "voice", "Invalid 'voice': the model has %s (in this spelling), but got '%.40s'.",
                        voices, name);
}

static void read_voice(struct speech *s, struct fields *f)
{
    const json_t *v = api_fields_get(f, "voice");
    if (json_is_object(v))
        v = json_object_get(v, "id");
    char voices[400];
    list_voices(&s->model, voices, sizeof voices);
    if (!v)
        api_fields_fail(f, "missing_required_parameter", "voice", "Missing required parameter: 'voice'. The model has %s.", voices);
    else if (!json_is_string(v))
        api_fields_wrong_type(f, v, "voice", "a string");
    else
        find_voice(s, f, json_string_value(v));
}

static void read_format(struct speech *s, struct fields *f)
{
    const char *name = "mp3", *way = "audio";
    bool stream = true;
    api_fields_string(f, "response_format", &name);
    if (!audio_write_find(name, &s->format))
        api_fields_fail(f, strcmp(name, "aac") ? "invalid_value" : "unsupported_value", "response_format",
                        strcmp(name, "aac") ? "Invalid value: '%.40s'. Supported values are: 'mp3', 'opus', 'flac', 'wav' and 'pcm'."
                                            : "Unsupported value: 'response_format' does not support '%.40s' on this server. "
                                              "Supported values are: 'mp3', 'opus', 'flac', 'wav' and 'pcm'.", name);
    api_fields_string(f, "stream_format", &way);
    api_fields_bool(f, "stream", &stream);
    if (strcmp(way, "audio") && strcmp(way, "sse"))
        api_fields_fail(f, "invalid_value", "stream_format",
                        "Invalid value: '%.40s'. Supported values are: 'audio' and 'sse'.", way);
    s->way = !strcmp(way, "sse") ? WAY_EVENTS : stream ? WAY_BYTES : WAY_WHOLE;
}

static void read_all(struct speech *s, struct fields *f)
{
    if (!api_models_find(f, CAN_SPEAK, &s->model))
        return;
    s->speed = 1;
    s->temperature = s->top_p = s->repetition_penalty = -1;
    read_input(s, f);
    read_voice(s, f);
    read_format(s, f);
    api_fields_number(f, "speed", &s->speed);
    api_fields_number(f, "temperature", &s->temperature);
    api_fields_number(f, "top_p", &s->top_p);
    api_fields_number(f, "repetition_penalty", &s->repetition_penalty);
    api_fields_small(f, "max_tokens", &s->max_tokens);
    s->has_seed = api_fields_int(f, "seed", &s->seed);
    api_job_read(&s->job, f);
}

// ---- samples to bytes

static bool take_bytes(void *ud, const void *bytes, size_t n)
{
    struct speech *s = ud;
    return s->way == WAY_BYTES ? stream_send(s->stream, bytes, n) : buf_add(&s->out, bytes, n);
}

static bool send_event(struct speech *s)
{
    static const char head[] = "{\"type\":\"speech.audio.delta\",\"audio\":\"";
    size_t letters;
    if (!s->out.len || !base64_length(s->out.len, &letters))
        return true;
    char *text = mem_try(sizeof head + letters + 2);
    if (!text)
        return false;
    memcpy(text, head, sizeof head - 1);
    base64_encode(s->out.data, s->out.len, text + sizeof head - 1);
    memcpy(text + sizeof head - 1 + letters, "\"}", 2);
    bool ok = sse_send(s->sse, text, sizeof head - 1 + letters + 2);
    buf_clear(&s->out);
    free(text);
    return ok;
}

// The first samples: from here on the answer is a 200.
static err_code open_answer(struct speech *s, err *e)
{
    if (s->way == WAY_BYTES) {
        s->stream = reply_stream(s->job.r, audio_write_type(s->format));
    } else if (s->way == WAY_EVENTS) {
        s->sse = reply_sse(s->job.r);
        sse_allow(s->sse, WAITING_MAX);
    }
    return audio_write_open(s->format, s->model.sample_rate, take_bytes, s, &s->writer, e);
}

static err_code encode(void *ud, const float *samples, size_t n, err *e)
{
    struct speech *s = ud;
    if (!s->writer && open_answer(s, e))
        return e->code;
    s->samples += n;
    return audio_write_samples(s->writer, samples, n, e);
}

static void on_event(struct api_job *job, const struct event *ev)
{
    struct speech *s = (struct speech *)job;
    if (ev->kind != EVENT_AUDIO || s->error.code)
        return;
    if (!stretch_add(s->stretch, ev->values, ev->nvalues, encode, s, &s->error) && s->sse && !send_event(s))
        err_set(&s->error, ERR_CANCELLED, "the client has gone");
    if (s->error.code)
        api_job_cancel(job);
}

// ---- the end

static void finish(struct speech *s)
{
    err *e = &s->error;
    if (!e->code && s->job.error.code)
        *e = s->job.error;
    if (!e->code && stretch_finish(s->stretch, encode, s, e))
        return;
    if (!e->code && !s->samples)
        err_set(e, ERR_INTERNAL, "No audio was produced for this text.");
    if (!e->code && !audio_write_finish(s->writer, e) && s->sse && !send_event(s))
        err_set(e, ERR_CANCELLED, "the client has gone");
}

static void answer_failed(struct speech *s)
{
    struct request *r = s->job.r;
    api_fields_clean(s->error.text);
    if (s->stream || s->sse)
        request_problem(r, &s->error);
    if (s->stream) {
        stream_end(s->stream, false);
    } else if (s->sse) {
        if (s->error.code != ERR_CANCELLED)
            sse_send_json(s->sse, reply_error_json(&s->error));
        sse_end(s->sse, false);
    } else {
        reply_error(r, &s->error);
    }
}

static void answer_done(struct speech *s)
{
    const struct usage *u = &s->job.usage;
    if (s->stream) {
        stream_end(s->stream, true);
    } else if (s->sse) {
        sse_send_json(s->sse, json_pack("{s:s, s:{s:i, s:i, s:i}}", "type", "speech.audio.done", "usage", "input_tokens",
                                        u->prompt_tokens, "output_tokens", u->completion_tokens, "total_tokens",
                                        u->prompt_tokens + u->completion_tokens));
        sse_end(s->sse, false);
    } else {
        audio_write_fix(s->writer, s->out.data, s->out.len);
        reply_text(s->job.r, 200, audio_write_type(s->format), s->out.data, s->out.len);
    }
}

static void answer(struct api_job *job)
{
    struct speech *s = (struct speech *)job;
    finish(s);
    if (s->error.code)
        answer_failed(s);
    else
        answer_done(s);
}

static void release(void *object)
{
    struct speech *s = object;
    audio_write_close(s->writer);
    stretch_free(s->stretch);
    buf_done(&s->out);
}

static void submit(struct speech *s)
{
    struct task *t = api_job_task(&s->job, TASK_SPEAK, s->model.name);
    struct sampling *p = &t->speak.sampling;
    t->speak.len = strlen(s->text);
    t->speak.text = arena_strndup(&t->arena, s->text, t->speak.len);
    t->speak.voice = s->voice ? arena_strdup(&t->arena, s->voice) : NULL;
    t->speak.max_tokens = s->max_tokens;
    p->temperature = s->temperature >= 0 ? (float)s->temperature : p->temperature;
    p->top_p = s->top_p >= 0 ? (float)s->top_p : p->top_p;
    p->repetition_penalty = s->repetition_penalty >= 0 ? (float)s->repetition_penalty : p->repetition_penalty;
    p->seed = s->has_seed ? (uint64_t)s->seed : p->seed;
    s->stretch = stretch_new(s->speed, s->model.sample_rate);
    buf_init(&s->out, s->way == WAY_WHOLE ? MAX_WHOLE : MAX_EVENT);
    api_job_start(&s->job, t);
}

void api_speech_create(struct request *r)
{
    struct speech *s = arena_alloc(&r->arena, sizeof *s);
    struct fields f;
    api_job_init(&s->job, r, on_event, answer);
    arena_defer(&r->arena, release, s);
    api_fields_init(&f, r);
    api_fields_check(&f, &api_speech_create_body);
    read_all(s, &f);
    if (f.failed)
        api_fields_reply(&f);
    else
        submit(s);
}
