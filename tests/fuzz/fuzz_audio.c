// Any bytes as a sound file: our WAV reader, and libsndfile and libmpg123 behind the same limits as the daemon sets. What
// is read must be numbers, and no more than the limit allows.
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "codecs/audio_read.h"

enum { SECONDS = 20, MOST = 256 << 10 };

struct memory {
    const uint8_t *data;
    size_t size;
};

static int64_t read_memory(void *ud, int64_t at, void *out, size_t n)
{
    const struct memory *m = ud;
    if (at < 0)
        abort();
    if ((uint64_t)at >= m->size)
        return 0;
    size_t left = m->size - (size_t)at, k = n < left ? n : left;
    memcpy(out, m->data + at, k);
    return (int64_t)k;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > MOST)
        return 0;
    struct memory m = {data, size};
    struct audio_source src = {read_memory, &m, (int64_t)size};
    struct audio_limits limits = {SECONDS, NULL};
    struct audio a;
    err e = {0};
    if (audio_read(&src, &limits, &a, &e)) {
        if (!*e.text)
            abort();
        return 0;
    }
    if (!a.n || a.n > (SECONDS + 1) * AUDIO_READ_RATE || a.rate < 1 || a.channels < 1 || !(a.seconds > 0))
        abort();
    for (size_t i = 0; i < a.n; i++)
        if (!isfinite(a.samples[i]))
            abort();
    free(a.samples);
    return 0;
}
