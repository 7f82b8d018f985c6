// The decoder is fed, so it never seeks and never sees a length. Damage in the middle is skipped to the next frame.
#include "codecs/mpeg.h"

#include <stdlib.h>
#include <string.h>

#include <mpg123.h>

#include "base/mem.h"
#include "codecs/audio_read.h"

enum { FEED = 16 << 10 };

struct mpeg {
    const struct audio_source *src;
    mpg123_handle *handle;
    int64_t at;
    long rate;
    bool failed;
};

bool mpeg_is(const uint8_t *h, size_t n)
{
    if (n >= 3 && !memcmp(h, "ID3", 3))
        return true;
    // A frame: eleven set bits, layer I to III, and no reserved version, bit rate or sample rate.
    return n >= 4 && h[0] == 0xFF && (h[1] & 0xE0) == 0xE0 && (h[1] & 0x06) && (h[1] & 0x18) != 0x08 &&
           (h[2] & 0xF0) != 0xF0 && (h[2] & 0x0C) != 0x0C;
}

// False: the end of the file, or an input error.
static bool feed(struct mpeg *m)
{
    unsigned char block[FEED];
    int64_t n = m->src->read(m->src->ud, m->at, block, sizeof block);
    m->failed = n < 0;
    if (n <= 0)
        return false;
    m->at += n;
    return mpg123_feed(m->handle, block, (size_t)n) == MPG123_OK;
}

// Decodes up to size bytes; the first call and a change in the stream report its format and no samples.
static int decode(struct mpeg *m, void *out, size_t size, size_t *ret_done)
{
    for (;;) {
        int rc = mpg123_read(m->handle, out, size, ret_done);
        if (*ret_done || rc != MPG123_NEED_MORE || !feed(m))
            return rc;
    }
}

err_code mpeg_open(const struct audio_source *src, struct mpeg **ret_mpeg, err *e)
{
    struct mpeg *m = mem_new(sizeof *m);
    int channels = 0, encoding = 0;
    size_t done = 0;
    m->src = src;
    m->handle = mpg123_new(NULL, NULL);
    long flags = MPG123_QUIET | MPG123_FORCE_FLOAT | MPG123_MONO_MIX | MPG123_SKIP_ID3V2;
    bool ok = m->handle && mpg123_param(m->handle, MPG123_ADD_FLAGS, flags, 0) == MPG123_OK &&
              mpg123_param(m->handle, MPG123_RESYNC_LIMIT, -1, 0) == MPG123_OK && mpg123_open_feed(m->handle) == MPG123_OK;
    ok = ok && decode(m, NULL, 0, &done) == MPG123_NEW_FORMAT &&
         mpg123_getformat(m->handle, &m->rate, &channels, &encoding) == MPG123_OK && channels == 1 &&
         encoding == MPG123_ENC_FLOAT_32 && m->rate > 0;
    if (ok) {
        *ret_mpeg = m;
        return ERR_OK;
    }
    bool failed = m->failed;
    mpeg_close(m);
    return failed ? err_set(e, ERR_IO, "The file cannot be read.")
                  : err_set(e, ERR_INVALID, "The mp3 file cannot be decoded: no valid frame was found.");
}

int mpeg_rate(const struct mpeg *m)
{
    return (int)m->rate;
}

int64_t mpeg_read(struct mpeg *m, float *out, size_t frames)
{
    size_t done = 0;
    for (;;) {
        int rc = decode(m, out, frames * sizeof *out, &done);
        if (m->failed)
            return -1;
        if (done)
            return (int64_t)(done / sizeof *out);
        long rate = m->rate;
        int channels, encoding;
        // Another stream begins. At another rate it would be played at the wrong speed: what came before is kept.
        if (rc != MPG123_NEW_FORMAT || mpg123_getformat(m->handle, &rate, &channels, &encoding) || rate != m->rate)
            return 0;
    }
}

void mpeg_close(struct mpeg *m)
{
    if (!m)
        return;
    mpg123_delete(m->handle);
    free(m);
}
