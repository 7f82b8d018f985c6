// Decoding: a decoder hands out frames, they become mono, soxr brings them to 16 kHz, and the result grows block by
// block, so that memory follows what was really decoded. WAV is read by our own code (wav.c), MP3 by mpeg.c, Ogg Vorbis by
// vorbis.c; FLAC, Ogg Opus and the rare codecs of WAV by libsndfile.
#include "codecs/audio_read.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <sndfile.h>
#include <soxr.h>

#include "base/mem.h"
#include "codecs/mpeg.h"
#include "codecs/vorbis.h"
#include "codecs/wav.h"

#define LOUDEST 1e6f  // floats may exceed 1 by far and still be meant; the resampler must not overflow

enum { FRAMES = 4096, HEAD = 64, FIRST_SAMPLES = 1 << 16, RATE_MIN = 1000, RATE_MAX = 768000 };

static const char read_here[] = "This server reads wav, flac, mp3 and ogg (Vorbis, Opus).";

// ---- what it is

static bool starts(const uint8_t *head, size_t n, const char *magic, size_t at)
{
    size_t len = strlen(magic);
    return n >= at + len && !memcmp(head + at, magic, len);
}

// Formats that are known by their first bytes and not read.
static const char *refused_name(const uint8_t *h, size_t n)
{
    static const struct {
        const char *magic, *name;
        size_t at;
    } known[] = {
        {"\x1A\x45\xDF\xA3", "webm or matroska", 0}, {"ftypM4A", "m4a", 4}, {"ftypM4B", "m4b", 4}, {"ftyp", "mp4", 4},
        {"#!AMR", "amr", 0}, {"FORM", "aiff", 0}, {".snd", "au", 0}, {"caff", "caf", 0}, {"\x30\x26\xB2\x75", "wma or asf", 0},
        {"MThd", "midi", 0}, {"ADIF", "aac", 0}, {"riff", "wave64", 0}, {"wvpk", "wavpack", 0}, {"MAC ", "monkey's audio", 0},
        {"FLV", "flv", 0}, {"AVI ", "avi", 8},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (starts(h, n, known[i].magic, known[i].at))
            return known[i].name;
    return n >= 2 && h[0] == 0xFF && (h[1] & 0xF6) == 0xF0 ? "aac" : NULL;  // ADTS: layer 0
}

static bool is_text(const uint8_t *h, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (h[i] < 0x20 && h[i] != '\t' && h[i] != '\r' && h[i] != '\n')
            return false;
    return n > 0;
}

static err_code sniff(const struct audio_source *src, const char **ret_container, err *e)
{
    uint8_t head[HEAD];
    int64_t got = src->read(src->ud, 0, head, sizeof head);
    if (got < 0)
        return err_set(e, ERR_IO, "The file cannot be read.");
    size_t n = (size_t)got;
    if (wav_is(head, n))
        *ret_container = "wav";
    else if (starts(head, n, "fLaC", 0))
        *ret_container = "flac";
    else if (starts(head, n, "OggS", 0))
        *ret_container = "ogg";
    else if (mpeg_is(head, n))
        *ret_container = "mp3";
    else if (refused_name(head, n))
        return err_set(e, ERR_UNSUPPORTED, "The file is %s, which is not read. %s", refused_name(head, n), read_here);
    else if (n == 0)
        return err_set(e, ERR_INVALID, "The file is empty.");
    else
        return err_set(e, ERR_INVALID, "The file is %s, not audio of a known format. %s",
                       is_text(head, n) ? "text" : n < 12 ? "only a few bytes" : "unknown data", read_here);
    return ERR_OK;
}

// ---- decoders

struct decoder {
    const struct audio_source *src;
    int channels, rate;
    bool is_wav;
    struct wav wav;
    struct mpeg *mpeg;
    struct vorbis *vorbis;
    SNDFILE *snd;
    int64_t pos;  // libsndfile's place in the file
};

static sf_count_t vio_length(void *ud)
{
    return ((struct decoder *)ud)->src->size;
}

static sf_count_t vio_seek(sf_count_t offset, int whence, void *ud)
{
    struct decoder *d = ud;
    int64_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? d->pos : d->src->size, to;
    if (__builtin_add_overflow(base, offset, &to) || to < 0)
        return -1;
    return d->pos = to;
}

static sf_count_t vio_read(void *out, sf_count_t n, void *ud)
{
    struct decoder *d = ud;
    int64_t got = n > 0 ? d->src->read(d->src->ud, d->pos, out, (size_t)n) : 0;
    if (got < 0)
        return 0;
    d->pos += got;
    return got;
}

static sf_count_t vio_tell(void *ud)
{
    return ((struct decoder *)ud)->pos;
}

static sf_count_t vio_write(const void *p, sf_count_t n, void *ud)
{
    (void)p, (void)n, (void)ud;
    return 0;
}

static err_code open_sndfile(struct decoder *d, const char *container, err *e)
{
    // Some of the codecs behind libsndfile are set up at their first use.
    static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
    SF_VIRTUAL_IO vio = {vio_length, vio_seek, vio_read, vio_write, vio_tell};
    SF_INFO info = {0};
    pthread_mutex_lock(&opening);
    d->snd = sf_open_virtual(&vio, SFM_READ, &info, d);
    char why[128];
    snprintf(why, sizeof why, "%s", d->snd ? "" : sf_strerror(NULL));
    pthread_mutex_unlock(&opening);
    if (!d->snd)
        return err_set(e, ERR_INVALID, "The %s file cannot be decoded: %s", container, why);
    d->channels = info.channels;
    d->rate = info.samplerate;
    return ERR_OK;
}

static err_code open_mpeg(struct decoder *d, err *e)
{
    if (mpeg_open(d->src, &d->mpeg, e))
        return e->code;
    d->channels = 1;
    d->rate = mpeg_rate(d->mpeg);
    return ERR_OK;
}

static err_code check_format(const struct decoder *d, const char *container, err *e)
{
    if (d->channels >= 1 && d->channels <= AUDIO_READ_CHANNELS_MAX && d->rate >= RATE_MIN && d->rate <= RATE_MAX)
        return ERR_OK;
    return err_set(e, ERR_INVALID, "The %s file has %d channels at %d Hz; expected 1 to %d channels at %d to %d Hz.", container,
                   d->channels, d->rate, AUDIO_READ_CHANNELS_MAX, RATE_MIN, RATE_MAX);
}

static err_code open_vorbis(struct decoder *d, err *e)
{
    if (vorbis_open(d->src, &d->vorbis, e))
        return e->code;
    vorbis_format(d->vorbis, &d->channels, &d->rate);
    return ERR_OK;
}

static bool is_vorbis(const struct audio_source *src)
{
    uint8_t head[HEAD];
    int64_t n = src->read(src->ud, 0, head, sizeof head);
    return n > 0 && vorbis_is(head, (size_t)n);
}

static err_code open_decoder(struct decoder *d, const char *container, err *e)
{
    if (!strcmp(container, "mp3"))
        return open_mpeg(d, e);
    if (is_vorbis(d->src))
        return open_vorbis(d, e);
    d->is_wav = !strcmp(container, "wav");
    if (!d->is_wav)
        return open_sndfile(d, container, e);
    err_code rc = wav_open(d->src, &d->wav, e);
    if (rc == ERR_OK) {
        d->channels = d->wav.channels;
        d->rate = d->wav.rate;
        return ERR_OK;
    }
    err other = {0};
    d->is_wav = false;
    if (rc == ERR_UNSUPPORTED && !open_sndfile(d, container, &other))
        return ERR_OK;
    return rc;
}

static int64_t decode(struct decoder *d, float *out, size_t frames)
{
    if (d->is_wav)
        return wav_read(&d->wav, d->src, out, frames);
    if (d->mpeg)
        return mpeg_read(d->mpeg, out, frames);
    if (d->vorbis)
        return vorbis_read(d->vorbis, out, frames);
    return sf_readf_float(d->snd, out, (sf_count_t)frames);
}

// ---- the result

struct result {
    float *samples;
    size_t n, cap, max;
};

static err_code too_long(const struct audio_limits *limits, err *e)
{
    return err_set(e, ERR_INVALID, "The audio is longer than the limit of %d seconds (the setting max_audio_s).",
                   limits->max_s);
}

// Room for n samples more than there are, up to the limit and a little.
static err_code reserve(struct result *r, size_t n, err *e)
{
    if (r->n + n <= r->cap)
        return ERR_OK;
    size_t cap = r->cap ? r->cap : FIRST_SAMPLES, bytes;
    while (cap < r->n + n)
        cap += cap / 2;
    float *p = size_mul(cap, sizeof *p, &bytes) ? realloc(r->samples, bytes) : NULL;
    if (!p)
        return err_set(e, ERR_MEMORY, "No memory for %zu samples.", cap);
    r->samples = p;
    r->cap = cap;
    return ERR_OK;
}

// The average of all channels: a voice on any of them is heard. What is no number, or absurd, is silence.
static void mix(const float *in, int channels, size_t frames, float *out)
{
    for (size_t i = 0; i < frames; i++) {
        float sum = 0;
        for (int c = 0; c < channels; c++)
            sum += in[i * (size_t)channels + (size_t)c];
        sum /= (float)channels;
        out[i] = fabsf(sum) <= LOUDEST ? sum : 0;
    }
}

// in NULL: the end of the input.
static err_code resample(soxr_t soxr, const float *in, size_t n, struct result *r, err *e)
{
    for (;;) {
        size_t used = 0, made = 0;
        if (reserve(r, FRAMES, e))
            return e->code;
        soxr_error_t bad = soxr_process(soxr, in, n, &used, r->samples + r->n, FRAMES, &made);
        if (bad)
            return err_set(e, ERR_INTERNAL, "The audio cannot be resampled: %s.", bad);
        r->n += made;
        if (in)
            in += used;
        n -= used;
        if (made < FRAMES && (n == 0 || used == 0))
            return ERR_OK;
    }
}

static err_code take(soxr_t soxr, const float *mono, size_t n, struct result *r, err *e)
{
    if (soxr)
        return resample(soxr, mono, n, r, e);
    if (reserve(r, n, e))
        return e->code;
    memcpy(r->samples + r->n, mono, n * sizeof *mono);
    r->n += n;
    return ERR_OK;
}

static err_code decode_all(struct decoder *d, const struct audio_limits *limits, soxr_t soxr, float *block, struct result *r,
                           int64_t *ret_frames, err *e)
{
    float mono[FRAMES];
    int64_t frames = 0;
    for (;;) {
        if (limits->stop && atomic_load(limits->stop))
            return err_set(e, ERR_CANCELLED, "cancelled");
        int64_t got = decode(d, block, FRAMES);
        if (got < 0)
            return err_set(e, ERR_IO, "The file cannot be read.");
        if (got == 0)
            break;
        frames += got;
        if (frames / d->rate >= limits->max_s && frames > (int64_t)limits->max_s * d->rate)
            return too_long(limits, e);
        mix(block, d->channels, (size_t)got, mono);
        if (take(soxr, mono, (size_t)got, r, e))
            return e->code;
    }
    *ret_frames = frames;
    return soxr && frames ? resample(soxr, NULL, 0, r, e) : ERR_OK;
}

static err_code run(struct decoder *d, const struct audio_limits *limits, struct result *r, int64_t *ret_frames, err *e)
{
    soxr_t soxr = NULL;
    if (d->rate != AUDIO_READ_RATE) {
        soxr_io_spec_t io = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
        soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
        soxr_runtime_spec_t threads = soxr_runtime_spec(1);
        soxr_error_t bad;
        soxr = soxr_create(d->rate, AUDIO_READ_RATE, 1, &bad, &io, &quality, &threads);
        if (!soxr)
            return err_set(e, ERR_INTERNAL, "No resampler for %d Hz: %s.", d->rate, bad);
    }
    float *block = mem_new((size_t)FRAMES * (size_t)d->channels * sizeof *block);
    err_code rc = decode_all(d, limits, soxr, block, r, ret_frames, e);
    free(block);
    soxr_delete(soxr);
    return rc;
}

err_code audio_read(const struct audio_source *src, const struct audio_limits *limits, struct audio *ret_audio, err *e)
{
    const char *container = "";
    struct decoder *d = mem_new(sizeof *d);
    struct result r = {0};
    int64_t frames = 0;
    d->src = src;
    err_code rc = sniff(src, &container, e);
    if (!rc)
        rc = open_decoder(d, container, e);
    if (!rc)
        rc = check_format(d, container, e);
    if (!rc)
        rc = run(d, limits, &r, &frames, e);
    if (!rc && r.n == 0)
        rc = err_set(e, ERR_INVALID, "The %s file holds no samples that can be decoded.", container);
    if (!rc) {
        float *fit = realloc(r.samples, r.n * sizeof *fit);
        *ret_audio = (struct audio){fit ? fit : r.samples, r.n, (double)frames / d->rate, d->rate, d->channels, container};
        r.samples = NULL;
    }
    free(r.samples);
    mpeg_close(d->mpeg);
    vorbis_close(d->vorbis);
    if (d->snd)
        sf_close(d->snd);
    free(d);
    return rc;
}
