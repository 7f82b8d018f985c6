// Without seeking: the library then believes no length and takes files of any kind of end.
#include "codecs/vorbis.h"

#include <stdlib.h>
#include <string.h>

#define OV_EXCLUDE_STATIC_CALLBACKS
#include <vorbis/vorbisfile.h>

#include "base/mem.h"
#include "codecs/audio_read.h"

struct vorbis {
    const struct audio_source *src;
    OggVorbis_File file;
    bool open, failed;
    int64_t at;
    int channels, rate;
};

bool vorbis_is(const uint8_t *h, size_t n)
{
    return n >= 35 && !memcmp(h, "OggS", 4) && !memcmp(h + 28, "\1vorbis", 7);
}

static size_t read_some(void *out, size_t size, size_t n, void *ud)
{
    struct vorbis *v = ud;
    size_t bytes;
    int64_t got = size_mul(size, n, &bytes) && size ? v->src->read(v->src->ud, v->at, out, bytes) : 0;
    v->failed |= got < 0;
    if (got <= 0)
        return 0;
    v->at += got;
    return (size_t)got / size;
}

err_code vorbis_open(const struct audio_source *src, struct vorbis **ret_vorbis, err *e)
{
    struct vorbis *v = mem_new(sizeof *v);
    v->src = src;
    v->open = ov_open_callbacks(v, &v->file, NULL, 0, (ov_callbacks){read_some, NULL, NULL, NULL}) == 0;
    const vorbis_info *info = v->open ? ov_info(&v->file, -1) : NULL;
    if (!info) {
        bool failed = v->failed;
        vorbis_close(v);
        return failed ? err_set(e, ERR_IO, "The file cannot be read.")
                      : err_set(e, ERR_INVALID, "The ogg file cannot be decoded: its Vorbis headers are damaged.");
    }
    v->channels = info->channels;
    v->rate = (int)info->rate;
    *ret_vorbis = v;
    return ERR_OK;
}

void vorbis_format(const struct vorbis *v, int *ret_channels, int *ret_rate)
{
    *ret_channels = v->channels;
    *ret_rate = v->rate;
}

int64_t vorbis_read(struct vorbis *v, float *out, size_t frames)
{
    for (;;) {
        float **channels;
        int part;
        long n = ov_read_float(&v->file, &channels, (int)(frames < 4096 ? frames : 4096), &part);
        if (v->failed)
            return -1;
        if (n == OV_HOLE)  // some pages are missing: on with what follows
            continue;
        const vorbis_info *info = n > 0 ? ov_info(&v->file, -1) : NULL;
        if (!info || info->channels != v->channels || info->rate != v->rate)
            return 0;
        for (long i = 0; i < n; i++)
            for (int c = 0; c < v->channels; c++)
                out[i * v->channels + c] = channels[c][i];
        return n;
    }
}

void vorbis_close(struct vorbis *v)
{
    if (!v)
        return;
    if (v->open)
        ov_clear(&v->file);
    free(v);
}
