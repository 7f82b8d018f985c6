// Sound written in every format and read back: length, level, types, one header, bytes that leave early.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sndfile.h>

#include "codecs/audio_write.h"
#include "tests/helpers/sound.h"

struct out {
    struct buf bytes;
    size_t limit;
};

static bool sink(void *ud, const void *bytes, size_t n)
{
    struct out *o = ud;
    return buf_add(&o->bytes, bytes, n) && o->bytes.len <= o->limit;
}

static void write_sound(enum audio_format format, int rate, const float *samples, size_t n, size_t piece, struct out *o)
{
    struct audio_writer *w;
    err e = {0};
    buf_init(&o->bytes, 1 << 26);
    o->limit = 1 << 26;
    assert_int_equal(audio_write_open(format, rate, sink, o, &w, &e), ERR_OK);
    for (size_t at = 0; at < n; at += piece)
        assert_int_equal(audio_write_samples(w, samples + at, n - at < piece ? n - at : piece, &e), ERR_OK);
    assert_int_equal(audio_write_finish(w, &e), ERR_OK);
    audio_write_close(w);
}

// What a whole answer does with bytes that n samples made: the writer knows how many there were.
static void fix(enum audio_format format, size_t n, struct out *o)
{
    struct audio_writer *w;
    struct out again = {.limit = 1 << 26};
    err e = {0};
    float *none = sound_tone(1, 0, 24000, 1, -1, n);
    buf_init(&again.bytes, 1 << 26);
    assert_int_equal(audio_write_open(format, 24000, sink, &again, &w, &e), ERR_OK);
    assert_int_equal(audio_write_samples(w, none, n, &e), ERR_OK);
    assert_int_equal(audio_write_finish(w, &e), ERR_OK);
    audio_write_fix(w, o->bytes.data, o->bytes.len);
    audio_write_close(w);
    buf_done(&again.bytes);
    free(none);
}

static struct audio read_back(const struct out *o)
{
    struct sound_memory m = {o->bytes.data, o->bytes.len};
    struct audio_source src = sound_source(&m);
    struct audio_limits limits = {100, NULL};
    struct audio a;
    err e = {0};
    if (audio_read(&src, &limits, &a, &e))
        fail_msg("%s", e.text);
    return a;
}

// Three seconds of a tone. MP3 and Opus may start a little late and end a little later.
static void test_round_trip(void **state)
{
    (void)state;
    static const struct {
        enum audio_format format;
        const char *magic, *container;
        double more_s, level;  // seen: mp3 0.072 (whole frames and the encoder's delay) and 0.475 (LAME's own), others 0
    } rows[] = {
        {AUDIO_WAV, "RIFF", "wav", 0.0001, 0.5}, {AUDIO_FLAC, "fLaC", "flac", 0.0001, 0.5},
        {AUDIO_OPUS, "OggS", "ogg", 0.05, 0.5}, {AUDIO_MP3, "\xff\xf3", "mp3", 0.15, 0.475},
    };
    size_t n = 3 * 24000;
    float *tone = sound_tone(440, 0.5, 24000, 1, -1, n);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct out o, whole;
        write_sound(rows[i].format, 24000, tone, n, 2048, &o);
        write_sound(rows[i].format, 24000, tone, n, n, &whole);
        assert_memory_equal(o.bytes.data, rows[i].magic, strlen(rows[i].magic));
        if (rows[i].format != AUDIO_OPUS) {  // a stream of Ogg has a random number
            assert_int_equal(o.bytes.len, whole.bytes.len);
            assert_memory_equal(o.bytes.data, whole.bytes.data, o.bytes.len);
        }
        struct audio a = read_back(&o);
        assert_string_equal(a.container, rows[i].container);
        assert_int_equal(a.rate, 24000);
        double more = a.seconds - 3, level = sound_level(a.samples + 8000, 32000, 440, 16000);
        if (more < 0 || more > rows[i].more_s || fabs(level - rows[i].level) > 0.01)
            fail_msg("%s: %.4f s more, level %.4f", rows[i].container, more, level);
        free(a.samples);
        buf_done(&o.bytes);
        buf_done(&whole.bytes);
    }
    free(tone);
}

