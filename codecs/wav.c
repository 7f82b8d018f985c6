// See the header. Reads through the source a block at a time; nothing is allocated.
#include "codecs/wav.h"

#include <string.h>

#include "codecs/audio_read.h"

enum { MAX_CHUNKS = 10000, RATE_MAX = 768000, BLOCK = 16 << 10 };
enum { TAG_PCM = 1, TAG_FLOAT = 3, TAG_ALAW = 6, TAG_MULAW = 7, TAG_EXTENSIBLE = 0xFFFE };

struct reader {
    const struct audio_source *src;
    bool big_endian;
    uint64_t ds64_data;  // RF64: the data chunk's real size
};

static uint32_t number(const struct reader *r, const uint8_t *p, int n)
{
    uint32_t v = 0;
    for (int i = 0; i < n; i++)
        v |= (uint32_t)p[i] << 8 * (r->big_endian ? n - 1 - i : i);
    return v;
}

bool wav_is(const uint8_t *head, size_t n)
{
    return n >= 12 && (!memcmp(head, "RIFF", 4) || !memcmp(head, "RIFX", 4) || !memcmp(head, "RF64", 4)) &&
           !memcmp(head + 8, "WAVE", 4);
}

static const char *codec_name(unsigned tag)
{
    switch (tag) {
    case 0x0002: return "Microsoft ADPCM";
    case 0x0011: return "IMA ADPCM";
    case 0x0031: return "GSM 6.10";
    case 0x0050: return "MPEG";
    case 0x0055: return "MP3 in WAV";
    case 0x00FF:
    case 0x1600:
    case 0x1610: return "AAC";
    case 0x0161: return "WMA";
    default: return "unknown";
    }
}

static err_code set_kind(struct wav *w, unsigned tag, unsigned bits, err *e)
{
    bool whole = w->bytes > 0 && (unsigned)w->bytes * 8 >= bits;
    if (tag == TAG_PCM && w->bytes >= 1 && w->bytes <= 4 && whole)
        w->kind = WAV_INT;
    else if (tag == TAG_FLOAT && (w->bytes == 4 || w->bytes == 8))
        w->kind = WAV_FLOAT;
    else if ((tag == TAG_ALAW || tag == TAG_MULAW) && w->bytes == 1)
        w->kind = tag == TAG_ALAW ? WAV_ALAW : WAV_MULAW;
    else if (tag == TAG_PCM || tag == TAG_FLOAT || tag == TAG_ALAW || tag == TAG_MULAW)
        return err_set(e, ERR_INVALID, "The WAV file has samples of %u bits in %d bytes, which fits no codec.", bits, w->bytes);
    else
        return err_set(e, ERR_UNSUPPORTED, "The WAV file's codec is %s (tag 0x%04x).", codec_name(tag), tag);
    return ERR_OK;
}

static err_code read_format(const struct reader *r, const uint8_t *p, size_t n, struct wav *w, err *e)
{
    if (n < 16)
        return err_set(e, ERR_INVALID, "The WAV file's 'fmt ' chunk has %zu bytes; expected at least 16.", n);
    unsigned tag = number(r, p, 2), channels = number(r, p + 2, 2), align = number(r, p + 12, 2), bits = number(r, p + 14, 2);
    uint32_t rate = number(r, p + 4, 4);
    if (tag == TAG_EXTENSIBLE && n >= 26)
        tag = number(r, p + 24, 2);  // the sub-format's first two bytes are the codec's tag
    if (channels < 1 || channels > AUDIO_READ_CHANNELS_MAX)
        return err_set(e, ERR_INVALID, "The WAV file has %u channels; expected 1 to %d.", channels, AUDIO_READ_CHANNELS_MAX);
    if (rate < 1000 || rate > RATE_MAX)
        return err_set(e, ERR_INVALID, "The WAV file has a sample rate of %u Hz; expected 1000 to %d.", rate, RATE_MAX);
    w->channels = (int)channels;
    w->rate = (int)rate;
    w->big_endian = r->big_endian;
    w->bytes = (int)(align / channels);
    if (align % channels || w->bytes == 0 || w->bytes > 8)
        w->bytes = (int)((bits + 7) / 8);  // some writers leave the block size 0
    return set_kind(w, tag, bits, e);
}

// The data chunk's extent. Sizes that cannot be true mean "to the end of the file".
static err_code read_data(const struct reader *r, int64_t at, uint32_t size, struct wav *w, err *e)
{
    int64_t left = r->src->size - at;
    uint64_t claimed = size == UINT32_MAX && r->ds64_data ? r->ds64_data : size;
    if (claimed == 0 || claimed > (uint64_t)left)
        claimed = (uint64_t)left;
    w->at = at;
    w->end = at + (int64_t)claimed;
    if (w->end - at < (int64_t)w->channels * w->bytes)
        return err_set(e, ERR_INVALID, "The WAV file holds no samples.");
    return ERR_OK;
}

