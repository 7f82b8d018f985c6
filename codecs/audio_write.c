// WAV and pcm are written by hand; FLAC, MP3 and Ogg Opus by libsndfile into a file that can only grow: what it would go
// back to correct (lengths in headers) is dropped.
#include "codecs/audio_write.h"

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <sndfile.h>
#include <soxr.h>

#include "base/mem.h"

#define LOUDEST 1e6f  // samples may exceed 1 and are clipped, but the resampler must not overflow

enum { BLOCK = 4096 };

struct audio_writer {
    enum audio_format format;
    audio_sink *sink;
    void *ud;
    bool refused;
    soxr_t soxr;  // NULL: the samples have the file's rate
    SNDFILE *snd;
    uint64_t frames;  // encoded so far
    int64_t pos, end;  // libsndfile's place, and how many bytes were handed out
    bool has_header;
};

static const struct {
    const char *name, *type;
    int sndfile;  // 0: by hand
} formats[] = {
    [AUDIO_MP3] = {"mp3", "audio/mpeg", SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III},
    [AUDIO_OPUS] = {"opus", "audio/opus", SF_FORMAT_OGG | SF_FORMAT_OPUS},
    [AUDIO_FLAC] = {"flac", "audio/flac", SF_FORMAT_FLAC | SF_FORMAT_PCM_16},
    [AUDIO_WAV] = {"wav", "audio/wav", 0},
    [AUDIO_PCM] = {"pcm", "audio/pcm", 0},
};
enum { NFORMATS = sizeof formats / sizeof *formats };

bool audio_write_find(const char *name, enum audio_format *ret_format)
{
    for (int i = 0; i < NFORMATS; i++)
        if (!strcmp(name, formats[i].name)) {
            *ret_format = (enum audio_format)i;
            return true;
        }
    return false;
}

const char *audio_write_type(enum audio_format format)
{
    return formats[format].type;
}

static err_code send(struct audio_writer *w, const void *bytes, size_t n, err *e)
{
    if (n && !w->refused)
        w->refused = !w->sink(w->ud, bytes, n);
    return w->refused ? err_set(e, ERR_CANCELLED, "nobody takes the audio") : ERR_OK;
}

// ---- libsndfile

static sf_count_t vio_length(void *ud)
{
    return ((struct audio_writer *)ud)->end;
}

static sf_count_t vio_seek(sf_count_t offset, int whence, void *ud)
{
    struct audio_writer *w = ud;
    int64_t to = offset + (whence == SEEK_SET ? 0 : whence == SEEK_CUR ? w->pos : w->end);
    if (to < 0 || to > w->end)
        return -1;
    return w->pos = to;
}

static sf_count_t vio_read(void *out, sf_count_t n, void *ud)
{
    (void)out, (void)n, (void)ud;
    return 0;
}

static sf_count_t vio_write(const void *p, sf_count_t n, void *ud)
{
    struct audio_writer *w = ud;
    int64_t old = w->end - w->pos;  // bytes of it that would replace some that are gone
    if (old < n) {
        size_t skip = old > 0 ? (size_t)old : 0;
        err e = {0};
        if (send(w, (const char *)p + skip, (size_t)n - skip, &e))
            return 0;
        w->end += n - (sf_count_t)skip;
    }
    w->pos += n;
    return n;
}

static sf_count_t vio_tell(void *ud)
{
    return ((struct audio_writer *)ud)->pos;
}

static err_code open_sndfile(struct audio_writer *w, err *e)
{
    static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;  // some codecs are set up at their first use
    SF_VIRTUAL_IO vio = {vio_length, vio_seek, vio_read, vio_write, vio_tell};
    SF_INFO info = {.samplerate = AUDIO_WRITE_RATE, .channels = 1, .format = formats[w->format].sndfile};
    pthread_mutex_lock(&opening);
    w->snd = sf_open_virtual(&vio, SFM_WRITE, &info, w);
    pthread_mutex_unlock(&opening);
    if (!w->snd)
        return err_set(e, w->refused ? ERR_CANCELLED : ERR_UNSUPPORTED, "%s cannot be written: %s.",
                       formats[w->format].name, sf_strerror(NULL));
    sf_command(w->snd, SFC_SET_CLIPPING, NULL, SF_TRUE);
    // Pages of Ogg every 100 ms instead of every second. MP3 at a constant 96 kbit/s: players tell length and place by it
    // when, as here, no table of contents can be written.
    double latency_ms = 100, level = 0.4;
    int constant = SF_BITRATE_MODE_CONSTANT;
    if (w->format == AUDIO_OPUS)
        sf_command(w->snd, SFC_SET_OGG_PAGE_LATENCY_MS, &latency_ms, sizeof latency_ms);
    if (w->format == AUDIO_MP3) {
        sf_command(w->snd, SFC_SET_BITRATE_MODE, &constant, sizeof constant);
        sf_command(w->snd, SFC_SET_COMPRESSION_LEVEL, &level, sizeof level);
    }
    return ERR_OK;
}

// ---- by hand

static void put(uint8_t *p, uint32_t v, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static err_code send_header(struct audio_writer *w, err *e)
{
    uint8_t h[AUDIO_WRITE_WAV_HEADER];
    memcpy(h, "RIFF....WAVEfmt ", 16);
    put(h + 4, UINT32_MAX, 4);
    put(h + 16, 16, 4);
    put(h + 20, 1, 2);
    put(h + 22, 1, 2);
    put(h + 24, AUDIO_WRITE_RATE, 4);
    put(h + 28, AUDIO_WRITE_RATE * 2, 4);
    put(h + 32, 2, 2);
    put(h + 34, 16, 2);
    memcpy(h + 36, "data", 4);
    put(h + 40, UINT32_MAX, 4);
    return send(w, h, sizeof h, e);
}

static err_code send_pcm(struct audio_writer *w, const float *samples, size_t n, err *e)
{
    uint8_t block[2 * BLOCK];
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t k = n - at < BLOCK ? n - at : BLOCK;
        for (size_t i = 0; i < k; i++) {
            float v = samples[at + i] * 32767;
            v = v > 32767 ? 32767 : v < -32768 ? -32768 : v;
            put(block + 2 * i, (uint16_t)(int16_t)lrintf(v), 2);
        }
        if (send(w, block, 2 * k, e))
            return e->code;
    }
    return ERR_OK;
}

