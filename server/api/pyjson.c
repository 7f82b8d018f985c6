// pyjson.c - see pyjson.h. Any thread; owns nothing.
//
// Separators ", " and ": ", keys in the order received, non-ASCII as it is; escaped are only the quote, the backslash and
// bytes below 0x20. The tree comes from our own parser, so it nests no deeper than that allows.
#include "server/api/pyjson.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_string(struct buf *b, const char *s, size_t n)
{
    static const char shorts[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    buf_add_char(b, '"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        const char *p = shorts;
        while (*p && (unsigned char)*p != c)
            p += 2;
        if (c && *p) {
            buf_add_char(b, '\\');
            buf_add_char(b, p[1]);
        } else if (c < 0x20) {
            buf_printf(b, "\\u%04x", c);
        } else {
            buf_add_char(b, (char)c);
        }
    }
    buf_add_char(b, '"');
}

// "-1.25e-07" into digits and a decimal exponent: 125 and -7, the point behind the first digit.
static int split(const char *text, char digits[32])
{
    int n = 0;
    const char *p = text;
    for (; *p && *p != 'e'; p++)
        if (*p >= '0' && *p <= '9')
            digits[n++] = *p;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    digits[n] = 0;
    return atoi(p + 1);
}

void api_pyjson_float(struct buf *b, double v)
{
    char text[40], digits[32];
    if (isnan(v) || isinf(v)) {
        buf_add_str(b, isnan(v) ? "NaN" : v < 0 ? "-Infinity" : "Infinity");
        return;
    }
    for (int precision = 0; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, v);
        if (strtod(text, NULL) == v)
            break;
    }
    int exponent = split(text, digits), n = (int)strlen(digits);
    if (signbit(v))
        buf_add_char(b, '-');
    if (exponent < -4 || exponent >= 16) {
        buf_printf(b, "%c%s%se%c%02d", digits[0], n > 1 ? "." : "", digits + 1, exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) {
        buf_printf(b, "0.%.*s%s", -exponent - 1, "0000", digits);
    } else {
        for (int i = 0; i <= exponent || i < n; i++) {
            buf_add_char(b, i < n ? digits[i] : '0');
            if (i == exponent)
                buf_add_char(b, '.');
        }
        if (n <= exponent + 1)
            buf_add_char(b, '0');
    }
}

static void add_object(struct buf *b, const json_t *v)
{
    const char *key;
    json_t *item;
    bool first = true;
    buf_add_char(b, '{');
    json_object_foreach((json_t *)v, key, item) {
        if (!first)
            buf_add_str(b, ", ");
        first = false;
        add_string(b, key, strlen(key));
        buf_add_str(b, ": ");
        api_pyjson_dump(b, item);
    }
    buf_add_char(b, '}');
}

static void add_array(struct buf *b, const json_t *v)
{
    buf_add_char(b, '[');
    for (size_t i = 0; i < json_array_size(v); i++) {
        if (i)
            buf_add_str(b, ", ");
        api_pyjson_dump(b, json_array_get(v, i));
    }
    buf_add_char(b, ']');
}

void api_pyjson_dump(struct buf *b, const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: add_object(b, v); break;
    case JSON_ARRAY: add_array(b, v); break;
    case JSON_STRING: add_string(b, json_string_value(v), json_string_length(v)); break;
    case JSON_INTEGER: buf_printf(b, "%lld", (long long)json_integer_value(v)); break;
    case JSON_REAL: api_pyjson_float(b, json_real_value(v)); break;
    case JSON_TRUE: buf_add_str(b, "true"); break;
    case JSON_FALSE: buf_add_str(b, "false"); break;
    default: buf_add_str(b, "null");
    }
}
