// cmocka.h - those names of cmocka that the tests of base and kernels use, for builds with a cross compiler: Debian
// has no cross package of cmocka itself. Prints what tests/run.sh counts. One test program includes it once.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef int (*cmocka_fixture)(void **state);

struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
    cmocka_fixture setup, teardown;
};

enum { CMOCKA_FAILED = 1, CMOCKA_SKIPPED };

static jmp_buf cmocka_end;

static inline void __attribute__((noreturn, format(printf, 3, 4)))
cmocka_fail(const char *file, int line, const char *text, ...)
{
    va_list args;
    va_start(args, text);
    printf("%s:%d: ", file, line);
    vprintf(text, args);
    va_end(args);
    printf("\n");
    longjmp(cmocka_end, CMOCKA_FAILED);
}

static inline bool cmocka_run(const struct CMUnitTest *test, void **state)
{
    volatile int end = CMOCKA_FAILED;
    switch (setjmp(cmocka_end)) {
    case 0:
        if (!test->setup || !test->setup(state)) {
            test->run(state);
            end = 0;
        }
        break;
    case CMOCKA_SKIPPED:
        end = CMOCKA_SKIPPED;
        break;
    }
    if (test->teardown && test->teardown(state))
        end = CMOCKA_FAILED;
    printf("[%s ] %s\n", end == 0 ? "       OK" : end == CMOCKA_SKIPPED ? "  SKIPPED" : "  FAILED ", test->name);
    return end != CMOCKA_FAILED;
}

static inline int cmocka_run_all(const struct CMUnitTest *tests, size_t n, cmocka_fixture setup, cmocka_fixture teardown)
{
    void *group = NULL;
    int failed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (setup && setup(&group))
        return 1;
    for (size_t i = 0; i < n; i++) {
        void *state = group;
        printf("[ RUN      ] %s\n", tests[i].name);
        failed += !cmocka_run(&tests[i], &state);
    }
    return teardown && teardown(&group) ? failed + 1 : failed;
}

#define cmocka_unit_test(f) {#f, f, NULL, NULL}
#define cmocka_unit_test_setup_teardown(f, setup, teardown) {#f, f, setup, teardown}
#define cmocka_run_group_tests(tests, setup, teardown) \
    cmocka_run_all(tests, sizeof(tests) / sizeof *(tests), setup, teardown)
#define skip() longjmp(cmocka_end, CMOCKA_SKIPPED)
#define print_message(...) printf(__VA_ARGS__)
#define fail_msg(...) cmocka_fail(__FILE__, __LINE__, __VA_ARGS__)
#define assert_true(c) ((c) ? (void)0 : fail_msg("not true: %s", #c))
#define assert_false(c) assert_true(!(c))
#define assert_null(p) assert_true((p) == NULL)
#define assert_non_null(p) assert_true((p) != NULL)
#define assert_ptr_equal(a, b) assert_true((const void *)(a) == (const void *)(b))
#define assert_int_not_equal(a, b) assert_true((intmax_t)(a) != (intmax_t)(b))
#define assert_in_range(a, low, high) assert_true((a) >= (low) && (a) <= (high))
#define assert_string_equal(a, b) assert_true(strcmp(a, b) == 0)
#define assert_memory_equal(a, b, n) assert_true(memcmp(a, b, n) == 0)
#define assert_int_equal(a, b) cmocka_int_equal((intmax_t)(a), (intmax_t)(b), #a, #b, __FILE__, __LINE__)

static inline void cmocka_int_equal(intmax_t a, intmax_t b, const char *first, const char *second, const char *file,
                                    int line)
{
    if (a != b)
        cmocka_fail(file, line, "%s is %jd, %s is %jd", first, a, second, b);
}
