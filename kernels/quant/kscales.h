// kscales.h - the eight 6-bit scales and eight 6-bit minima that Q4_K and Q5_K pack into 12 bytes.
#pragma once

#include <stdint.h>

// Scale and minimum of group g (0..7). The first four are the low six bits of bytes g and 4+g; the others have their
// low four bits in the halves of byte 4+g, and their high two on top of bytes g-4 and g.
static inline void kscales_get(const uint8_t s[12], int g, int *ret_scale, int *ret_min)
{
    if (g < 4) {
        *ret_scale = s[g] & 63;
        *ret_min = s[g + 4] & 63;
    } else {
        *ret_scale = (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
        *ret_min = s[g + 4] >> 4 | s[g] >> 6 << 4;
    }
}