// Encoders are given nothing beyond full scale: some stop the process when their energies overflow.
static err_code encode(struct audio_writer *w, const float *samples, size_t n, err *e)
{
    w->frames += n;
    if (!w->snd)
        return send_pcm(w, samples, n, e);
    bool ok = true;
    for (size_t at = 0; at < n && ok; at += BLOCK) {
        float clipped[BLOCK];
        size_t k = n - at < BLOCK ? n - at : BLOCK;
        for (size_t i = 0; i < k; i++)
            clipped[i] = fmaxf(-1, fminf(1, samples[at + i]));
        ok = sf_writef_float(w->snd, clipped, (sf_count_t)k) == (sf_count_t)k && !w->refused;
    }
    if (ok)
        return ERR_OK;
    return err_set(e, w->refused ? ERR_CANCELLED : ERR_INTERNAL, "%s cannot be written: %s.", formats[w->format].name,
                   sf_strerror(w->snd));
}

// in NULL: the end of the input.
static err_code resample(struct audio_writer *w, const float *in, size_t n, err *e)
{
    for (;;) {
        float out[BLOCK];
        size_t used = 0, made = 0;
        soxr_error_t bad = soxr_process(w->soxr, in, n, &used, out, BLOCK, &made);
        if (bad)
            return err_set(e, ERR_INTERNAL, "The audio cannot be resampled: %s.", bad);
        if (made && encode(w, out, made, e))
            return e->code;
        if (in)
            in += used;
        n -= used;
        if (made < BLOCK && (n == 0 || used == 0))
            return ERR_OK;
    }
}

// ---- the interface

err_code audio_write_open(enum audio_format format, int rate, audio_sink *sink, void *ud, struct audio_writer **ret_writer,
                          err *e)
{
    struct audio_writer *w = mem_new(sizeof *w);
    w->format = format;
    w->sink = sink;
    w->ud = ud;
    err_code rc = ERR_OK;
    if (rate != AUDIO_WRITE_RATE) {
        soxr_io_spec_t io = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
        soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
        soxr_runtime_spec_t threads = soxr_runtime_spec(1);
        soxr_error_t bad = "no sample rate";
        w->soxr = rate > 0 ? soxr_create(rate, AUDIO_WRITE_RATE, 1, &bad, &io, &quality, &threads) : NULL;
        if (!w->soxr)
            rc = err_set(e, ERR_INTERNAL, "No resampler from %d Hz: %s.", rate, bad);
    }
    if (!rc && formats[format].sndfile)
        rc = open_sndfile(w, e);
    if (rc)
        audio_write_close(w);
    else
        *ret_writer = w;
    return rc;
}

err_code audio_write_samples(struct audio_writer *w, const float *samples, size_t n, err *e)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(samples[i]) <= LOUDEST))
            return err_set(e, ERR_INVALID, "sample %zu of %zu is %g, expected a number up to %g in size", i, n, (double)samples[i],
                           (double)LOUDEST);
    if (w->format == AUDIO_WAV && !w->has_header && send_header(w, e))
        return e->code;
    w->has_header = true;
    return w->soxr ? resample(w, samples, n, e) : encode(w, samples, n, e);
}

err_code audio_write_finish(struct audio_writer *w, err *e)
{
    if (w->format == AUDIO_WAV && !w->has_header && send_header(w, e))
        return e->code;
    w->has_header = true;
    if (w->soxr && resample(w, NULL, 0, e))
        return e->code;
    int bad = w->snd ? sf_close(w->snd) : 0;
    w->snd = NULL;
    if (w->refused)
        return err_set(e, ERR_CANCELLED, "nobody takes the audio");
    return bad ? err_set(e, ERR_INTERNAL, "%s cannot be written: %s.", formats[w->format].name, sf_error_number(bad)) : ERR_OK;
}

void audio_write_close(struct audio_writer *w)
{
    if (!w)
        return;
    w->refused = true;  // what closing still writes is for nobody
    if (w->snd)
        sf_close(w->snd);
    soxr_delete(w->soxr);
    free(w);
}

// A FLAC begins with "fLaC", 4 bytes of block header and STREAMINFO, whose last 36 of bits 80..143 count the samples.
static void fix_flac(uint8_t *p, size_t n, uint64_t frames)
{
    enum { TOTAL = 21, END = 26 };
    if (n < END || memcmp(p, "fLaC", 4) || frames >> 36)
        return;
    p[TOTAL] = (uint8_t)((p[TOTAL] & 0xf0) | frames >> 32);
    for (int i = 1; i < END - TOTAL; i++)
        p[TOTAL + i] = (uint8_t)(frames >> 8 * (4 - i));
}

void audio_write_fix(const struct audio_writer *w, void *bytes, size_t n)
{
    uint8_t *p = bytes;
    if (w->format == AUDIO_FLAC)
        fix_flac(p, n, w->frames);
    if (w->format != AUDIO_WAV || n < AUDIO_WRITE_WAV_HEADER || n > UINT32_MAX)
        return;
    put(p + 4, (uint32_t)(n - 8), 4);
    put(p + 40, (uint32_t)(n - AUDIO_WRITE_WAV_HEADER), 4);
}
