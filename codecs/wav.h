// wav.h - WAV files (RIFF, RIFX, RF64) whose samples stand there plainly. Headers in the wild are often wrong: sizes of
// 0 or FFFFFFFF from programs that could not seek back, odd chunks without padding, chunks before "fmt ". What can be
// played is read: the data ends where its chunk says, or where the file does when that is nonsense.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct audio_source;

enum wav_kind { WAV_INT, WAV_FLOAT, WAV_ALAW, WAV_MULAW };

struct wav {
    enum wav_kind kind;
    int channels, rate, bytes;  // bytes: of one sample of one channel
    bool big_endian;
    int64_t at, end;            // where the next sample is, and where they end
};

bool wav_is(const uint8_t *head, size_t n);
// ERR_UNSUPPORTED: another codec, named in the text. ERR_INVALID: no usable "fmt " or no data. ERR_IO.
MUST_CHECK err_code wav_open(const struct audio_source *src, struct wav *ret_wav, err *e);
// Whole frames, interleaved, as floats of about -1 .. 1; 0 at the end; -1: an input error.
int64_t wav_read(struct wav *w, const struct audio_source *src, float *out, size_t frames);
