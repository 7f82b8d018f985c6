// base64.c - see base64.h.
#include "codecs/base64.h"

#include <stdint.h>

#include "base/mem.h"

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

bool base64_length(size_t n, size_t *ret_length)
{
    return size_mul(n / 3 + (n % 3 != 0), 4, ret_length);
}

void base64_encode(const void *bytes, size_t n, char *out)
{
    const uint8_t *p = bytes;
    for (; n >= 3; n -= 3, p += 3) {
        *out++ = letters[p[0] >> 2];
        *out++ = letters[(p[0] & 3) << 4 | p[1] >> 4];
        *out++ = letters[(p[1] & 15) << 2 | p[2] >> 6];
        *out++ = letters[p[2] & 63];
    }
    if (n == 0)
        return;
    uint8_t second = n > 1 ? p[1] : 0;
    out[0] = letters[p[0] >> 2];
    out[1] = letters[(p[0] & 3) << 4 | second >> 4];
    out[2] = n > 1 ? letters[(second & 15) << 2] : '=';
    out[3] = '=';
}
