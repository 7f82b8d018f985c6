// transcribe.c - POST /v1/audio/transcriptions and /v1/audio/translations.
//
//     form (loop thread) ─▶ samples (thread pool) ─▶ task (loop thread) ─▶ segments (engine threads) ─▶ answer
//
// The fields are judged before the sound is decoded. Segments become the answer's text as they come: cues, JSON, or events
// of a stream, whose 200 is sent when the task is admitted.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "codecs/audio_read.h"
#include "server/api/fields.h"
#include "server/api/form.h"
#include "server/api/handlers.h"
#include "server/api/job.h"
#include "server/api/jsonout.h"
#include "server/api/models.h"
#include "server/api/subtitles.h"
#include "server/request.h"
#include "server/server.h"
#include "server/upload.h"

enum { MAX_ANSWER = 64 << 20, MAX_HELD_FACTOR = 2 };

enum format { FORMAT_JSON, FORMAT_TEXT, FORMAT_SRT, FORMAT_VTT, FORMAT_VERBOSE };

struct transcription {
    struct api_job job;  // first: the job's callbacks are given its address
    struct model_info model;
    enum format format;
    bool translate, stream;
    const char *language, *prompt;
    double temperature;
    bool has_seed;
    uint64_t seed;

    const struct upload_file *file;
    atomic_bool stop;  // the client went away, or the deadline passed, while the sound is decoded
    struct audio audio;
    err error;

    char heard[16];    // code of the language
    struct buf text;   // all segments joined
    struct buf parts;  // cues, or segments as JSON
    int nparts;
    struct sse *sse;
    size_t sent;       // bytes of text that have left as deltas
    bool dead;         // the stream's client is gone
};

static const struct field transcription_fields[] = {
    {"model", FIELD_HONOURED, "string"},
    {"language", FIELD_HONOURED, "string"},
    {"prompt", FIELD_HONOURED, "string"},
    {"response_format", FIELD_HONOURED, "string: json text srt verbose_json vtt"},
    {"temperature", FIELD_HONOURED, "number 0..1"},
    {"timestamp_granularities", FIELD_HONOURED, "[string]"},
    {"include", FIELD_HONOURED, "[string]"},
    {"stream", FIELD_HONOURED, "boolean"},
    {"file", FIELD_HONOURED, "!file"},
    {"seed", FIELD_HONOURED, "integer"},

    {"languages", FIELD_ACCEPTED, 0},
    {"keywords", FIELD_ACCEPTED, 0},
    {"chunking_strategy", FIELD_ACCEPTED, 0},
    {"known_speaker_names", FIELD_ACCEPTED, 0},
    {"known_speaker_references", FIELD_ACCEPTED, 0},
    {"user", FIELD_ACCEPTED, 0},
};
API_BODY(api_transcribe_create, transcription_fields, caller);
API_BODY(api_transcribe_translate, transcription_fields, caller);

static const struct form_field form[] = {
    {"temperature", FORM_NUMBER}, {"seed", FORM_NUMBER}, {"timeout", FORM_NUMBER}, {"priority", FORM_NUMBER}, {"stream", FORM_BOOL},
    {"timestamp_granularities", FORM_LIST}, {"include", FORM_LIST},
};

// Samples of all requests together: each may have hours, and a small file can hold many.
static atomic_size_t held_bytes;

// ---- fields

static void read_format(struct transcription *t, struct fields *f)
{
    static const char *const names[] = {[FORMAT_JSON] = "json", [FORMAT_TEXT] = "text", [FORMAT_SRT] = "srt",
                                        [FORMAT_VTT] = "vtt", [FORMAT_VERBOSE] = "verbose_json"};
    const char *name = "json";
    api_fields_string(f, "response_format", &name);
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (!strcmp(name, names[i])) {
            t->format = (enum format)i;
            return;
        }
    if (!strcmp(name, "diarized_json"))
        api_fields_fail(f, "unsupported_value", "response_format",
                        "Unsupported value: 'response_format' does not support 'diarized_json' with this model, which does "
                        "not tell speakers apart.");
    else
        api_fields_fail(f, "invalid_value", "response_format",
                        "Invalid value: '%.40s'. Supported values are: 'json', 'text', 'srt', 'vtt' and 'verbose_json'.", name);
}

