// Speed of speech: length, pitch, level, no clicks, the same samples however the input is cut.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "codecs/stretch.h"
#include "tests/helpers/sound.h"

static err_code collect(void *ud, const float *samples, size_t n, err *e)
{
    (void)e;
    assert_true(n > 0);
    return buf_add(ud, samples, n * sizeof *samples) ? ERR_OK : ERR_MEMORY;
}

static struct buf stretched(double speed, const float *in, size_t n, size_t piece)
{
    struct buf b;
    err e = {0};
    buf_init(&b, 1 << 28);
    struct stretch *s = stretch_new(speed, 24000);
    for (size_t at = 0; at < n; at += piece)
        assert_int_equal(stretch_add(s, in + at, n - at < piece ? n - at : piece, collect, &b, &e), ERR_OK);
    assert_int_equal(stretch_finish(s, collect, &b, &e), ERR_OK);
    stretch_free(s);
    return b;
}

static const double speeds[] = {0.25, 0.5, 0.8, 0.97, 1, 1.1, 1.5, 2, 3, 4};
enum { NSPEEDS = sizeof speeds / sizeof *speeds };

// A tone keeps its pitch and level; the largest step between samples stays that of the tone.
static void test_tone(void **state)
{
    (void)state;
    size_t n = 4 * 24000;
    float *tone = sound_tone(220, 0.5, 24000, 1, -1, n);
    double slope = 0.5 * 6.2831853 * 220 / 24000;
    for (int i = 0; i < NSPEEDS; i++) {
        struct buf b = stretched(speeds[i], tone, n, 2048);
        size_t got = b.len / sizeof(float);
        const float *out = (const float *)(const void *)b.data;
        assert_int_equal(got, llround((double)n / speeds[i]));
        // The middle, without the end that may fade into silence.
        double level = 0, rms = sound_rms(out + 1200, got - 3600), step = 0;
        for (size_t at = 1200; at + 4800 + 2400 <= got; at += 4800) {
            double one = sound_level(out + at, 4800, 220, 24000);
            level = at == 1200 || one < level ? one : level;
        }
        for (size_t k = 1; k < got - 2400; k++)
            step = fmax(step, fabs((double)out[k] - out[k - 1]));
        // seen: level 0.4987 to 0.5000, rms 0.3535 to 0.3536, step at most 1.001 times the tone's
        if (level < 0.49 || fabs(rms - 0.5 / sqrt(2)) > 0.005 || step > 1.1 * slope)
            fail_msg("speed %g: level %.4f, rms %.4f, step %.4f of %.4f", speeds[i], level, rms, step, slope);
        buf_done(&b);
    }
    free(tone);
}

static void test_cuts(void **state)
{
    (void)state;
    enum { N = 30000 };
    float *in = malloc(N * sizeof *in);
    for (int i = 0; i < N; i++)
        in[i] = (float)(sin(i * i * 1e-6) * 0.4 + ((unsigned)i * 2654435761u >> 16 & 0xFF) / 2560.0);
    for (int i = 0; i < NSPEEDS; i++) {
        struct buf whole = stretched(speeds[i], in, N, N);
        static const size_t pieces[] = {1, 7, 300, 2048, 9999};
        for (int k = 0; k < 5; k++) {
            struct buf b = stretched(speeds[i], in, N, pieces[k]);
            assert_int_equal(b.len, whole.len);
            assert_memory_equal(b.data, whole.data, b.len);
            buf_done(&b);
        }
        if (speeds[i] == 1)
            assert_memory_equal(whole.data, in, N * sizeof *in);
        buf_done(&whole);
    }
    free(in);
}

static void test_short(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 2, 299, 300, 301, 600, 1500};
    float *in = sound_tone(220, 0.5, 24000, 1, -1, 1500);
    for (int i = 0; i < NSPEEDS; i++)
        for (int k = 0; k < 8; k++) {
            struct buf b = stretched(speeds[i], in, lengths[k], 100);
            assert_int_equal(b.len / sizeof(float), llround((double)lengths[k] / speeds[i]));
            buf_done(&b);
        }
    free(in);
}

static err_code refuse(void *ud, const float *samples, size_t n, err *e)
{
    (void)ud, (void)samples, (void)n;
    return err_set(e, ERR_CANCELLED, "no");
}

static void test_refused(void **state)
{
    (void)state;
    float *in = sound_tone(220, 0.5, 24000, 1, -1, 5000);
    struct stretch *s = stretch_new(2, 24000);
    err e = {0};
    assert_int_equal(stretch_add(s, in, 5000, refuse, NULL, &e), ERR_CANCELLED);
    stretch_free(s);
    free(in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tone),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_short),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
