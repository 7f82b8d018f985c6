// POST /v1/audio/speech against a scripted engine: fields, voices, formats, the three ways out, errors, leaving.
#include "tests/unit/server/api/drive.h"

#include <math.h>

#include "tests/helpers/sound.h"

static void ready(void)
{
    fake.models[0] = (struct model_info){.name = "tts", .family = "orpheus", .state = MODEL_READY, .can = CAN_SPEAK,
                                         .sample_rate = 24000, .nvoices = 3, .voices = {"tara", "leo", "mia"}};
    fake.nmodels = 1;
}

static void audio(size_t n)
{
    float *tone = sound_tone(440, 0.5, 24000, 1, -1, n);
    emit(0, (struct event){.kind = EVENT_AUDIO, .values = tone, .nvalues = n});
    free(tone);
}

#define SAY(more) post(api_speech_create, "{\"model\":\"tts\",\"input\":\"Hello.\",\"voice\":\"tara\"" more "}")

static void test_streamed(void **state)
{
    (void)state;
    static const struct {
        const char *format, *type, *magic;
    } rows[] = {{"mp3", "audio/mpeg", "\xff\xf3"}, {"opus", "audio/opus", "OggS"}, {"flac", "audio/flac", "fLaC"},
                {"wav", "audio/wav", "RIFF\xff\xff\xff\xffWAVE"}, {"pcm", "audio/pcm", ""}};
    for (int i = 0; i < 5; i++) {
        char json[200];
        ready();
        snprintf(json, sizeof json, "{\"input\":\"Hello.\",\"voice\":\"tara\",\"response_format\":\"%s\"}", rows[i].format);
        post(api_speech_create, json);
        start(0, 7, 0);
        assert_false(fake.bytes);  // no sound, no 200
        audio(2048);
        assert_true(fake.bytes);
        assert_string_equal(fake.content_type, rows[i].type);
        audio(2048);
        audio(24000);
        end(0, 7, 30);
        assert_true(fake.ended && fake.bytes_ok);
        assert_true(fake.text_len > 2000);
        assert_memory_equal(fake.text, rows[i].magic, strlen(rows[i].magic));
        if (i == 3)  // TTS-04: one header, at the beginning
            assert_null(memmem(fake.text + 4, fake.text_len - 4, "RIFF", 4));
        if (i >= 3)
            assert_int_equal(fake.text_len, (i == 3 ? 44 : 0) + 2 * (4096 + 24000));
        done();
    }
    ready();
    SAY("");
    audio(10);
    assert_string_equal(fake.content_type, "audio/mpeg");
    end(0, 1, 1);
    done();
}

// "stream": false gives a file with right sizes and the same samples.
static void test_whole(void **state)
{
    (void)state;
    ready();
    SAY(",\"response_format\":\"wav\",\"stream\":false");
    audio(1000);
    audio(500);
    assert_false(fake.bytes);
    end(0, 7, 30);
    assert_int_equal(fake.status, 200);
    assert_string_equal(fake.content_type, "audio/wav");
    assert_int_equal(fake.text_len, 44 + 3000);
    assert_memory_equal(fake.text + 4, "\xdc\x0b\0\0WAVE", 8);
    assert_memory_equal(fake.text + 40, "\xb8\x0b\0\0", 4);
    done();
}

static void test_events(void **state)
{
    (void)state;
    ready();
    SAY(",\"response_format\":\"pcm\",\"stream_format\":\"sse\"");
    start(0, 7, 0);
    assert_false(fake.stream);
    emit(0, (struct event){.kind = EVENT_AUDIO, .values = (const float[]){0, 1}, .nvalues = 2});
    emit(0, (struct event){.kind = EVENT_AUDIO, .values = (const float[]){-1}, .nvalues = 1});
    end(0, 7, 30);
    assert_int_equal(fake.nevents, 3);
    assert_string_equal(fake.events[0], "{\"type\":\"speech.audio.delta\",\"audio\":\"AAD/fw==\"}");
    assert_string_equal(fake.events[1], "{\"type\":\"speech.audio.delta\",\"audio\":\"AYA=\"}");
    assert_string_equal(fake.events[2], "{\"type\":\"speech.audio.done\",\"usage\":{\"input_tokens\":7,\"output_tokens\":30,"
                                        "\"total_tokens\":37}}");
    assert_true(fake.ended && !fake.with_done);
    done();
}