static bool list_has(const json_t *list, const char *word)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *s = json_string_value(json_array_get(list, i));
        if (s && !strcmp(s, word))
            return true;
    }
    return false;
}

static void read_granularities(struct transcription *t, struct fields *f)
{
    const json_t *list = NULL;
    if (t->translate || !api_fields_array(f, "timestamp_granularities", &list))
        return;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *s = json_string_value(json_array_get(list, i));
        if (!s || (strcmp(s, "word") && strcmp(s, "segment")))
            api_fields_fail(f, "invalid_value", "timestamp_granularities",
                            "Invalid value: '%.40s'. Supported values are: 'word' and 'segment'.", s ? s : "");
    }
    if (t->format == FORMAT_VERBOSE && list_has(list, "word"))
        api_fields_fail(f, "unsupported_value", "timestamp_granularities",
                        "Unsupported value: 'timestamp_granularities' does not support 'word': times of words are not built "
                        "into this server; 'segment' is.");
}

static void read_language(struct transcription *t, struct fields *f)
{
    const char *text = NULL;
    if (t->translate || !api_fields_string(f, "language", &text) || !strcmp(text, "auto"))
        return;
    t->language = engine_language_code(text);
    if (!t->language)
        api_fields_fail(f, "invalid_value", "language",
                        "Invalid 'language': '%.40s' is not known. Expected an ISO 639-1 code such as 'en', or a language's "
                        "English name.", text);
    else if (!t->model.multilingual && strcmp(t->language, "en"))
        api_fields_fail(f, "unsupported_value", "language",
                        "Unsupported value: 'language' does not support '%s' with the model '%s', which knows English only.",
                        t->language, t->model.name);
}

static void read_stream(struct transcription *t, struct fields *f)
{
    if (t->translate || !api_fields_bool(f, "stream", &t->stream) || !t->stream)
        return;
    if (t->format != FORMAT_JSON && t->format != FORMAT_TEXT)
        api_fields_fail(f, "unsupported_value", "stream",
                        "Unsupported value: 'stream' works with the response_format 'json' or 'text' only.");
}

static void read_include(struct transcription *t, struct fields *f)
{
    const json_t *list = NULL;
    if (!t->translate && t->format == FORMAT_JSON && api_fields_array(f, "include", &list) && list_has(list, "logprobs"))
        api_fields_fail(f, "unsupported_value", "include",
                        "Unsupported value: 'include' does not support 'logprobs' with this model.");
}

static void read_file(struct transcription *t, struct fields *f)
{
    int n = upload_find(f->r->upload, "file", &t->file);
    if (n == 0 && api_fields_get(f, "file"))
        api_fields_fail(f, "invalid_type", "file",
                        "Invalid type for 'file': expected a file, but got a text; its part of the form needs a 'filename'.");
    else if (n == 0)
        api_fields_fail(f, "missing_required_parameter", "file", "Missing required parameter: 'file'.");
    else if (n > 1)
        api_fields_fail(f, "invalid_value", "file", "Invalid 'file': expected one file, but got %d.", n);
    else if (t->file->size == 0)
        api_fields_fail(f, "invalid_value", "file", "Invalid 'file': the file is empty.");
}

static void read_all(struct transcription *t, struct fields *f)
{
    int64_t seed;
    if (!api_models_find(f, CAN_TRANSCRIBE, &t->model))
        return;
    if (t->translate && !t->model.multilingual)
        api_fields_fail(f, "unsupported_value", "model", "Unsupported value: the model '%s' knows English only and cannot "
                        "translate.", t->model.name);
    read_file(t, f);
    read_format(t, f);
    read_language(t, f);
    read_granularities(t, f);
    read_stream(t, f);
    read_include(t, f);
    api_fields_string(f, "prompt", &t->prompt);
    api_fields_number(f, "temperature", &t->temperature);
    t->has_seed = api_fields_int(f, "seed", &seed);
    if (t->has_seed)
        t->seed = (uint64_t)seed;
    api_job_read(&t->job, f);
}

