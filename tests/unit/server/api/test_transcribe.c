// POST /v1/audio/transcriptions and /translations against a scripted engine: fields, formats, streams, errors, leaving.
#include "tests/unit/server/api/drive.h"

#include <math.h>

#include "tests/helpers/sound.h"

static struct buf wav;

static int set_up_all(void **state)
{
    struct sound_wav w = {1, 16, 1, 16000, false, false};
    float *tone = sound_tone(500, 0.5, 16000, 1, -1, 20000);
    buf_init(&wav, 1 << 20);
    sound_wav(&wav, &w, tone, 20000);
    free(tone);
    set_up(state);
    return 0;
}

static int tear_down_all(void **state)
{
    (void)state;
    buf_done(&wav);
    return 0;
}

static void ready(void)
{
    fake.models[0] = (struct model_info){.name = "tiny", .family = "whisper", .state = MODEL_READY, .can = CAN_TRANSCRIBE,
                                         .multilingual = true};
    fake.nmodels = 1;
    fake.settings.max_audio_s = 7200;
}

#define SEND(handler, ...) post_form(handler, wav.data, wav.len, (const char *const[]){__VA_ARGS__, NULL})

static void segment(int id, double from, double to, const char *text, float no_speech)
{
    static const int32_t ids[] = {50364, 7, 50400};
    struct segment s = {.id = id, .seek = 100 * id, .start = from, .end = to, .text = text, .len = strlen(text), .ids = ids,
                        .nids = 3, .temperature = 0.2f, .avg_logprob = -0.25f, .compression_ratio = 1.5f,
                        .no_speech_prob = no_speech};
    emit(0, (struct event){.kind = EVENT_SEGMENT, .segment = &s});
}

// Two segments; the second text has what formats must take care of.
static void speak(void)
{
    start(0, 0, 0);
    emit(0, (struct event){.kind = EVENT_LANGUAGE, .text = "fr", .len = 2});
    segment(0, 0, 1.5, " One <b> & two.", 0.0625f);
    segment(1, 3659.9996, 3660.25, " a --> b\nc ", NAN);
    end(0, 0, 5);
}

static const char *text_of(void)
{
    return fake.text ? fake.text : "";
}

static void test_json(void **state)
{
    (void)state;
    ready();
    SEND(api_transcribe_create, "model", "tiny");
    const struct transcribe *k = &fake.tasks[0]->transcribe;
    assert_int_equal(k->nsamples, 20000);
    assert_true(fabsf(k->samples[8] - 0.5f * sinf(6.2831853f * 500 * 8 / 16000)) < 1e-3f);
    assert_null(k->language);
    assert_null(k->prompt);
    assert_false(k->timestamps || k->translate);
    assert_true(k->temperature == 0);
    speak();
    same_json(fake.body, "{\"text\":\"One <b> & two. a --> b\\nc\",\"usage\":{\"type\":\"duration\",\"seconds\":2}}");
    assert_int_equal(fake.status, 200);
    done();
}

static void test_text_srt_vtt(void **state)
{
    (void)state;
    ready();
    SEND(api_transcribe_create, "response_format", "text");
    speak();
    assert_string_equal(text_of(), "One <b> & two. a --> b\nc\n");
    assert_string_equal(fake.content_type, "text/plain; charset=utf-8");
    done();
    ready();
    SEND(api_transcribe_create, "response_format", "srt");
    assert_true(fake.tasks[0]->transcribe.timestamps);
    speak();
    assert_string_equal(text_of(), "1\n00:00:00,000 --> 00:00:01,500\nOne <b> & two.\n\n"
                                   "2\n01:01:00,000 --> 01:01:00,250\na -> b c\n\n");
    assert_string_equal(fake.content_type, "text/plain; charset=utf-8");
    done();
    ready();
    SEND(api_transcribe_create, "response_format", "vtt");
    speak();
    assert_string_equal(text_of(), "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nOne &lt;b> &amp; two.\n\n"
                                   "01:01:00.000 --> 01:01:00.250\na -> b c\n\n");
    assert_string_equal(fake.content_type, "text/vtt; charset=utf-8");
    done();
}

// WHI-02 and WHI-03: nothing said; no number that JSON lacks.
static void test_silence(void **state)
{
    (void)state;
    static const char *const want[][2] = {{"text", "\n"}, {"srt", ""}, {"vtt", "WEBVTT\n\n"}};
    for (int i = 0; i < 3; i++) {
        ready();
        SEND(api_transcribe_create, "response_format", want[i][0]);
        start(0, 0, 0);
        segment(0, 0, 1, " ", 0.9f);
        end(0, 0, 0);
        assert_int_equal(fake.status, 200);
        assert_string_equal(text_of(), want[i][1]);
        done();
    }
    ready();
    SEND(api_transcribe_create, "response_format", "verbose_json");
    start(0, 0, 0);
    end(0, 0, 0);
    same_json(fake.body, "{\"task\":\"transcribe\",\"language\":\"english\",\"duration\":1.25,\"text\":\"\",\"segments\":[],"
                         "\"usage\":{\"type\":\"duration\",\"seconds\":2}}");
    done();
}

