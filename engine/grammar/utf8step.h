// utf8step.h - UTF-8 byte by byte: where inside a character a text stands. No overlong forms, no surrogates.
#pragma once

#include <stdint.h>

// Below UTF8STEP_BETWEEN: inside a character whose next byte is in [lo, hi] and that needs `left` more.
enum { UTF8STEP_BETWEEN = 7, UTF8STEP_BAD };

static inline uint32_t utf8step(uint32_t at, uint8_t byte)
{
    static const struct {
        uint8_t lo, hi, left;
    } tails[] = {{0x80, 0xBF, 1}, {0x80, 0xBF, 2}, {0x80, 0xBF, 3}, {0xA0, 0xBF, 2}, {0x80, 0x9F, 2}, {0x90, 0xBF, 3},
                 {0x80, 0x8F, 3}};
    if (at < UTF8STEP_BETWEEN) {
        if (byte < tails[at].lo || byte > tails[at].hi)
            return UTF8STEP_BAD;
        return tails[at].left == 1 ? UTF8STEP_BETWEEN : tails[at].left == 2 ? 0 : 1;
    }
    if (byte < 0x80)
        return UTF8STEP_BETWEEN;
    if (byte >= 0xC2 && byte <= 0xDF)
        return 0;
    if (byte >= 0xE0 && byte <= 0xEF)
        return byte == 0xE0 ? 3 : byte == 0xED ? 4 : 1;
    if (byte >= 0xF0 && byte <= 0xF4)
        return byte == 0xF0 ? 5 : byte == 0xF4 ? 6 : 2;
    return UTF8STEP_BAD;
}