// ---- the answer's text, under way

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

// The text so far without blanks around it.
static const char *trimmed(const struct transcription *t, size_t *ret_len)
{
    const char *s = t->text.data ? t->text.data : "", *end = s + t->text.len;
    while (s < end && is_space(*s))
        s++;
    while (end > s && is_space(end[-1]))
        end--;
    *ret_len = (size_t)(end - s);
    return s;
}

static void add_number(struct buf *b, double v)
{
    buf_printf(b, "%.10g", isfinite(v) ? v : 0);  // JSON has no NaN
}

static void add_segment(struct transcription *t, const struct segment *s)
{
    struct buf *b = &t->parts;
    buf_printf(b, "%s{\"id\":%d,\"seek\":%d,\"start\":", t->nparts++ ? "," : "", s->id, s->seek);
    add_number(b, s->start);
    buf_add_str(b, ",\"end\":");
    add_number(b, s->end);
    buf_add_str(b, ",\"text\":");
    api_jsonout_string(b, s->text, s->len);
    buf_add_str(b, ",\"tokens\":[");
    for (int i = 0; i < s->nids; i++)
        buf_printf(b, "%s%d", i ? "," : "", (int)s->ids[i]);
    const float values[] = {s->temperature, s->avg_logprob, s->compression_ratio, s->no_speech_prob};
    static const char *const names[] = {"temperature", "avg_logprob", "compression_ratio", "no_speech_prob"};
    buf_add_char(b, ']');
    for (int i = 0; i < 4; i++) {
        buf_printf(b, ",\"%s\":", names[i]);
        api_jsonout_float(b, isfinite(values[i]) ? values[i] : 0);
    }
    buf_add_char(b, '}');
}

// A delta holds back blanks at its end until more text shows that they are inside.
static void send_delta(struct transcription *t)
{
    size_t len;
    const char *s = trimmed(t, &len);
    if (t->dead || len <= t->sent)
        return;
    struct buf b;
    buf_init(&b, MAX_ANSWER);
    buf_add_str(&b, "{\"type\":\"transcript.text.delta\",\"delta\":");
    api_jsonout_string(&b, s + t->sent, len - t->sent);
    buf_add_char(&b, '}');
    t->sent = len;
    t->dead = !sse_send(t->sse, b.data, b.len);
    buf_done(&b);
}

static void on_segment(struct transcription *t, const struct segment *s)
{
    buf_add(&t->text, s->text, s->len);
    if (t->stream)
        send_delta(t);
    else if (t->format == FORMAT_VERBOSE)
        add_segment(t, s);
    else if (t->format == FORMAT_SRT || t->format == FORMAT_VTT)
        t->nparts += api_subtitles_add(&t->parts, t->format == FORMAT_SRT ? SUBTITLES_SRT : SUBTITLES_VTT, t->nparts + 1, s->start,
                                       s->end, s->text, s->len);
}

static void on_event(struct api_job *job, const struct event *ev)
{
    struct transcription *t = (struct transcription *)job;
    if (ev->kind == EVENT_START && t->stream)
        t->sse = reply_sse(job->r);
    else if (ev->kind == EVENT_LANGUAGE)
        snprintf(t->heard, sizeof t->heard, "%.*s", (int)ev->len, ev->text);
    else if (ev->kind == EVENT_SEGMENT)
        on_segment(t, ev->segment);
}

// ---- the answer

static void add_usage(const struct transcription *t, struct buf *b)
{
    if (!t->translate)
        buf_printf(b, ",\"usage\":{\"type\":\"duration\",\"seconds\":%.0f}", ceil(t->audio.seconds));
}