static void test_verbose(void **state)
{
    (void)state;
    ready();
    SEND(api_transcribe_create, "response_format", "verbose_json", "timestamp_granularities[]", "segment");
    speak();
    same_json(fake.body,
              "{\"task\":\"transcribe\",\"language\":\"french\",\"duration\":1.25,\"text\":\"One <b> & two. a --> b\\nc\",\"segments\":["
              "{\"id\":0,\"seek\":0,\"start\":0,\"end\":1.5,\"text\":\" One <b> & two.\",\"tokens\":[50364,7,50400],\"temperature\":0.2,"
              "\"avg_logprob\":-0.25,\"compression_ratio\":1.5,\"no_speech_prob\":0.0625},"
              "{\"id\":1,\"seek\":100,\"start\":3660.0,\"end\":3660.25,\"text\":\" a --> b\\nc \",\"tokens\":[50364,7,50400],"
              "\"temperature\":0.2,\"avg_logprob\":-0.25,\"compression_ratio\":1.5,\"no_speech_prob\":0.0}],"
              "\"usage\":{\"type\":\"duration\",\"seconds\":2}}");
    done();
}

static void test_translation(void **state)
{
    (void)state;
    ready();
    SEND(api_transcribe_translate, "model", "tiny", "language", "xx", "stream", "maybe", "timestamp_granularities[]", "word");
    assert_true(fake.tasks[0]->transcribe.translate);
    assert_null(fake.tasks[0]->transcribe.language);
    speak();
    same_json(fake.body, "{\"text\":\"One <b> & two. a --> b\\nc\"}");
    done();
    ready();
    SEND(api_transcribe_translate, "response_format", "verbose_json");
    start(0, 0, 0);
    end(0, 0, 0);
    same_json(fake.body, "{\"task\":\"translate\",\"language\":\"english\",\"duration\":1.25,\"text\":\"\",\"segments\":[]}");
    done();
}

static void test_fields(void **state)
{
    (void)state;
    ready();
    SEND(api_transcribe_create, "prompt", "Names: \xc3\x89mile", "temperature", "0.4", "language", "German", "seed", "-3", "timeout",
         "2.5", "chunking_strategy[type]", "server_vad", "chunking_strategy[threshold]", "0.5", "keywords[]", "a", "what", "1",
         "response_format", "", "stream", "False");
    const struct task *t = fake.tasks[0];
    assert_string_equal(t->transcribe.prompt, "Names: \xc3\x89mile");
    assert_string_equal(t->transcribe.language, "de");
    assert_true(fabsf(t->transcribe.temperature - 0.4f) < 1e-6f);
    assert_true(t->transcribe.seed == (uint64_t)-3);
    assert_true(t->deadline_ns > clock_ns());
    assert_string_equal(fake.ignored, "what");
    speak();
    assert_non_null(fake.body);
    done();
    ready();
    SEND(api_transcribe_create, "language", "auto", "timestamp_granularities[]", "word", "include[]", "logprobs", "response_format",
         "text");
    assert_null(fake.tasks[0]->transcribe.language);
    speak();
    done();
}

