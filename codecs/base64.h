// base64.h - bytes to base64 (RFC 4648, with padding, no line breaks).
#pragma once

#include <stdbool.h>
#include <stddef.h>

// Letters that n bytes need; false when that is more than a size can say.
bool base64_length(size_t n, size_t *ret_length);
// Writes them all to out, without a terminator.
void base64_encode(const void *bytes, size_t n, char *out);
