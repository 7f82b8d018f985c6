// neon_dotprod.h - integer sums by SDOT: the four activations of a k-group are a lane of 16 loaded ones.
#pragma once

#if defined(__ARM_FEATURE_DOTPROD)

#include "kernels/cpu/neon_forms.h"

INLINE int32x4_t dot_lane(int32x4_t s, int8x16_t w, int8x16_t x, int lane)  // a constant lane
{
    switch (lane) {
    case 0:
        return vdotq_laneq_s32(s, w, x, 0);
    case 1:
        return vdotq_laneq_s32(s, w, x, 1);
    case 2:
        return vdotq_laneq_s32(s, w, x, 2);
    default:
        return vdotq_laneq_s32(s, w, x, 3);
    }
}

INLINE sums8 sums(enum mat_form f, const struct codes *c, int j0, int j1, const int8_t *q)
{
    (void)f;
    sums8 s = {vdupq_n_s32(0), vdupq_n_s32(0)};
    UNROLL for (int j = j0; j < j1; j += 4) {
        int8x16_t x = vld1q_s8(q + 4 * j);
        UNROLL for (int i = 0; i < 4; i++) {
            s.l = dot_lane(s.l, c->w[j + i][0], x, i);
            s.h = dot_lane(s.h, c->w[j + i][1], x, i);
        }
    }
    return s;
}

#endif
