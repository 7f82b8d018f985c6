// The output of `oxinferd devices`: every line is there and says what it is asked to say.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tools.h"
#include "kernels/cpu.h"
#include "kernels/host.h"

static char *output(int threads)
{
    char *text = NULL;
    size_t size;
    err e = {0};
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    err_code code = tools_devices(threads, f, &e);
    fclose(f);
    if (code)
        fail_msg("%s", e.text);
    return text;
}

static void has(const char *text, const char *pattern)
{
    regex_t r;
    assert_int_equal(regcomp(&r, pattern, REG_EXTENDED | REG_NOSUB | REG_NEWLINE), 0);
    int rc = regexec(&r, text, 0, NULL, 0);
    regfree(&r);
    if (rc)
        fail_msg("no line '%s' in\n%s", pattern, text);
}

static void test_lines(void **state)
{
    (void)state;
    struct cpu_info c;
    char line[128];
    char *text = output(0);
    cpu_probe(&c);
    has(text, "^cpu          .+$");
    has(text, "^features     ");
    snprintf(line, sizeof line, "^kernels      %s: the best that this CPU runs", c.isa);
    has(text, line);
    has(text, "^cores        [0-9]+ online, [0-9]+ in the cpuset \\([0-9,-]+\\), the cgroup('s quota is [0-9.]+| has no "
              "quota); [0-9]+ used: .+$");
    has(text, "^caches       L1d .+, L2 .+, L3 .+$");
    has(text, "^memory       [0-9.]+ GB; the cgroup('s limit is [0-9.]+ GB| has no limit)$");
    has(text, "^measured     1 thread: [0-9.]+ GB/s read, [0-9]+ GFLOP/s f32, [0-9]+ GFLOP/s bf16, [0-9]+ GOP/s int8$");
    int used = host_cores_for(host_cpus(NULL, 0), host_quota());
    if (used > 1) {
        snprintf(line, sizeof line, "^measured     %d threads: ", used);
        has(text, line);
    }
    has(text, "^gpu ");
    free(text);
}

static void test_setting(void **state)
{
    (void)state;
    char *text = output(1);
    err e = {0};
    has(text, "; 1 used: --threads 1$");
    assert_null(strstr(text, "threads:"));
    free(text);
    assert_int_equal(tools_devices(100000, stdout, &e), ERR_INVALID);
    assert_string_equal(e.param, "threads");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lines), cmocka_unit_test(test_setting)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
