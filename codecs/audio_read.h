// audio_read.h - an audio file's bytes to 16 kHz mono samples: all channels averaged, whatever the file's own rate.
//
//     struct audio_source src = {read, ud, size};
//     struct audio_limits limits = {.max_s = 7200, .stop = &stop};
//     struct audio a;
//     if (audio_read(&src, &limits, &a, &e)) ...     // the text of e is for whoever sent the file
//     ... a.samples, a.n, a.seconds ...
//     free(a.samples);
//
// Read are WAV (integers of 8 to 32 bits, floats, A-law, mu-law, ADPCM, GSM), FLAC, MP3, and Ogg with Vorbis or Opus;
// the content decides, never a name. Lengths that a header claims are not believed: a file that was cut off gives
// what it holds. Blocking and slow: call it on a worker thread. Nothing here is shared between calls.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { AUDIO_READ_RATE = 16000, AUDIO_READ_CHANNELS_MAX = 64 };

struct audio_source {
    // Up to n bytes from offset at; fewer only at the end; -1: an input error.
    int64_t (*read)(void *ud, int64_t at, void *out, size_t n);
    void *ud;
    int64_t size;
};

struct audio_limits {
    int max_s;                // longer is ERR_INVALID
    const atomic_bool *stop;  // ends with ERR_CANCELLED when it becomes true; NULL: never
};

struct audio {
    float *samples;  // n of them; the caller's, freed by free()
    size_t n;
    double seconds;
    int rate, channels;      // of the file; mp3 always says one channel
    const char *container;   // "wav", "flac", "mp3", "ogg"
};

// ERR_INVALID: no audio, damaged before its first sample, too long. ERR_UNSUPPORTED: a format that is recognised and
// not read; the text names it and those that are. ERR_MEMORY, ERR_IO, ERR_CANCELLED.
MUST_CHECK err_code audio_read(const struct audio_source *src, const struct audio_limits *limits, struct audio *ret_audio,
                               err *e);
