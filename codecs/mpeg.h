// mpeg.h - MP3 (and MPEG layer I and II) by libmpg123, block by block. libsndfile decodes MP3 too, but stops where it
// guesses the end to be: a file of variable bit rate without a table of contents loses its tail there.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct audio_source;
struct mpeg;

bool mpeg_is(const uint8_t *head, size_t n);
// Decodes to the first frame. ERR_INVALID: none is found.
MUST_CHECK err_code mpeg_open(const struct audio_source *src, struct mpeg **ret_mpeg, err *e);
int mpeg_rate(const struct mpeg *m);
// Frames of one channel, the average of two; 0 at the end; -1: an input error.
int64_t mpeg_read(struct mpeg *m, float *out, size_t frames);
void mpeg_close(struct mpeg *m);
