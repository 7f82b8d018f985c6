// jsonout.h - JSON written straight into a buffer: answers and stream events, where a tree would only be torn down
// again.
#pragma once

#include <stddef.h>

#include "base/buf.h"

// A quoted string. Bytes that are not UTF-8 become U+FFFD; line separators that some SSE readers split at are escaped.
void api_jsonout_string(struct buf *b, const char *s, size_t n);
void api_jsonout_text(struct buf *b, const char *s);  // NUL-terminated; NULL: null
// Short: as many digits as a float has. Minus infinity is the API's floor -9999.0, no number is null.
void api_jsonout_float(struct buf *b, float v);
// An array of n finite numbers, each with the 9 digits that give back the same float; made for thousands of them.
void api_jsonout_floats(struct buf *b, const float *v, size_t n);
