// mel.h - log-mel spectrograms as Whisper wants them (Radford et al. 2022; the constants are those of its reference).
//
//     struct mel *m = mel_new(80);
//     float peak = mel_peak(m, samples, n);                  // of the whole audio: what the floor hangs on
//     mel_power(m, samples, n, first, count, rows);          // frames first .. first + count, [count, mels]
//     mel_log(rows, count * 80, peak);
//     mel_free(m);
//
// 16 kHz samples, a frame every 160 of them, centred; 400-point transform under a periodic Hann window; Slaney filters
// up to 8 kHz. Before the first sample the audio is reflected, after the last one it is silence, for ever. A frame depends
// on its own samples alone: any cutting into calls, on any thread, gives the same bits. Immutable after mel_new.
#pragma once

#include <stddef.h>

enum { MEL_HOP = 160, MEL_RATE = 16000 };

struct mel;

struct mel *mel_new(int mels);  // 1 or more filters
void mel_free(struct mel *m);
int mel_count(const struct mel *m);

size_t mel_frames(size_t nsamples);  // whole hops of an audio

void mel_power(const struct mel *m, const float *samples, size_t n, size_t first, size_t count, float *ret_rows);
// The largest power of all frames that see a sample. Not finite when samples are not, or far too large.
float mel_peak(const struct mel *m, const float *samples, size_t n);
// Powers to features in place: (max(log10 p, log10 peak - 8) + 4) / 4, nothing below 1e-10.
void mel_log(float *rows, size_t n, float peak);