static void test_fields(void **state)
{
    (void)state;
    ready();
    SAY(",\"temperature\":0.3,\"top_p\":0.9,\"repetition_penalty\":1.2,\"seed\":5,\"max_tokens\":700,\"timeout\":3,\"instructions\":"
        "\"slowly\",\"language\":\"en\",\"odd\":1");
    const struct task *t = fake.tasks[0];
    const struct sampling *p = &t->speak.sampling;
    assert_int_equal(t->speak.len, 6);
    assert_string_equal(t->speak.text, "Hello.");
    assert_string_equal(t->speak.voice, "tara");
    assert_true(fabsf(p->temperature - 0.3f) < 1e-6f && fabsf(p->top_p - 0.9f) < 1e-6f);
    assert_true(fabsf(p->repetition_penalty - 1.2f) < 1e-6f && p->seed == 5);
    assert_int_equal(t->speak.max_tokens, 700);
    assert_true(t->deadline_ns > 0);
    assert_string_equal(fake.ignored, "odd");
    audio(10);
    end(0, 1, 1);
    done();
}

static void voice_is(const char *asked, const char *want)
{
    char json[200];
    ready();
    snprintf(json, sizeof json, "{\"input\":\"Hello.\",\"voice\":%s}", asked);
    post(api_speech_create, json);
    assert_string_equal(fake.tasks[0]->speak.voice, want);
    audio(10);
    end(0, 1, 1);
    done();
}

static void test_voices(void **state)
{
    (void)state;
    voice_is("\"leo\"", "leo");
    voice_is("{\"id\":\"mia\"}", "mia");
    voice_is("\"alloy\"", "tara");
    voice_is("\"nova\"", "mia");
    voice_is("\"onyx\"", "tara");  // zac is not there: number 6 of 3
    // TTS-06
    static const char *const bad[] = {"\"nobody\"", "\"\"", "\"TARA\"", "\"../tara\"", "\"Alloy\""};
    for (int i = 0; i < 5; i++) {
        char json[200];
        ready();
        snprintf(json, sizeof json, "{\"input\":\"Hello.\",\"voice\":%s}", bad[i]);
        post(api_speech_create, json);
        const char *message = json_string_value(json_object_get(json_object_get(fake.body, "error"), "message"));
        assert_non_null(strstr(message, "tara, leo, mia"));
        was_refused(json, 400, "voice", "invalid_value");
    }
    ready();
    refused(api_speech_create, "{\"input\":\"Hello.\",\"voice\":null}", 400, "voice", "missing_required_parameter");
    ready();
    refused(api_speech_create, "{\"input\":\"Hello.\",\"voice\":3}", 400, "voice", "invalid_type");
    ready();
    refused(api_speech_create, "{\"input\":\"Hello.\",\"voice\":{}}", 400, "voice", "missing_required_parameter");
}

#define NOT(json, status, param, code)                         \
    do {                                                       \
        ready();                                               \
        refused(api_speech_create, json, status, param, code); \
    } while (0)

static void test_refused(void **state)
{
    (void)state;
    NOT("{\"model\":\"no\",\"input\":\"a\",\"voice\":\"tara\"}", 404, "", "model_not_found");
    NOT("{\"voice\":\"tara\"}", 400, "input", "missing_required_parameter");
    NOT("{\"input\":7,\"voice\":\"tara\"}", 400, "input", "invalid_type");
    // TTS-07
    static const char *const blank[] = {"", "   ", "\\n", "\\u00a0\\u3000\\u200b", "\\t\\r\\n "};
    for (int i = 0; i < 5; i++) {
        char json[200];
        snprintf(json, sizeof json, "{\"input\":\"%s\",\"voice\":\"tara\"}", blank[i]);
        NOT(json, 400, "input", "invalid_value");
    }
    NOT("{\"input\":\"a\",\"voice\":\"tara\",\"response_format\":\"aac\"}", 400, "response_format", "unsupported_value");
    NOT("{\"input\":\"a\",\"voice\":\"tara\",\"response_format\":\"xyz\"}", 400, "response_format", "invalid_value");
    NOT("{\"input\":\"a\",\"voice\":\"tara\",\"stream_format\":\"ws\"}", 400, "stream_format", "invalid_value");
    NOT("{\"input\":\"a\",\"voice\":\"tara\",\"speed\":0.2}", 400, "speed", "decimal_below_min_value");
    NOT("{\"input\":\"a\",\"voice\":\"tara\",\"speed\":4.1}", 400, "speed", "decimal_above_max_value");
    NOT("{\"input\":\"a\",\"voice\":\"tara\",\"speed\":\"fast\"}", 400, "speed", "invalid_type");
}

