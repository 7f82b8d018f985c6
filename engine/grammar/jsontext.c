// jsontext.c - see the header.
#include "engine/grammar/jsontext.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

void jsontext_string(const char *text, size_t len, struct buf *out)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    buf_add_char(out, '"');
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        const char *at = c ? strchr(from, c) : NULL;
        if (at)
            buf_printf(out, "\\%c", to[at - from]);
        else if (c < 0x20)
            buf_printf(out, "\\u%04x", c);
        else
            buf_add_char(out, (char)c);
    }
    buf_add_char(out, '"');
}

static void real(double x, struct buf *out)
{
    char text[64];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    buf_add_str(out, text);
}

static void array(const json_t *v, struct buf *out)
{
    buf_add_char(out, '[');
    for (size_t i = 0; i < json_array_size(v); i++) {
        if (i)
            buf_add_char(out, ',');
        jsontext_value(json_array_get(v, i), out);
    }
    buf_add_char(out, ']');
}

static void object(const json_t *v, struct buf *out)
{
    const char *key, *comma = "";
    size_t len;
    json_t *one;
    buf_add_char(out, '{');
    json_object_keylen_foreach((json_t *)v, key, len, one) {
        buf_add_str(out, comma);
        jsontext_string(key, len, out);
        buf_add_char(out, ':');
        jsontext_value(one, out);
        comma = ",";
    }
    buf_add_char(out, '}');
}

void jsontext_value(const json_t *v, struct buf *out)
{
    switch (json_typeof(v)) {
    case JSON_NULL: buf_add_str(out, "null"); break;
    case JSON_TRUE: buf_add_str(out, "true"); break;
    case JSON_FALSE: buf_add_str(out, "false"); break;
    case JSON_INTEGER: buf_printf(out, "%lld", (long long)json_integer_value(v)); break;
    case JSON_REAL: real(json_real_value(v), out); break;
    case JSON_STRING: jsontext_string(json_string_value(v), json_string_length(v), out); break;
    case JSON_ARRAY: array(v, out); break;
    case JSON_OBJECT: object(v, out); break;
    }
}

// %XX, then ~1 and ~0, in place.
static void unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from; to++) {
        unsigned byte;
        if (*from == '%' && sscanf(from + 1, "%2x", &byte) == 1 && from[1] && from[2]) {
            *to = (char)byte;
            from += 3;
        } else {
            *to = *from++;
        }
    }
    *to = 0;
    to = text;
    for (const char *from = text; *from; from++) {
        bool escaped = *from == '~' && (from[1] == '0' || from[1] == '1');
        *to++ = escaped ? (from[1] == '1' ? '/' : '~') : *from;
        from += escaped;
    }
    *to = 0;
}

const json_t *jsontext_member(const json_t *v, const char *part, size_t n)
{
    char *name = mem_new(n + 1);
    memcpy(name, part, n);
    unescape(name);
    const json_t *found = !json_is_array(v) ? json_object_get(v, name)
                          : *name >= '0' && *name <= '9' ? json_array_get(v, strtoul(name, NULL, 10)) : NULL;
    free(name);
    return found;
}