static void test_pcm_and_wav(void **state)
{
    (void)state;
    static const float samples[] = {0, 1, -1, 0.5f, 2, -3, 1e-9f, -0.0f};
    static const uint8_t want[] = {0, 0, 0xFF, 0x7F, 1, 0x80, 0, 0x40, 0xFF, 0x7F, 0, 0x80, 0, 0, 0, 0};
    struct out pcm, wav;
    write_sound(AUDIO_PCM, 24000, samples, 8, 3, &pcm);
    assert_int_equal(pcm.bytes.len, sizeof want);
    assert_memory_equal(pcm.bytes.data, want, sizeof want);
    write_sound(AUDIO_WAV, 24000, samples, 8, 3, &wav);
    assert_int_equal(wav.bytes.len, 44 + sizeof want);
    static const uint8_t head[] = "RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0\1\0\1\0\xc0\x5d\0\0\x80\xbb\0\0\2\0\x10\0data\xff\xff\xff\xff";
    assert_memory_equal(wav.bytes.data, head, 44);
    assert_memory_equal(wav.bytes.data + 44, want, sizeof want);
    fix(AUDIO_WAV, 8, &wav);
    assert_memory_equal(wav.bytes.data + 4, "\x34\0\0\0WAVE", 8);
    assert_memory_equal(wav.bytes.data + 40, "\x10\0\0\0", 4);
    struct audio a = read_back(&wav);
    assert_int_equal(a.rate, 24000);
    free(a.samples);
    buf_done(&pcm.bytes);
    buf_done(&wav.bytes);
}

// libsndfile as other programs use it: without a length its frames are a number nobody can allocate.
static void test_flac_tells_its_length(void **state)
{
    (void)state;
    enum { N = 70001 };
    float *tone = sound_tone(300, 0.5, 24000, 1, -1, N);
    struct out o;
    write_sound(AUDIO_FLAC, 24000, tone, N, 999, &o);
    fix(AUDIO_FLAC, N, &o);
    char path[] = "/tmp/oxinferd-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, o.bytes.data, o.bytes.len), (ssize_t)o.bytes.len);
    close(fd);
    SF_INFO info = {0};
    SNDFILE *s = sf_open(path, SFM_READ, &info);
    unlink(path);
    assert_non_null(s);
    assert_int_equal(info.frames, N);
    assert_int_equal(info.samplerate, 24000);
    assert_int_equal(info.channels, 1);
    float *back = calloc(N + 1, sizeof *back);
    assert_int_equal(sf_readf_float(s, back, N + 1), N);
    assert_float_equal(back[N - 1], tone[N - 1], 1e-4);  // seen: 1.6e-5, half a step of 16 bits
    sf_close(s);
    free(back);
    free(tone);
    buf_done(&o.bytes);
}

// What a player waits for: bytes come while samples come.
static void test_leaves_early(void **state)
{
    (void)state;
    float *tone = sound_tone(300, 0.5, 24000, 1, -1, 24000);
    for (int f = AUDIO_MP3; f <= AUDIO_PCM; f++) {
        struct out o = {.limit = 1 << 26};
        struct audio_writer *w;
        err e = {0};
        buf_init(&o.bytes, 1 << 26);
        assert_int_equal(audio_write_open((enum audio_format)f, 24000, sink, &o, &w, &e), ERR_OK);
        assert_int_equal(audio_write_samples(w, tone, 12000, &e), ERR_OK);
        size_t first = o.bytes.len;
        assert_int_equal(audio_write_samples(w, tone, 12000, &e), ERR_OK);
        if (first < 500 || o.bytes.len < first + 500)
            fail_msg("format %d: %zu, then %zu bytes", f, first, o.bytes.len);
        audio_write_close(w);
        buf_done(&o.bytes);
    }
    free(tone);
}