#define NOT(status, param, code, ...)                              \
    do {                                                           \
        ready();                                                   \
        SEND(api_transcribe_create, __VA_ARGS__);                  \
        was_refused(#__VA_ARGS__, status, param, code);            \
    } while (0)

static void test_refused(void **state)
{
    (void)state;
    NOT(404, "", "model_not_found", "model", "other");
    NOT(400, "response_format", "invalid_value", "response_format", "xml");
    NOT(400, "response_format", "unsupported_value", "response_format", "diarized_json");
    NOT(400, "language", "invalid_value", "language", "klingon");
    NOT(400, "temperature", "decimal_above_max_value", "temperature", "1.5");
    NOT(400, "temperature", "invalid_type", "temperature", "warm");
    NOT(400, "stream", "unsupported_value", "stream", "true", "response_format", "srt");
    NOT(400, "stream", "invalid_type", "stream", "yes");
    NOT(400, "timestamp_granularities", "unsupported_value", "timestamp_granularities[]", "word", "response_format", "verbose_json");
    NOT(400, "timestamp_granularities", "unsupported_value", "timestamp_granularities", "[\"segment\",\"word\"]", "response_format",
        "verbose_json");
    NOT(400, "timestamp_granularities", "invalid_value", "timestamp_granularities", "segment, letter");
    NOT(400, "include", "unsupported_value", "include[0]", "logprobs");
    NOT(400, "", "invalid_value", "prompt", "\xff");
    ready();
    post_form(api_transcribe_create, NULL, 0, NULL);
    was_refused("no file", 400, "file", "missing_required_parameter");
    ready();
    post_form(api_transcribe_create, NULL, 0, (const char *const[]){"file", "abc", NULL});
    was_refused("text as file", 400, "file", "invalid_type");
    ready();
    post_form(api_transcribe_create, "", 0, NULL);
    was_refused("empty file", 400, "file", "invalid_value");
    ready();
    post_form(api_transcribe_create, "this is a text file", 19, NULL);
    was_refused("text file", 400, "file", "invalid_value");
    ready();
    post_form(api_transcribe_create, "\x1A\x45\xDF\xA3\x9f\x42\x86\x81", 8, NULL);
    assert_non_null(strstr(json_string_value(json_object_get(json_object_get(fake.body, "error"), "message")), "webm"));
    was_refused("webm", 400, "file", "unsupported_format");
    ready();
    fake.settings.max_audio_s = 1;
    SEND(api_transcribe_create, "model", "tiny");
    was_refused("too long", 400, "file", "invalid_value");
}

static void test_english_only(void **state)
{
    (void)state;
    ready();
    fake.models[0].multilingual = false;
    SEND(api_transcribe_create, "language", "fr");
    was_refused("fr", 400, "language", "unsupported_value");
    ready();
    fake.models[0].multilingual = false;
    SEND(api_transcribe_translate, "model", "tiny");
    was_refused("translation", 400, "model", "unsupported_value");
    ready();
    fake.models[0].multilingual = false;
    SEND(api_transcribe_create, "language", "en-US");
    assert_string_equal(fake.tasks[0]->transcribe.language, "en");
    end(0, 0, 0);
    done();
}

static void test_stream(void **state)
{
    (void)state;
    ready();
    SEND(api_transcribe_create, "stream", "true");
    assert_false(fake.stream);
    start(0, 0, 0);
    assert_true(fake.stream);
    segment(0, 0, 1, " I see ", 0);
    segment(1, 1, 2, " ", 0);
    segment(2, 2, 3, " skies.\n", 0);
    end(0, 0, 5);
    static const char *const want[] = {
        "{\"type\":\"transcript.text.delta\",\"delta\":\"I see\"}", "{\"type\":\"transcript.text.delta\",\"delta\":\"   skies.\"}",
        "{\"type\":\"transcript.text.done\",\"text\":\"I see   skies.\",\"usage\":{\"type\":\"duration\",\"seconds\":2}}"};
    assert_int_equal(fake.nevents, 3);
    for (int i = 0; i < 3; i++)
        assert_string_equal(fake.events[i], want[i]);
    assert_true(fake.ended && fake.with_done);
    done();
}

static void test_failures(void **state)
{
    (void)state;
    ready();
    SEND(api_transcribe_create, "stream", "true");
    end_badly(0, ERR_BUSY, "full");  // before the 200
    assert_int_equal(fake.status, 503);
    assert_false(fake.stream);
    done();
    ready();
    SEND(api_transcribe_create, "stream", "true");
    start(0, 0, 0);
    end_badly(0, ERR_INTERNAL, "broke");
    assert_int_equal(fake.nevents, 1);
    assert_non_null(strstr(fake.events[0], "\"error\""));
    assert_true(fake.ended && !fake.with_done);
    done();
    ready();
    err_set(&fake.refuse, ERR_BUSY, "full");
    SEND(api_transcribe_create, "model", "tiny");
    assert_int_equal(fake.status, 503);
    done();
}

// A full queue is said before the file is decoded.
static void test_full(void **state)
{
    (void)state;
    ready();
    err_set(&fake.room, ERR_BUSY, "full");
    fake.work_waits = true;
    SEND(api_transcribe_create, "model", "tiny");
    assert_int_equal(fake.status, 503);
    assert_null(fake.work);
    done();
}

static void test_client_leaves(void **state)
{
    (void)state;
    ready();  // while the sound is decoded
    fake.work_waits = true;
    SEND(api_transcribe_create, "model", "tiny");
    fake.r->on_gone(fake.r);
    fake.work(fake.r);
    fake.work_done(fake.r);
    assert_int_equal(fake.ntasks, 0);
    done();
    ready();  // after it
    fake.work_waits = true;
    SEND(api_transcribe_create, "model", "tiny");
    fake.work(fake.r);
    fake.r->on_gone(fake.r);
    fake.work_done(fake.r);
    assert_int_equal(fake.ntasks, 0);
    done();
    ready();  // while it runs
    SEND(api_transcribe_create, "stream", "true");
    start(0, 0, 0);
    fake.client_gone = true;
    segment(0, 0, 1, "x", 0);
    fake.r->on_gone(fake.r);
    assert_true(fake.cancelled[0]);
    end_badly(0, ERR_CANCELLED, "cancelled");
    done();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_text_srt_vtt),
        cmocka_unit_test(test_silence),
        cmocka_unit_test(test_verbose),
        cmocka_unit_test(test_translation),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_english_only),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_client_leaves),
    };
    return cmocka_run_group_tests(tests, set_up_all, tear_down_all);
}
