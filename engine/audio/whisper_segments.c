// whisper_segments.c - see whisper_segments.h. Pure functions; the scheduler thread calls them once a window.
#include "engine/audio/whisper_segments.h"

#include <stdbool.h>
#include <stdlib.h>
#include <zlib.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "engine/audio/mel.h"

enum { FRAMES = 2 };  // of one timestamp's step

static double seconds(int frame)
{
    return (double)((int64_t)frame * MEL_HOP) / MEL_RATE;
}

static bool is_time(const struct whisper_tokens *t, int32_t id)
{
    return id >= t->first_time;
}

static double time_of(const struct whisper_tokens *t, int32_t id, int seek)
{
    return seconds(seek) + (id - t->first_time) * seconds(FRAMES);
}

static void add(struct whisper_cut *c, int first, int end, double from, double to)
{
    if (c->n < WHISPER_SEGMENTS)
        c->slices[c->n++] = (struct whisper_slice){first, end - first, from, to};
}

static void whole(const struct whisper_tokens *t, const int32_t *ids, int n, int seek, int size, struct whisper_cut *c)
{
    double length = seconds(size);
    for (int i = n - 1; i >= 0; i--) {
        if (is_time(t, ids[i])) {
            if (ids[i] != t->first_time)
                length = (ids[i] - t->first_time) * seconds(FRAMES);
            break;
        }
    }
    add(c, 0, n, seconds(seek), seconds(seek) + length);
    c->advance = size;
}

void whisper_segments_cut(const struct whisper_tokens *t, const int32_t *ids, int n, int seek, int size,
                          struct whisper_cut *ret_cut)
{
    struct whisper_cut *c = ret_cut;
    bool closed = n >= 2 && is_time(t, ids[n - 1]) && !is_time(t, ids[n - 2]);
    int from = 0;
    c->n = 0;
    for (int i = 1; i <= n; i++) {
        bool pair = i < n && is_time(t, ids[i - 1]) && is_time(t, ids[i]);
        if (!pair && !(i == n && closed && from > 0))
            continue;
        add(c, from, i, time_of(t, ids[from], seek), time_of(t, ids[i - 1], seek));
        from = i;
    }
    if (from == 0)
        whole(t, ids, n, seek, size, c);
    else
        c->advance = closed ? size : (ids[from - 1] - t->first_time) * FRAMES;
}

float whisper_segments_ratio(const char *text, size_t n)
{
    uLongf size = compressBound((uLong)n);
    Bytef *out = mem_try(size);
    int rc = out ? compress2(out, &size, (const Bytef *)text, (uLong)n, Z_DEFAULT_COMPRESSION) : Z_MEM_ERROR;
    free(out);
    return rc == Z_OK ? (float)((double)n / (double)size) : 0;
}

// What Python's str.strip takes away.
static bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

const char *whisper_segments_strip(const char *text, size_t n, size_t *ret_n)
{
    uint32_t c;
    int k;
    while (n > 0 && (k = utf8_decode(text, n, &c)) > 0 && is_space(c)) {
        text += k;
        n -= (size_t)k;
    }
    while (n > 0) {
        size_t from = n - 1;
        while (from > 0 && n - from < 4 && ((unsigned char)text[from] & 0xC0) == 0x80)
            from--;
        if (utf8_decode(text + from, n - from, &c) != (int)(n - from) || !is_space(c))
            break;
        n = from;
    }
    *ret_n = n;
    return text;
}
