// stretch.h - speech faster or slower at the same pitch: WSOLA (Verhelst and Roelands 1993). Frames of 25 ms are taken
// from the input every speed * 12.5 ms, each moved by up to 10 ms to where it continues the one before best, and added
// with overlapping halves.
//
//     struct stretch *s = stretch_new(1.5, 24000);
//     if (stretch_add(s, samples, n, out, ud, &e)) ...     // out is called with what is ready
//     if (stretch_finish(s, out, ud, &e)) ...
//     stretch_free(s);
//
// In all round(n / speed) samples come out. The same input gives the same output however it is cut. Speed 1 changes
// nothing. One thread.
#pragma once

#include <stddef.h>

#include "base/err.h"

#define STRETCH_MIN 0.25
#define STRETCH_MAX 4.0

struct stretch;
typedef err_code stretch_out(void *ud, const float *samples, size_t n, err *e);

struct stretch *stretch_new(double speed, int rate);  // within the limits
void stretch_free(struct stretch *s);
MUST_CHECK err_code stretch_add(struct stretch *s, const float *samples, size_t n, stretch_out *out, void *ud, err *e);
MUST_CHECK err_code stretch_finish(struct stretch *s, stretch_out *out, void *ud, err *e);
