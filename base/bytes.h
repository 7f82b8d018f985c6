// bytes.h - sizes as people write and read them. Every unit counts in 1024s.
//
//     int64_t n;
//     if (!bytes_parse("1.5GB", &n)) ...       // also 512, 512k, 512 MiB, 4Gi: K, M, G, T, in any case, with or without B or iB
//     char text[BYTES_TEXT];
//     bytes_text(4509715660, text);            // "4.20 GiB (4509715660 bytes)"
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BYTES_TEXT = 48 };

// False: it is no size, or does not fit.
bool bytes_parse(const char *s, int64_t *ret_bytes);
// Returns out.
const char *bytes_text(size_t bytes, char out[BYTES_TEXT]);
