// The rules of Whisper's tokens against openai-whisper's on random logits; sampling; cutting into segments; languages.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "engine/audio/whisper_rules.h"
#include "engine/audio/whisper_segments.h"
#include "engine/engine.h"
#include "kernels/cpu.h"

enum { VOCAB = 262, EOT = 50, NO_TIMES = 60, TIMES = 61 };

static uint8_t marks[VOCAB];
static const struct whisper_tokens tokens = {.eot = EOT, .sot = 51, .no_timestamps = NO_TIMES, .first_time = TIMES,
                                             .times = VOCAB - TIMES};

static struct whisper_rules rules_of(const char *isa, bool timestamps)
{
    const struct cpu_ops *ops;
    err e = {0};
    if (cpu_select(isa, &ops, &e))
        fail_msg("%s", e.text);
    return (struct whisper_rules){.ops = ops, .tokens = &tokens, .marks = marks, .vocab = VOCAB,
                                  .timestamps = timestamps, .max_first = 50};
}

static void draw(uint32_t x, float shift, float *logits)
{
    for (int i = 0; i < VOCAB; i++) {
        x = x * 1664525 + 1013904223;
        logits[i] = (float)((int)(x >> 16) - 32768) / 8192 + (i >= TIMES ? shift : 0);
    }
}

static void check_case(const json_t *c, int number, const struct whisper_rules *r)
{
    float logits[VOCAB], logprob = 0;
    int32_t ids[32];
    const json_t *list = json_object_get(c, "ids"), *id;
    size_t n;
    int left = 0, sum = 0;
    json_array_foreach(list, n, id)
        ids[n] = (int32_t)json_integer_value(id);
    draw((uint32_t)json_integer_value(json_object_get(c, "seed")), (float)(number % 5 - 4), logits);
    whisper_rules_apply(r, ids, (int)json_array_size(list), logits);
    for (int i = 0; i < VOCAB; i++) {
        left += logits[i] > -INFINITY;
        sum += logits[i] > -INFINITY ? i : 0;
    }
    assert_int_equal(left, json_integer_value(json_object_get(c, "left")));
    assert_int_equal(sum, json_integer_value(json_object_get(c, "sum")));
    assert_int_equal(whisper_rules_pick(r, logits, 0, 0.3, &logprob), json_integer_value(json_object_get(c, "best")));
    assert_true(fabs((double)logprob - json_real_value(json_object_get(c, "logprob"))) < 2e-5);  // observed 5e-6, of rounding
}

static void test_reference(void **state)
{
    (void)state;
    json_t *root = json_load_file("tests/fixtures/whisper/rules.json", 0, NULL), *cases = json_object_get(root, "cases"), *c;
    static const char *const isas[] = {"scalar", "auto"};
    size_t i;
    assert_int_equal(json_integer_value(json_object_get(root, "vocab")), VOCAB);
    assert_int_equal(json_array_size(cases), 300);
    for (int k = 0; k < 2; k++) {
        struct whisper_rules r = rules_of(isas[k], true);
        json_array_foreach(cases, i, c)
            check_case(c, (int)i, &r);
    }
    json_decref(root);
}

static void test_without_timestamps(void **state)
{
    (void)state;
    struct whisper_rules r = rules_of("auto", false);
    float logits[VOCAB];
    memset(marks, 0, sizeof marks);
    marks[7] = SUPPRESS_ALWAYS;
    marks[EOT] = SUPPRESS_FIRST;
    for (int n = 0; n < 2; n++) {
        draw(5, 9, logits);
        whisper_rules_apply(&r, (int32_t[]){1}, n, logits);
        assert_true(logits[7] == -INFINITY && (logits[EOT] == -INFINITY) == (n == 0));
        for (int i = TIMES; i < VOCAB; i++)
            assert_true(logits[i] == -INFINITY);
    }
    memset(marks, 0, sizeof marks);
}

// Frequencies of many draws follow the softmax; an excluded token never comes; damaged logits are noticed.
static void test_sampling(void **state)
{
    (void)state;
    enum { DRAWS = 20000 };
    struct whisper_rules r = rules_of("auto", true);
    float logits[VOCAB], logprob;
    int seen[VOCAB] = {0};
    double total = 0;
    draw(77, -100, logits);
    logits[3] = -INFINITY;
    for (int i = 0; i < VOCAB; i++)
        total += exp((double)logits[i] / 0.5);
    for (int i = 0; i < DRAWS; i++)
        seen[whisper_rules_pick(&r, logits, 0.5f, rng_unit(9, 0, (uint64_t)i), &logprob)]++;
    for (int i = 0; i < VOCAB; i++) {
        double p = exp((double)logits[i] / 0.5) / total;
        assert_true(fabs(seen[i] - p * DRAWS) < 6 * sqrt(p * DRAWS) + 3);
    }
    assert_int_equal(seen[3], 0);
    for (int i = 0; i < VOCAB; i++)
        logits[i] = -INFINITY;
    assert_int_equal(whisper_rules_pick(&r, logits, 0, 0, &logprob), -1);
    for (int i = 0; i < VOCAB; i++)
        logits[i] = NAN;
    assert_int_equal(whisper_rules_pick(&r, logits, 0, 0, &logprob), -1);
    assert_true(whisper_rules_probability(&r, logits, 3) == 0);
}

