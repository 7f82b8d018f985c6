// audio_write.h - mono samples to an audio file's bytes, as they come: nothing that was handed out is changed later.
//
//     struct audio_writer *w;
//     if (audio_write_open(AUDIO_MP3, 24000, sink, ud, &w, &e)) ...
//     if (audio_write_samples(w, samples, n, &e)) ...        // any number of times; the sink gets bytes when there are some
//     if (audio_write_finish(w, &e)) ...                     // the rest
//     audio_write_close(w);
//
// The file has AUDIO_WRITE_RATE, whatever the samples' rate is: that is what players of headerless pcm expect. Its length
// is unknown while it is written: WAV says FFFFFFFF, FLAC says nothing; audio_write_fix tells it in a whole one of these.
// One thread at a time.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum { AUDIO_WRITE_RATE = 24000, AUDIO_WRITE_WAV_HEADER = 44 };

enum audio_format { AUDIO_MP3, AUDIO_OPUS, AUDIO_FLAC, AUDIO_WAV, AUDIO_PCM };

// "mp3", "opus" (in Ogg), "flac", "wav", "pcm" (s16le without a header).
bool audio_write_find(const char *name, enum audio_format *ret_format);
const char *audio_write_type(enum audio_format format);  // "audio/mpeg"

struct audio_writer;
// False: nobody takes the bytes any more; the call that made them fails with ERR_CANCELLED.
typedef bool audio_sink(void *ud, const void *bytes, size_t n);

MUST_CHECK err_code audio_write_open(enum audio_format format, int rate, audio_sink *sink, void *ud,
                                     struct audio_writer **ret_writer, err *e);
// Samples of -1 .. 1; what is beyond is clipped. ERR_INVALID: one is no number, or beyond a million; nothing was written.
MUST_CHECK err_code audio_write_samples(struct audio_writer *w, const float *samples, size_t n, err *e);
MUST_CHECK err_code audio_write_finish(struct audio_writer *w, err *e);
void audio_write_close(struct audio_writer *w);
// Puts the real length into the header of a whole WAV or FLAC file in memory, all that the finished writer made; other
// formats stay as they are.
void audio_write_fix(const struct audio_writer *w, void *bytes, size_t n);