static void test_other_rates(void **state)
{
    (void)state;
    for (int rate = 16000; rate <= 48000; rate += 8000) {
        float *tone = sound_tone(440, 0.5, rate, 1, -1, (size_t)rate);
        struct out o;
        write_sound(AUDIO_WAV, rate, tone, (size_t)rate, 1000, &o);
        assert_in_range(o.bytes.len, 44 + 2 * 23999, 44 + 2 * 24001);
        struct audio a = read_back(&o);
        assert_true(fabs(sound_level(a.samples, a.n, 440, 16000) - 0.5) < 0.005);  // seen: 0.0006
        free(a.samples);
        free(tone);
        buf_done(&o.bytes);
    }
}

static void test_nobody_listens(void **state)
{
    (void)state;
    float *tone = sound_tone(300, 0.5, 24000, 1, -1, 48000);
    for (int f = AUDIO_MP3; f <= AUDIO_PCM; f++) {
        struct out o = {.limit = 2000};
        struct audio_writer *w;
        err e = {0};
        buf_init(&o.bytes, 1 << 26);
        assert_int_equal(audio_write_open((enum audio_format)f, 24000, sink, &o, &w, &e), ERR_OK);
        err_code rc = ERR_OK;
        for (int i = 0; i < 10 && !rc; i++)
            rc = audio_write_samples(w, tone, 48000, &e);
        assert_int_equal(rc, ERR_CANCELLED);
        assert_int_equal(audio_write_finish(w, &e), ERR_CANCELLED);
        audio_write_close(w);
        buf_done(&o.bytes);
    }
    free(tone);
}

static void test_names(void **state)
{
    (void)state;
    enum audio_format f;
    assert_true(audio_write_find("mp3", &f));
    assert_string_equal(audio_write_type(f), "audio/mpeg");
    assert_true(audio_write_find("opus", &f));
    assert_string_equal(audio_write_type(f), "audio/opus");
    assert_true(audio_write_find("pcm", &f));
    assert_int_equal(f, AUDIO_PCM);
    assert_false(audio_write_find("aac", &f));
    assert_false(audio_write_find("", &f));
    struct audio_writer *w;
    err e = {0};
    assert_int_equal(audio_write_open(AUDIO_WAV, 0, sink, NULL, &w, &e), ERR_INTERNAL);
}

// What a damaged vocoder may make: an encoder must not see it (LAME ends the process), whatever is asked for.
static void test_no_sound(void **state)
{
    (void)state;
    static const float never[] = {NAN, -NAN, INFINITY, -INFINITY, 3e38f, -2e6f};
    static float samples[3000];
    for (int format = 0; format <= AUDIO_PCM; format++)
        for (int rate = 16000; rate <= 24000; rate += 8000)
            for (size_t k = 0; k <= sizeof never / sizeof *never; k++) {
                struct audio_writer *w;
                struct out o = {.limit = 1 << 26};
                err e = {0};
                buf_init(&o.bytes, 1 << 26);
                assert_int_equal(audio_write_open((enum audio_format)format, rate, sink, &o, &w, &e), ERR_OK);
                for (int i = 0; i < 3000; i++)
                    samples[i] = 1e6f * (float)(i % 7 - 3) / 3;  // far too loud, but sound
                assert_int_equal(audio_write_samples(w, samples, 3000, &e), ERR_OK);
                samples[2999] = k < sizeof never / sizeof *never ? never[k] : 0;
                err_code want = k < sizeof never / sizeof *never ? ERR_INVALID : ERR_OK;
                assert_int_equal(audio_write_samples(w, samples, 3000, &e), want);
                assert_true(!want || strstr(e.text, "sample 2999 of 3000"));
                assert_int_equal(audio_write_finish(w, &e), ERR_OK);
                audio_write_close(w);
                buf_done(&o.bytes);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_pcm_and_wav),
        cmocka_unit_test(test_flac_tells_its_length),
        cmocka_unit_test(test_leaves_early),
        cmocka_unit_test(test_other_rates),
        cmocka_unit_test(test_nobody_listens),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_no_sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