static void add_verbose(const struct transcription *t, struct buf *b)
{
    const char *code = t->heard[0] ? t->heard : t->language ? t->language : "en";
    const char *name = t->translate ? "english" : engine_language_name(code);
    buf_printf(b, "{\"task\":\"%s\",\"language\":", t->translate ? "translate" : "transcribe");
    api_jsonout_text(b, name ? name : code);
    buf_add_str(b, ",\"duration\":");
    add_number(b, t->audio.seconds);
    buf_add_char(b, ',');
}

static void answer_json(const struct transcription *t, struct buf *b)
{
    size_t len;
    const char *text = trimmed(t, &len);
    if (t->format == FORMAT_VERBOSE)
        add_verbose(t, b);
    else
        buf_add_char(b, '{');
    buf_add_str(b, "\"text\":");
    api_jsonout_string(b, text, len);
    if (t->format == FORMAT_VERBOSE)
        buf_printf(b, ",\"segments\":[%s]", t->parts.data ? t->parts.data : "");
    add_usage(t, b);
    buf_add_char(b, '}');
}

static void answer_whole(struct transcription *t)
{
    struct request *r = t->job.r;
    struct buf b;
    size_t len;
    const char *text = trimmed(t, &len), *type = "text/plain; charset=utf-8";
    buf_init(&b, 2 * MAX_ANSWER);
    if (t->format == FORMAT_TEXT) {
        buf_add(&b, text, len);
        buf_add_char(&b, '\n');
    } else if (t->format == FORMAT_JSON || t->format == FORMAT_VERBOSE) {
        answer_json(t, &b);
        type = "application/json";
    } else {
        type = t->format == FORMAT_VTT ? "text/vtt; charset=utf-8" : type;
        api_subtitles_begin(&b, t->format == FORMAT_SRT ? SUBTITLES_SRT : SUBTITLES_VTT);
        buf_add(&b, t->parts.data ? t->parts.data : "", t->parts.len);
    }
    err e = {0};
    if (b.over || t->text.over || t->parts.over) {
        err_set(&e, ERR_INTERNAL, "the answer is larger than %d MB", MAX_ANSWER >> 20);
        reply_error(r, &e);
    } else {
        reply_text(r, 200, type, b.data ? b.data : "", b.len);
    }
    buf_done(&b);
}

static void answer_stream(struct transcription *t)
{
    struct buf b;
    size_t len;
    const char *text = trimmed(t, &len);
    buf_init(&b, 2 * MAX_ANSWER);
    buf_add_str(&b, "{\"type\":\"transcript.text.done\",\"text\":");
    api_jsonout_string(&b, text, len);
    add_usage(t, &b);
    buf_add_char(&b, '}');
    if (!t->dead)
        (void)sse_send(t->sse, b.data, b.len);
    buf_done(&b);
    sse_end(t->sse, true);
}

static void answer(struct api_job *job)
{
    struct transcription *t = (struct transcription *)job;
    err e = job->error;
    api_fields_clean(e.text);
    if (e.code && t->sse) {
        request_problem(job->r, &e);
        if (!t->dead)
            sse_send_json(t->sse, reply_error_json(&e));
        sse_end(t->sse, false);
    } else if (e.code) {
        reply_error(job->r, &e);
    } else if (t->sse) {
        answer_stream(t);
    } else {
        answer_whole(t);
    }
}

// ---- from the file to the task

static bool is_late(const struct transcription *t)
{
    return t->job.caller.deadline_ns && clock_ns() >= t->job.caller.deadline_ns;
}

static int64_t read_upload(void *ud, int64_t at, void *out, size_t n)
{
    struct transcription *t = ud;
    if (is_late(t))
        atomic_store(&t->stop, true);
    return upload_read(t->job.r->upload, t->file, at, out, n);
}

static void decode(struct request *r)
{
    struct transcription *t = r->ud;
    struct audio_source src = {read_upload, t, (int64_t)t->file->size};
    struct audio_limits limits = {server_settings(r->server)->max_audio_s, &t->stop};
    (void)!audio_read(&src, &limits, &t->audio, &t->error);
}

struct samples {
    float *data;
    size_t bytes;
};