// A chunk of odd size is followed by a byte of padding, but not every writer adds it: whichever place has a name.
static int64_t next_chunk(const struct reader *r, int64_t at, uint32_t size)
{
    int64_t next = at + size;
    uint8_t id[5] = {0};
    if (size % 2 == 0 || r->src->read(r->src->ud, next, id, 5) < 4)
        return next + size % 2;
    bool here = true;
    for (int i = 0; i < 4; i++)
        here &= id[i] >= 0x20 && id[i] < 0x7f;
    return here && id[0] != 0 ? next : next + 1;
}

err_code wav_open(const struct audio_source *src, struct wav *ret_wav, err *e)
{
    uint8_t head[12], p[40];
    if (src->read(src->ud, 0, head, 12) != 12)
        return err_set(e, ERR_INVALID, "The WAV file ends within its header.");
    struct reader r = {src, head[3] == 'X', 0};
    struct wav w = {0};
    bool has_format = false;
    int64_t at = 12;
    for (int i = 0; i < MAX_CHUNKS; i++) {
        int64_t got = src->read(src->ud, at, p, 8);
        if (got < 0)
            return err_set(e, ERR_IO, "The file cannot be read.");
        if (got < 8)
            break;
        uint32_t size = number(&r, p + 4, 4);
        at += 8;
        if (!memcmp(p, "data", 4) && has_format) {
            err_code rc = read_data(&r, at, size, &w, e);
            if (!rc)
                *ret_wav = w;
            return rc;
        }
        bool is_format = !memcmp(p, "fmt ", 4), is_ds64 = !memcmp(p, "ds64", 4);
        got = src->read(src->ud, at, p, size < sizeof p ? size : sizeof p);
        if (is_format && read_format(&r, p, got < 0 ? 0 : (size_t)got, &w, e))
            return e->code;
        has_format |= is_format;
        if (is_ds64 && got >= 16)
            r.ds64_data = number(&r, p + 8, 4) | (uint64_t)number(&r, p + 12, 4) << 32;
        at = next_chunk(&r, at, size);
    }
    return err_set(e, ERR_INVALID, "The WAV file has no %s chunk.", has_format ? "'data'" : "'fmt '");
}

// ---- samples

static uint64_t raw(const struct wav *w, const uint8_t *p)
{
    uint64_t v = 0;
    for (int i = 0; i < w->bytes; i++)
        v |= (uint64_t)p[i] << 8 * (w->big_endian ? w->bytes - 1 - i : i);
    return v;
}

// ITU-T G.711, 13 and 14 bits scaled to 16.
static float from_alaw(unsigned v)
{
    v ^= 0x55;
    int exponent = v >> 4 & 7, mantissa = (int)(v & 15) << 4 | 8;
    if (exponent)
        mantissa = (mantissa | 0x100) << (exponent - 1);
    return (float)(v & 0x80 ? mantissa : -mantissa) / 32768;
}

static float from_mulaw(unsigned v)
{
    v = ~v;
    int magnitude = (int)(((v & 15) << 3 | 0x84) << (v >> 4 & 7)) - 0x84;
    return (float)(v & 0x80 ? -magnitude : magnitude) / 32768;
}

static float from_float(const struct wav *w, uint64_t v)
{
    union { uint32_t u; float f; } single = {(uint32_t)v};
    union { uint64_t u; double d; } twice = {v};
    return w->bytes == 4 ? single.f : (float)twice.d;
}

static float sample(const struct wav *w, const uint8_t *p)
{
    uint64_t v = raw(w, p);
    switch (w->kind) {
    case WAV_ALAW: return from_alaw((unsigned)v);
    case WAV_MULAW: return from_mulaw((unsigned)v);
    case WAV_FLOAT: return from_float(w, v);
    case WAV_INT: break;
    }
    if (w->bytes == 1)
        return ((float)v - 128) / 128;
    return (float)(int32_t)((uint32_t)v << (32 - 8 * w->bytes)) * 0x1p-31f;
}

int64_t wav_read(struct wav *w, const struct audio_source *src, float *out, size_t frames)
{
    uint8_t block[BLOCK];
    size_t frame = (size_t)(w->channels * w->bytes), done = 0;
    while (done < frames) {
        size_t want = (frames - done) * frame, room = BLOCK / frame * frame, left = (size_t)(w->end - w->at);
        want = want < room ? want : room;
        want = want < left ? want : left / frame * frame;
        int64_t got = want ? src->read(src->ud, w->at, block, want) : 0;
        if (got < 0)
            return -1;
        size_t n = (size_t)got / frame;
        if (!n)
            break;
        for (size_t i = 0; i < n * (size_t)w->channels; i++)
            out[done * (size_t)w->channels + i] = sample(w, block + i * (size_t)w->bytes);
        done += n;
        w->at += (int64_t)(n * frame);
    }
    return (int64_t)done;
}
