// Which addresses are public.
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "server/hub/address.h"

static bool is_public(const char *text, bool *ret_link_local)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    bool is6 = strchr(text, ':') != NULL;
    char shown[64];
    assert_int_equal(inet_pton(is6 ? AF_INET6 : AF_INET, text, is6 ? (void *)&v6.sin6_addr : (void *)&v4.sin_addr), 1);
    const struct sockaddr *a = is6 ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4;
    assert_true(*address_text(a, shown) && shown[0] != '?');
    *ret_link_local = address_link_local(a);
    return address_public(a);
}

static void test_inside(void **state)
{
    static const char *const inside[] = {
        "0.0.0.0",
        "0.255.255.255",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.1",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.8",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.1",
        "192.168.255.255",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:10.1.2.3",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "64:ff9b:1::808:808",
        "100::1",
        "2001::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "3fff::1",
        "fc00::1",
        "fd12:3456::1",
        "fe80::1",
        "febf::1",
        "fec0::1",
        "ff02::1",
        "5f00::1",
        "4000::1",
    };
    (void)state;
    bool local;
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++)
        if (is_public(inside[i], &local))
            fail_msg("%s counts as public", inside[i]);
    struct sockaddr unix_socket = {.sa_family = AF_UNIX};
    assert_false(address_public(&unix_socket));
}

static void test_outside(void **state)
{
    static const char *const outside[] = {
        "1.1.1.1",         "9.255.255.255",    "11.0.0.1",          "100.63.255.255", "100.128.0.0",
        "126.255.255.255", "128.0.0.1",        "169.253.255.255",   "172.15.255.255", "172.32.0.0",
        "192.0.1.1",       "192.167.255.255",  "192.169.0.0",       "198.17.255.255", "198.20.0.0",
        "223.255.255.255", "2600:1f18::1",     "2a00:1450:4001::1", "2001:200::1",    "2001:4860:4860::8888",
        "::ffff:8.8.8.8",  "64:ff9b::808:808", "2002:808:808::1",
    };
    (void)state;
    bool local;
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
        if (!is_public(outside[i], &local) || local)
            fail_msg("%s counts as not public", outside[i]);
}

static void test_link_local(void **state)
{
    (void)state;
    bool local;
    (void)is_public("169.254.169.254", &local);
    assert_true(local);
    (void)is_public("::ffff:169.254.169.254", &local);
    assert_true(local);
    (void)is_public("fe80::1", &local);
    assert_true(local);
    (void)is_public("127.0.0.1", &local);
    assert_false(local);
    (void)is_public("fd00::1", &local);
    assert_false(local);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inside),
        cmocka_unit_test(test_outside),
        cmocka_unit_test(test_link_local),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
