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
