// utf8.h - UTF-8 checking and stepping. Everything takes (bytes, length); nothing needs a terminator.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Decodes the character at s[0..n). Returns its length 1..4 and sets *ret_cp, or returns 0 when the bytes there are
// no character (overlong forms, surrogates and values past U+10FFFF included) or are cut short.
int utf8_decode(const char *s, size_t n, uint32_t *ret_cp);

// Writes cp as UTF-8 to out[4]; returns the length (U+FFFD's for values that are no character).
int utf8_encode(uint32_t cp, char *out);

bool utf8_valid(const char *s, size_t n);

// Length of the longest prefix that does not end inside a character that later bytes could still complete. Bytes that
// can never become a character count as complete: a stream may pass them on (as U+FFFD) without waiting.
size_t utf8_complete(const char *s, size_t n);

// Length of the maximal invalid subpart at s[0..n) (Unicode 15, table 3-8): how many bytes one U+FFFD replaces.
// Only for a place where utf8_decode returned 0 and n > 0; always at least 1.
size_t utf8_bad_length(const char *s, size_t n);
