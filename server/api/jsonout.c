// jsonout.c - strings and numbers of JSON into a buffer. Any thread; owns nothing.
#include "server/api/jsonout.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

static void escape(struct buf *b, uint32_t cp)
{
    static const char shorts[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    for (const char *p = shorts; *p; p += 2)
        if ((uint32_t)*p == cp) {
            char two[2] = {'\\', p[1]};
            buf_add(b, two, 2);
            return;
        }
    buf_printf(b, "\\u%04x", (unsigned)cp);
}

static bool plain(uint32_t cp)
{
    return cp >= 0x20 && cp != '"' && cp != '\\' && cp != 0x85 && cp != 0x2028 && cp != 0x2029;
}

void api_jsonout_string(struct buf *b, const char *s, size_t n)
{
    buf_add_char(b, '"');
    size_t from = 0, i = 0;
    while (i < n) {
        uint32_t cp = 0;
        int len = utf8_decode(s + i, n - i, &cp);
        if (len && plain(cp)) {
            i += (size_t)len;
            continue;
        }
        if (i > from)
            buf_add(b, s + from, i - from);
        if (len)
            escape(b, cp);
        else
            buf_add_str(b, "\xEF\xBF\xBD");
        i += len ? (size_t)len : utf8_bad_length(s + i, n - i);
        from = i;
    }
    if (i > from)
        buf_add(b, s + from, i - from);
    buf_add_char(b, '"');
}

void api_jsonout_text(struct buf *b, const char *s)
{
    if (s)
        api_jsonout_string(b, s, strlen(s));
    else
        buf_add_str(b, "null");
}

void api_jsonout_float(struct buf *b, float v)
{
    if (isnan(v)) {
        buf_add_str(b, "null");
        return;
    }
    char text[40];
    snprintf(text, sizeof text, "%.9g", (double)fmaxf(v, -9999.0f));
    // The shortest form that reads back as the same float.
    for (int digits = 4; digits < 9; digits++) {
        char shorter[40];
        snprintf(shorter, sizeof shorter, "%.*g", digits, (double)fmaxf(v, -9999.0f));
        float back;
        if (sscanf(shorter, "%f", &back) == 1 && back == fmaxf(v, -9999.0f)) {
            memcpy(text, shorter, sizeof text);
            break;
        }
    }
    buf_add_str(b, text);
    if (!strpbrk(text, ".e"))
        buf_add_str(b, ".0");
}

// 9 digits of a in [1e-5, 1e6) at p; returns the end. Zeros at the end are left out.
static char *put_digits(char *p, double a)
{
    static const double ten[] = {1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11,
                                 1e12, 1e13};
    int e = 5;  // ten[e + 5] <= a < ten[e + 6]
    while (a < ten[e + 5])
        e--;
    long digits = lround(a * ten[8 - e + 5]);
    if (digits == 1000000000) {
        digits = 100000000;
        e++;
    }
    char d[9];
    for (int i = 8; i >= 0; i--, digits /= 10)
        d[i] = (char)('0' + digits % 10);
    int used = 9, at = 0;
    while (used > 1 && used > e + 1 && d[used - 1] == '0')
        used--;
    if (e < 0)
        *p++ = '0';
    for (; at <= e; at++)
        *p++ = d[at];
    *p++ = '.';
    for (int i = e + 1; i < 0; i++)
        *p++ = '0';
    if (at == used)
        *p++ = '0';
    for (; at < used; at++)
        *p++ = d[at];
    return p;
}

void api_jsonout_floats(struct buf *b, const float *v, size_t n)
{
    char text[4096], *p = text;
    buf_add_char(b, '[');
    for (size_t i = 0; i < n; i++) {
        double a = fabs((double)v[i]);
        if (i)
            *p++ = ',';
        if (v[i] < 0)
            *p++ = '-';
        if (a >= 1e-5 && a < 999999)
            p = put_digits(p, a);
        else
            p += snprintf(p, 40, a == 0 ? "0.0" : "%.9g", a);
        if (p - text > (ptrdiff_t)sizeof text - 64) {
            buf_add(b, text, (size_t)(p - text));
            p = text;
        }
    }
    buf_add(b, text, (size_t)(p - text));
    buf_add_char(b, ']');
}
