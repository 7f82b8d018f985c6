// sound.h - for tests of sound: tones, WAV files of every kind, memory as a source, and measuring what came out.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "codecs/audio_read.h"

// What a WAV file's header says; sound_wav fills it from the rest when a member is 0.
struct sound_wav {
    int tag, bits, channels, rate;  // tag 1: integers, 3: floats, 6: A-law, 7: mu-law
    bool extensible, big_endian;
};

// frames of a tone of hz on channel `on` (-1: all), as floats [frames, channels].
float *sound_tone(double hz, double amplitude, int rate, int channels, int on, size_t frames);
// The samples in the file's own encoding, without a header.
void sound_encode(struct buf *b, const struct sound_wav *w, const float *samples, size_t n);
// A chunk's name and size.
void sound_chunk(struct buf *b, const struct sound_wav *w, const char *id, uint32_t size);
// "fmt " and its content.
void sound_format(struct buf *b, const struct sound_wav *w);
// A whole file with right sizes.
void sound_wav(struct buf *b, const struct sound_wav *w, const float *samples, size_t frames);

struct sound_memory {
    const void *data;
    size_t size;
};
struct audio_source sound_source(struct sound_memory *m);

// Amplitude of a frequency in samples (one bin of a Fourier transform over all of them).
double sound_level(const float *samples, size_t n, double hz, double rate);
double sound_rms(const float *samples, size_t n);
