// sound.c - see the header.
#include "tests/helpers/sound.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

static const double two_pi = 6.283185307179586;

float *sound_tone(double hz, double amplitude, int rate, int channels, int on, size_t frames)
{
    float *s = mem_new((frames * (size_t)channels + 1) * sizeof *s);
    for (size_t i = 0; i < frames; i++)
        for (int c = 0; c < channels; c++)
            if (on < 0 || c == on)
                s[i * (size_t)channels + (size_t)c] = (float)(amplitude * sin(two_pi * hz * (double)i / rate));
    return s;
}

static void add_number(struct buf *b, bool big_endian, uint64_t v, int n)
{
    for (int i = 0; i < n; i++)
        buf_add_char(b, (char)(v >> 8 * (big_endian ? n - 1 - i : i)));
}

// By search over all codes, so that it is no mirror image of the reader's formula.
static unsigned companded(float v, bool mulaw)
{
    double target = v * 32768, best = 1e9;
    unsigned found = 0;
    for (unsigned code = 0; code < 256; code++) {
        unsigned u = mulaw ? ~code & 0xFF : code ^ 0x55;
        double magnitude;
        unsigned e = u >> 4 & 7, m = u & 15;
        if (mulaw)
            magnitude = ((m * 2 + 33) * pow(2, e) - 33) * 4;
        else
            magnitude = e ? (m * 2 + 33) * pow(2, e - 1) * 8 : (m * 2 + 1) * 8;
        bool negative = mulaw ? u & 0x80 : !(u & 0x80);
        double error = fabs((negative ? -magnitude : magnitude) - target);
        if (error < best) {
            best = error;
            found = code;
        }
    }
    return found;
}

void sound_encode(struct buf *b, const struct sound_wav *w, const float *samples, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double v = samples[i];
        union { float f; uint32_t u; } single = {(float)v};
        union { double d; uint64_t u; } twice = {v};
        if (w->tag == 6 || w->tag == 7)
            add_number(b, false, companded(samples[i], w->tag == 7), 1);
        else if (w->tag == 3)
            add_number(b, w->big_endian, w->bits == 32 ? single.u : twice.u, w->bits / 8);
        else if (w->bits == 8)
            add_number(b, false, (uint64_t)lround(v * 127 + 128), 1);
        else
            add_number(b, w->big_endian, (uint64_t)llround(v * (ldexp(1, w->bits - 1) - 1)), w->bits / 8);
    }
}

void sound_chunk(struct buf *b, const struct sound_wav *w, const char *id, uint32_t size)
{
    buf_add(b, id, 4);
    add_number(b, w->big_endian, size, 4);
}

void sound_format(struct buf *b, const struct sound_wav *w)
{
    int align = w->channels * w->bits / 8;
    sound_chunk(b, w, "fmt ", w->extensible ? 40 : 16);
    add_number(b, w->big_endian, w->extensible ? 0xFFFE : (unsigned)w->tag, 2);
    add_number(b, w->big_endian, (unsigned)w->channels, 2);
    add_number(b, w->big_endian, (unsigned)w->rate, 4);
    add_number(b, w->big_endian, (unsigned)(w->rate * align), 4);
    add_number(b, w->big_endian, (unsigned)align, 2);
    add_number(b, w->big_endian, (unsigned)w->bits, 2);
    if (w->extensible) {
        add_number(b, w->big_endian, 22, 2);
        add_number(b, w->big_endian, (unsigned)w->bits, 2);
        add_number(b, w->big_endian, 0, 4);
        add_number(b, w->big_endian, (unsigned)w->tag, 2);
        buf_add(b, "\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71", 14);
    }
}

void sound_wav(struct buf *b, const struct sound_wav *w, const float *samples, size_t frames)
{
    uint32_t bytes = (uint32_t)(frames * (size_t)(w->channels * w->bits / 8));
    sound_chunk(b, w, w->big_endian ? "RIFX" : "RIFF", 4 + (w->extensible ? 48 : 24) + 8 + bytes);
    buf_add_str(b, "WAVE");
    sound_format(b, w);
    sound_chunk(b, w, "data", bytes);
    sound_encode(b, w, samples, frames * (size_t)w->channels);
}

static int64_t read_memory(void *ud, int64_t at, void *out, size_t n)
{
    const struct sound_memory *m = ud;
    if (at < 0 || (uint64_t)at >= m->size)
        return 0;
    size_t left = m->size - (size_t)at, k = n < left ? n : left;
    memcpy(out, (const char *)m->data + at, k);
    return (int64_t)k;
}

struct audio_source sound_source(struct sound_memory *m)
{
    return (struct audio_source){read_memory, m, (int64_t)m->size};
}

double sound_level(const float *samples, size_t n, double hz, double rate)
{
    double re = 0, im = 0;
    for (size_t i = 0; i < n; i++) {
        re += samples[i] * cos(two_pi * hz * (double)i / rate);
        im += samples[i] * sin(two_pi * hz * (double)i / rate);
    }
    return n ? 2 * sqrt(re * re + im * im) / (double)n : 0;
}

double sound_rms(const float *samples, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)samples[i] * samples[i];
    return n ? sqrt(sum / (double)n) : 0;
}
