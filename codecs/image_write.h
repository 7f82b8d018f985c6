// image_write.h - pixels to the bytes of an image file.
//
//     uint8_t *file; size_t n;
//     if (image_write(IMAGE_PNG, rgb, 512, 768, 100, &file, &n, &e)) ...
//     free(file);
//
// Any thread; nothing is kept. A picture of a megapixel takes tens of milliseconds.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum image_format { IMAGE_PNG, IMAGE_JPEG, IMAGE_WEBP };

// "png", "jpeg", "webp".
bool image_write_find(const char *name, enum image_format *ret_format);
const char *image_write_name(enum image_format format);
const char *image_write_type(enum image_format format);  // "image/png"

// rgb [height, width, 3]. quality 0 .. 100, for the formats that lose some (not PNG). Errors: ERR_INVALID (a side that the
// format cannot have), ERR_MEMORY, ERR_INTERNAL with the library's own words. *ret_data is freed by free().
MUST_CHECK err_code image_write(enum image_format format, const uint8_t *rgb, int width, int height, int quality,
                                uint8_t **ret_data, size_t *ret_len, err *e);
