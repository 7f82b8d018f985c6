// Log-mel features against transformers' (in f64), and the properties windows rely on.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/audio/mel.h"
#include "tests/helpers/speech.h"

static void check_against(const char *name, int mels)
{
    struct speech s;
    speech_load(name, &s);
    json_t *numbers = json_object_get(s.expected, "numbers"), *frames = json_object_get(numbers, "frames"), *f;
    size_t n, i;
    float *x = speech_samples(&s, (int)json_integer_value(json_object_get(numbers, "clip")), &n), worst = 0;
    float got[128], want[128];
    char file[192];
    snprintf(file, sizeof file, "%s/expected.bin", s.path);
    FILE *in = fopen(file, "rb");
    assert_non_null(in);
    struct mel *m = mel_new(mels);
    float peak = mel_peak(m, x, n);
    json_array_foreach(frames, i, f) {
        assert_int_equal(fread(want, sizeof *want, (size_t)mels, in), mels);
        mel_power(m, x, n, (size_t)json_integer_value(f), 1, got);
        mel_log(got, (size_t)mels, peak);
        for (int k = 0; k < mels; k++)
            worst = fmaxf(worst, fabsf(got[k] - want[k]));
    }
    if (!(worst <= 2e-6f))  // observed 1.2e-7
        fail_msg("%s: features differ by %g", name, (double)worst);
    mel_free(m);
    fclose(in);
    free(x);
    speech_free(&s);
}

static void test_reference(void **state)
{
    (void)state;
    check_against("multi", 80);
    check_against("english", 128);
}

// Frames do not depend on how they are asked for.
static void test_any_cut(void **state)
{
    (void)state;
    enum { N = 7777, FRAMES = 60, MELS = 80 };
    static float x[N], all[FRAMES * MELS], cut[FRAMES * MELS];
    for (int i = 0; i < N; i++)
        x[i] = sinf((float)(i * i % 1931)) * 0.3f;
    struct mel *m = mel_new(MELS);
    assert_int_equal(mel_count(m), MELS);
    mel_power(m, x, N, 0, FRAMES, all);
    for (size_t at = 0, n; at < FRAMES; at += n) {
        n = 1 + at % 7 < FRAMES - at ? 1 + at % 7 : FRAMES - at;
        mel_power(m, x, N, at, n, cut + at * MELS);
    }
    assert_memory_equal(all, cut, sizeof all);
    float peak = mel_peak(m, x, N), most = 0;
    for (int i = 0; i < FRAMES * MELS; i++)
        most = fmaxf(most, all[i]);
    assert_true(peak == most);
    for (int i = 52 * MELS; i < FRAMES * MELS; i++)
        assert_true(all[i] == 0);  // past the end: nothing
    assert_int_equal(mel_frames(N), 48);
    mel_free(m);
}

// A pure tone: the loudest filter is the one over its frequency.
static void test_tone(void **state)
{
    (void)state;
    enum { N = 16000, MELS = 80 };
    static float x[N], row[MELS];
    for (int i = 0; i < N; i++)
        x[i] = (float)sin(2 * 3.14159265358979 * 3000 * i / 16000);
    struct mel *m = mel_new(MELS);
    mel_power(m, x, N, 50, 1, row);
    int best = 0;
    for (int i = 0; i < MELS; i++)
        best = row[i] > row[best] ? i : best;
    double centre = (15 + 27 * log(3) / log(6.4)) / (15 + 27 * log(8) / log(6.4)) * (MELS + 1) - 1;
    assert_true(fabs(best - centre) < 1);
    mel_free(m);
}

static void test_silence_and_damage(void **state)
{
    (void)state;
    static float x[1000], rows[5 * 80];
    struct mel *m = mel_new(80);
    assert_true(mel_peak(m, x, 1000) == 0 && mel_peak(m, x, 0) == 0);
    mel_power(m, x, 1000, 0, 5, rows);
    mel_log(rows, 5 * 80, 0);
    for (int i = 0; i < 5 * 80; i++)
        assert_true(rows[i] == -1.5f);
    x[0] = 0.5f;  // one sample
    float peak = mel_peak(m, x, 1);
    assert_true(peak > 0 && isfinite(peak));
    x[500] = 1e30f;
    assert_false(isfinite(mel_peak(m, x, 1000)));
    x[500] = NAN;
    assert_false(isfinite(mel_peak(m, x, 1000)));
    mel_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_any_cut),
        cmocka_unit_test(test_tone),
        cmocka_unit_test(test_silence_and_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
