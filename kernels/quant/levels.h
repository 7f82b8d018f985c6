// levels.h - 4-bit codes that stand for uneven steps.
#pragma once

#include <stdint.h>

// E2M1 floats (OCP Microscaling Formats 1.0), doubled so that they are whole. Code 8, minus zero, counts as zero.
#define E2M1_LEVELS {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
static const int8_t e2m1_levels[16] = E2M1_LEVELS;

// The steps of IQ4_NL and IQ4_XS, dense near zero.
#define IQ4_LEVELS {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
static const int8_t iq4_levels[16] = IQ4_LEVELS;
