// vorbis.h - Ogg Vorbis by libvorbisfile, read from beginning to end. libsndfile decodes it too, but forgets memory when a
// file is damaged at its beginning, and ends a chained file with its first part.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct audio_source;
struct vorbis;

bool vorbis_is(const uint8_t *head, size_t n);  // the first page of an Ogg file
// ERR_INVALID: the headers are damaged.
MUST_CHECK err_code vorbis_open(const struct audio_source *src, struct vorbis **ret_vorbis, err *e);
void vorbis_format(const struct vorbis *v, int *ret_channels, int *ret_rate);
// Interleaved frames; 0 at the end, or where a part of another format follows; -1: an input error.
int64_t vorbis_read(struct vorbis *v, float *out, size_t frames);
void vorbis_close(struct vorbis *v);
