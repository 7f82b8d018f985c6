// See the header. Tables of ranges; pure functions of any thread.
#include "server/hub/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

struct range4 {
    uint32_t net;
    int bits;
};

static const struct range4 special4[] = {
    {0x00000000, 8},  {0x0A000000, 8},  {0x64400000, 10}, {0x7F000000, 8},  {0xA9FE0000, 16}, {0xAC100000, 12},
    {0xC0000000, 24}, {0xC0000200, 24}, {0xC0586300, 24}, {0xC0A80000, 16}, {0xC6120000, 15}, {0xC6336400, 24},
    {0xCB007100, 24}, {0xE0000000, 4},  {0xF0000000, 4},
};

struct range6 {
    uint8_t net[16];
    int bits;
};

// Inside 2000::/3, outside of which nothing is public but what holds an IPv4 address.
static const struct range6 special6[] = {
    {{0x20, 0x01, 0x00}, 23},              // IETF protocols, Teredo among them
    {{0x20, 0x01, 0x0D, 0xB8}, 32},        // documentation
    {{0x3F, 0xFF, 0x00}, 20},              // documentation
};

static bool public4(uint32_t a)
{
    for (size_t i = 0; i < sizeof special4 / sizeof *special4; i++)
        if (((a ^ special4[i].net) >> (32 - special4[i].bits)) == 0)
            return false;
    return true;
}

static bool in_range6(const uint8_t a[16], const uint8_t net[16], int bits)
{
    int whole = bits / 8, rest = bits % 8;
    return !memcmp(a, net, (size_t)whole) && (!rest || ((a[whole] ^ net[whole]) >> (8 - rest)) == 0);
}

static uint32_t word(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static bool public6(const uint8_t a[16])
{
    static const uint8_t mapped[16] = {[10] = 0xFF, [11] = 0xFF}, nat64[16] = {0x00, 0x64, 0xFF, 0x9B},
                         six_to_four[16] = {0x20, 0x02}, unicast[16] = {0x20};
    if (in_range6(a, mapped, 96) || in_range6(a, nat64, 96))
        return public4(word(a + 12));
    if (in_range6(a, six_to_four, 16))
        return public4(word(a + 2));
    if (!in_range6(a, unicast, 3))
        return false;
    for (size_t i = 0; i < sizeof special6 / sizeof *special6; i++)
        if (in_range6(a, special6[i].net, special6[i].bits))
            return false;
    return true;
}

bool address_public(const struct sockaddr *a)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (a->sa_family == AF_INET) {
        memcpy(&v4, a, sizeof v4);
        return public4(ntohl(v4.sin_addr.s_addr));
    }
    if (a->sa_family != AF_INET6)
        return false;
    memcpy(&v6, a, sizeof v6);
    return public6(v6.sin6_addr.s6_addr);
}

bool address_link_local(const struct sockaddr *a)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    if (a->sa_family == AF_INET) {
        memcpy(&v4, a, sizeof v4);
        return ntohl(v4.sin_addr.s_addr) >> 16 == 0xA9FE;
    }
    if (a->sa_family != AF_INET6)
        return false;
    memcpy(&v6, a, sizeof v6);
    const uint8_t *b = v6.sin6_addr.s6_addr;
    static const uint8_t mapped[12] = {[10] = 0xFF, [11] = 0xFF};
    return (b[0] == 0xFE && (b[1] & 0xC0) == 0x80) || (!memcmp(b, mapped, 12) && word(b + 12) >> 16 == 0xA9FE);
}

const char *address_text(const struct sockaddr *a, char *out)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    strcpy(out, "?");
    if (a->sa_family == AF_INET) {
        memcpy(&v4, a, sizeof v4);
        inet_ntop(AF_INET, &v4.sin_addr, out, 64);
    } else if (a->sa_family == AF_INET6) {
        memcpy(&v6, a, sizeof v6);
        inet_ntop(AF_INET6, &v6.sin6_addr, out, 64);
    }
    return out;
}