static void release_samples(void *object)
{
    struct samples *s = object;
    free(s->data);
    atomic_fetch_sub(&held_bytes, s->bytes);
}

// The samples become the task's. Too many in all: false, and they are freed.
static bool give_samples(struct transcription *t, struct task *task)
{
    size_t bytes = t->audio.n * sizeof(float);
    size_t max = (size_t)server_settings(t->job.r->server)->max_audio_s * AUDIO_READ_RATE * sizeof(float) * MAX_HELD_FACTOR;
    struct samples *s = arena_alloc(&task->arena, sizeof *s);
    *s = (struct samples){t->audio.samples, bytes};
    arena_defer(&task->arena, release_samples, s);
    return atomic_fetch_add(&held_bytes, bytes) + bytes <= max;
}

static void submit(struct transcription *t)
{
    struct task *task = api_job_task(&t->job, TASK_TRANSCRIBE, t->model.name);
    struct transcribe *k = &task->transcribe;
    if (!give_samples(t, task)) {
        err e = {0};
        task_free(task);
        err_set(&e, ERR_BUSY, "Too much audio is being transcribed at once; please retry.");
        reply_error(t->job.r, &e);
        return;
    }
    k->samples = t->audio.samples;
    k->nsamples = t->audio.n;
    k->language = t->language;
    k->translate = t->translate;
    k->timestamps = t->format == FORMAT_SRT || t->format == FORMAT_VTT || t->format == FORMAT_VERBOSE;
    k->prompt = t->prompt ? arena_strdup(&task->arena, t->prompt) : NULL;
    k->temperature = (float)t->temperature;
    k->fallback = t->temperature == 0;  // an asked for temperature is the one that is used
    if (t->has_seed)
        k->seed = t->seed;
    api_job_start(&t->job, task);
}

static void decoded(struct request *r)
{
    struct transcription *t = r->ud;
    r->on_gone = NULL;
    if (t->error.code == ERR_OK && !atomic_load(&t->stop)) {
        submit(t);
        return;
    }
    if (t->error.code == ERR_OK) {
        free(t->audio.samples);
        err_set(&t->error, ERR_CANCELLED, "the client has gone");
    }
    if (t->error.code == ERR_CANCELLED && is_late(t))
        err_set(&t->error, ERR_TIMEOUT, "the deadline passed while the sound was decoded");
    api_fields_clean(t->error.text);
    if (t->error.code == ERR_INVALID || t->error.code == ERR_UNSUPPORTED) {
        snprintf(t->error.param, sizeof t->error.param, "file");
        reply_problem(r, 400, "invalid_request_error", t->error.code == ERR_UNSUPPORTED ? "unsupported_format" : "invalid_value",
                      &t->error);
    } else {
        reply_error(r, &t->error);
    }
}

static void on_gone_decoding(struct request *r)
{
    struct transcription *t = r->ud;
    atomic_store(&t->stop, true);
}

static void release(void *object)
{
    struct transcription *t = object;
    buf_done(&t->text);
    buf_done(&t->parts);
}

static void start(struct request *r, bool translate)
{
    struct transcription *t = arena_alloc(&r->arena, sizeof *t);
    struct fields f;
    api_job_init(&t->job, r, on_event, answer);
    t->translate = translate;
    buf_init(&t->text, MAX_ANSWER);
    buf_init(&t->parts, MAX_ANSWER);
    arena_defer(&r->arena, release, t);
    api_fields_init(&f, r);
    api_form_read(&f, form, sizeof form / sizeof *form);
    api_fields_check(&f, &api_transcribe_create_body);
    read_all(t, &f);
    if (f.failed) {
        api_fields_reply(&f);
        return;
    }
    err full = {0};
    if (engine_room(t->job.engine, t->job.caller.account, t->file->size, &full)) {
        reply_error(r, &full);
        return;
    }
    r->ud = t;
    r->on_gone = on_gone_decoding;
    request_work(r, decode, decoded);
}

void api_transcribe_create(struct request *r)
{
    start(r, false);
}

void api_transcribe_translate(struct request *r)
{
    start(r, true);
}
