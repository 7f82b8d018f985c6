// The cgroup's CPU quota and memory limit, from made-up /proc and /sys trees.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/host.h"

static char root[64];

static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
        *p = 0;
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/test_host.XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int drop_root(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static void near(double a, double b)
{
    assert_true(a > b - 1e-9 && a < b + 1e-9);
}

static void test_none(void **state)
{
    (void)state;
    near(host_quota_at(root), 0);
    assert_int_equal(host_memory_at(root), 0);
    put("/proc/self/cgroup", "0::/\n");
    near(host_quota_at(root), 0);
    put("/sys/fs/cgroup/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/memory.max", "max\n");
    near(host_quota_at(root), 0);
    assert_int_equal(host_memory_at(root), 0);
}

// v2: the tightest of the path counts, and in a container only the mount point is there.
static void test_v2(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/pods/one/box\n");
    put("/sys/fs/cgroup/cpu.max", "400000 100000\n");
    near(host_quota_at(root), 4);
    put("/sys/fs/cgroup/pods/one/cpu.max", "150000 100000\n");
    put("/sys/fs/cgroup/pods/one/box/cpu.max", "max 100000\n");
    near(host_quota_at(root), 1.5);
    put("/sys/fs/cgroup/memory.max", "4000000000\n");
    put("/sys/fs/cgroup/pods/memory.max", "3000000000\n");
    put("/sys/fs/cgroup/pods/one/box/memory.max", "max\n");
    assert_int_equal(host_memory_at(root), 3000000000u);
}

static void test_v1(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "12:memory:/docker/a\n4:cpu,cpuacct:/docker/a\n1:name=systemd:/x\n");
    put("/sys/fs/cgroup/cpu/docker/a/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/docker/a/cpu.cfs_period_us", "100000\n");
    near(host_quota_at(root), 0);
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    near(host_quota_at(root), 2.5);
    put("/sys/fs/cgroup/cpu/docker/cpu.cfs_quota_us", "50000\n");
    put("/sys/fs/cgroup/cpu/docker/cpu.cfs_period_us", "100000\n");
    near(host_quota_at(root), 0.5);
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(host_memory_at(root), 0);
    put("/sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes", "536870912\n");
    assert_int_equal(host_memory_at(root), 536870912);
}

// v1 for some controllers beside v2: the tighter one counts.
static void test_hybrid(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "4:cpu:/\n0::/svc\n");
    put("/sys/fs/cgroup/unified/svc/cpu.max", "300000 100000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "350000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    near(host_quota_at(root), 3);
}

static void test_damaged(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "nothing here\n:\n::\n0::/a\n");
    put("/sys/fs/cgroup/a/cpu.max", "100000 0\n");
    put("/sys/fs/cgroup/cpu.max", "x y\n");
    put("/sys/fs/cgroup/memory.max", "\n");
    near(host_quota_at(root), 0);
    assert_int_equal(host_memory_at(root), 0);
}

static void test_cores_for(void **state)
{
    (void)state;
    static const struct { int cores; double quota; int expected; } cases[] = {
        {8, 0, 8}, {8, 0.2, 1}, {8, 1, 1}, {8, 1.01, 2}, {8, 3.5, 4}, {8, 8, 8}, {8, 64, 8}, {1, 0.5, 1}, {2, 1.5, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(host_cores_for(cases[i].cores, cases[i].quota), cases[i].expected);
}

static void test_this_machine(void **state)
{
    (void)state;
    int cpus[HOST_MAX_CPUS], n = host_cpus(cpus, HOST_MAX_CPUS);
    assert_true(n >= 1);
    for (int i = 1; i < n; i++)
        assert_true(cpus[i] > cpus[i - 1]);
    assert_true(host_memory() > 0 && host_memory() <= host_ram());
    assert_true(host_quota() >= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_none, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_v2, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_v1, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_hybrid, make_root, drop_root),
        cmocka_unit_test_setup_teardown(test_damaged, make_root, drop_root),
        cmocka_unit_test(test_cores_for),
        cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
