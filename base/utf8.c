#include "base/utf8.h"

// What may follow a lead byte: number of continuation bytes and the range of the first of them (Unicode 15, table 3-7).
struct lead {
    int more;
    uint8_t lo, hi;
};

static struct lead lead_of(uint8_t b)
{
    if (b < 0x80) return (struct lead){0, 0, 0};
    if (b < 0xC2) return (struct lead){-1, 0, 0};
    if (b < 0xE0) return (struct lead){1, 0x80, 0xBF};
    if (b == 0xE0) return (struct lead){2, 0xA0, 0xBF};
    if (b == 0xED) return (struct lead){2, 0x80, 0x9F};
    if (b < 0xF0) return (struct lead){2, 0x80, 0xBF};
    if (b == 0xF0) return (struct lead){3, 0x90, 0xBF};
    if (b < 0xF4) return (struct lead){3, 0x80, 0xBF};
    if (b == 0xF4) return (struct lead){3, 0x80, 0x8F};
    return (struct lead){-1, 0, 0};
}

// Number of bytes at s that belong together: a whole character (*ret_whole), or its valid but unfinished start.
static size_t scan(const char *s, size_t n, bool *ret_whole)
{
    const uint8_t *b = (const uint8_t *)s;
    struct lead l = lead_of(b[0]);
    *ret_whole = l.more == 0;
    if (l.more <= 0)
        return 1;
    size_t i = 1;
    for (; i < n && i <= (size_t)l.more; i++) {
        uint8_t lo = i == 1 ? l.lo : 0x80, hi = i == 1 ? l.hi : 0xBF;
        if (b[i] < lo || b[i] > hi)
            return i;
    }
    *ret_whole = i == (size_t)l.more + 1;
    return i;
}

int utf8_decode(const char *s, size_t n, uint32_t *ret_cp)
{
    if (n == 0)
        return 0;
    bool whole;
    size_t len = scan(s, n, &whole);
    if (!whole)
        return 0;
    const uint8_t *b = (const uint8_t *)s;
    static const uint8_t mask[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t cp = b[0] & mask[len];
    for (size_t i = 1; i < len; i++)
        cp = cp << 6 | (b[i] & 0x3F);
    *ret_cp = cp;
    return (int)len;
}

int utf8_encode(uint32_t cp, char *out)
{
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000))
        cp = 0xFFFD;
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

bool utf8_valid(const char *s, size_t n)
{
    uint32_t cp;
    for (size_t i = 0; i < n;) {
        int len = utf8_decode(s + i, n - i, &cp);
        if (len == 0)
            return false;
        i += (size_t)len;
    }
    return true;
}

size_t utf8_complete(const char *s, size_t n)
{
    // An unfinished character is at most 3 bytes long, so only the last 3 places can start one.
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        size_t at = n - back;
        struct lead l = lead_of((uint8_t)s[at]);
        if (l.more == 0 || (l.more < 0 && ((uint8_t)s[at] & 0xC0) != 0x80))
            return n;
        if (l.more < 0)
            continue;
        bool whole;
        return scan(s + at, n - at, &whole) == back && !whole ? at : n;
    }
    return n;
}

size_t utf8_bad_length(const char *s, size_t n)
{
    bool whole;
    return scan(s, n, &whole);
}