// ---- segments

static const struct whisper_cut *cut(const int32_t *ids, int n)
{
    static struct whisper_cut c;
    whisper_segments_cut(&tokens, ids, n, 1000, 2000, &c);
    return &c;
}

static void is_slice(const struct whisper_cut *c, int i, int first, int n, double start, double end)
{
    assert_int_equal(c->slices[i].first, first);
    assert_int_equal(c->slices[i].n, n);
    assert_true(fabs(c->slices[i].start - start) < 1e-9 && fabs(c->slices[i].end - end) < 1e-9);
}

#define T(i) (TIMES + (i))

static void test_cuts(void **state)
{
    (void)state;
    const struct whisper_cut *c = cut((int32_t[]){T(0), 1, 2, T(50), T(60), 3, T(100)}, 7);  // ends with one stamp
    assert_int_equal(c->n, 2);
    assert_int_equal(c->advance, 2000);
    is_slice(c, 0, 0, 4, 10, 11);
    is_slice(c, 1, 4, 3, 11.2, 12);
    c = cut((int32_t[]){T(0), 1, T(50), T(60), 3, 4}, 6);  // text without an end is left to the next window
    assert_int_equal(c->n, 1);
    assert_int_equal(c->advance, 100);
    is_slice(c, 0, 0, 3, 10, 11);
    c = cut((int32_t[]){T(0), 1, T(50), T(50)}, 4);  // ends with a pair
    assert_int_equal(c->n, 1);
    assert_int_equal(c->advance, 100);
    c = cut((int32_t[]){T(5), 1, 2, T(50)}, 4);  // one segment, closed: it starts with the window
    assert_int_equal(c->n, 1);
    assert_int_equal(c->advance, 2000);
    is_slice(c, 0, 0, 4, 10, 11);
    c = cut((int32_t[]){T(0), 1, 2}, 3);  // the only stamp is <|0.00|>
    is_slice(c, 0, 0, 3, 10, 30);
    c = cut((int32_t[]){1, 2}, 2);
    is_slice(c, 0, 0, 2, 10, 30);
    c = cut(NULL, 0);
    assert_int_equal(c->n, 1);
    assert_int_equal(c->advance, 2000);
    is_slice(c, 0, 0, 0, 10, 30);
}

static void test_text(void **state)
{
    (void)state;
    size_t n;
    char many[96 + 1] = "";
    for (int i = 0; i < 16; i++)
        strcat(many, "no nay");
    assert_true(whisper_segments_ratio(many, 96) > 4);  // observed 6.4
    assert_true(whisper_segments_ratio("Hello there.", 12) < 1);
    assert_true(whisper_segments_ratio("", 0) == 0);
    static const char wide[] = "\u3000\t a b\u2003 ";
    const char *p = whisper_segments_strip(wide, strlen(wide), &n);
    assert_true(n == 3 && !memcmp(p, "a b", 3));
    p = whisper_segments_strip("\u00e9", 2, &n);
    assert_true(n == 2 && p);
    p = whisper_segments_strip(" \n", 2, &n);
    assert_true(n == 0 && p);
    whisper_segments_strip("x\xff", 2, &n);
    assert_int_equal(n, 2);
}

static void test_languages(void **state)
{
    (void)state;
    static const char *const known[][2] = {
        {"en", "en"}, {"EN", "en"}, {"English", "en"}, {"<|de|>", "de"}, {"en-US", "en"}, {"zh_TW", "zh"}, {"yue", "yue"},
        {"castilian", "es"}, {"Haitian Creole", "ht"}, {"iw", "he"}, {"Flemish", "nl"}, {"javanese", "jw"},
    };
    static const char *const unknown[] = {"", "xx", "klingon", "<||>", "-", "e", "en glish", "<|en", "a very long name of a language"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_string_equal(engine_language_code(known[i][0]), known[i][1]);
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        assert_null(engine_language_code(unknown[i]));
    assert_string_equal(engine_language_name("de"), "german");
    assert_null(engine_language_name("xx"));
    assert_null(engine_language_name(NULL));
    for (int i = 0; i < LANGUAGES; i++) {
        const char *code = engine_language_at(i);
        assert_string_equal(engine_language_code(code), code);
        assert_string_equal(engine_language_code(engine_language_name(code)), code);
    }
    assert_null(engine_language_at(LANGUAGES));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_without_timestamps),
        cmocka_unit_test(test_sampling),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_languages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