static void test_length(void **state)
{
    (void)state;
    for (int over = 0; over < 2; over++) {  // 4096 characters of two bytes, and one more
        struct buf b;
        buf_init(&b, 1 << 20);
        buf_add_str(&b, "{\"voice\":\"tara\",\"input\":\"");
        for (int i = 0; i < 4096 + over; i++)
            buf_add_str(&b, "\xc3\xa9");
        buf_add_str(&b, "\"}");
        ready();
        if (over) {
            refused(api_speech_create, b.data, 400, "input", "string_above_max_length");
        } else {
            post(api_speech_create, b.data);
            audio(10);
            end(0, 1, 1);
            done();
        }
        buf_done(&b);
    }
}

static void test_speed(void **state)
{
    (void)state;
    ready();
    SAY(",\"response_format\":\"pcm\",\"speed\":2");
    audio(24000);
    audio(24000);
    end(0, 1, 1);
    assert_true(fake.bytes_ok);
    assert_int_equal(fake.text_len, 2 * 24000);
    done();
}

// TTS-03: never a 200 without sound.
static void test_no_sound(void **state)
{
    (void)state;
    static const char *const more[] = {"", ",\"stream_format\":\"sse\"", ",\"stream\":false"};
    for (int i = 0; i < 3; i++) {
        char json[200];
        ready();
        snprintf(json, sizeof json, "{\"input\":\"Hello.\",\"voice\":\"tara\"%s}", more[i]);
        post(api_speech_create, json);
        start(0, 7, 0);
        end(0, 7, 3);
        assert_int_equal(fake.status, 500);
        assert_false(fake.bytes || fake.stream);
        assert_non_null(strstr(json_string_value(json_object_get(json_object_get(fake.body, "error"), "message")), "No audio"));
        done();
    }
}

static void test_failures(void **state)
{
    (void)state;
    ready();
    SAY("");
    end_badly(0, ERR_INTERNAL, "broke");
    assert_int_equal(fake.status, 500);
    done();
    ready();
    SAY("");
    audio(2048);
    end_badly(0, ERR_INTERNAL, "broke");
    assert_true(fake.ended && !fake.bytes_ok);
    done();
    ready();
    SAY(",\"stream_format\":\"sse\"");
    audio(24000);
    end_badly(0, ERR_INTERNAL, "broke");
    assert_true(fake.ended && !fake.with_done);
    assert_non_null(strstr(fake.events[fake.nevents - 1], "\"error\""));
    done();
    ready();
    err_set(&fake.refuse, ERR_BUSY, "full");
    SAY("");
    assert_int_equal(fake.status, 503);
    done();
}

static void test_client_leaves(void **state)
{
    (void)state;
    ready();
    SAY("");
    start(0, 1, 0);
    fake.r->on_gone(fake.r);
    assert_true(fake.cancelled[0]);
    end_badly(0, ERR_CANCELLED, "cancelled");
    done();
    static const char *const more[] = {",\"response_format\":\"wav\"", ",\"response_format\":\"wav\",\"stream_format\":\"sse\""};
    for (int i = 0; i < 2; i++) {
        char json[200];
        ready();
        snprintf(json, sizeof json, "{\"input\":\"Hello.\",\"voice\":\"tara\"%s}", more[i]);
        post(api_speech_create, json);
        audio(2048);
        fake.client_gone = true;
        audio(2048);
        assert_true(fake.cancelled[0]);
        audio(2048);
        end_badly(0, ERR_CANCELLED, "cancelled");
        assert_false(fake.bytes_ok);
        done();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streamed),
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_voices),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_length),
        cmocka_unit_test(test_speed),
        cmocka_unit_test(test_no_sound),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_client_leaves),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
