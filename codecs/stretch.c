// See the header. The input that later frames may still need is kept; places are counted from the first sample ever.
#include "codecs/stretch.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct stretch {
    double speed;
    int hop, search;     // half a frame, and how far one may move
    float *rise;         // the weight of a frame's first half; the second has 1 minus it
    float *tail;         // the second half of the last frame, weighted
    float *block;        // what is handed out
    float *in;           // input from `base` on
    size_t len, cap;
    int64_t base, total_in, total_out, frame, last;  // last: where the last frame was taken
};

struct stretch *stretch_new(double speed, int rate)
{
    struct stretch *s = mem_new(sizeof *s);
    s->speed = speed;
    s->hop = rate / 80 > 8 ? rate / 80 : 8;
    s->search = rate / 100;
    s->rise = mem_new((size_t)s->hop * sizeof *s->rise);
    s->tail = mem_new((size_t)s->hop * sizeof *s->tail);
    s->block = mem_new((size_t)s->hop * sizeof *s->block);
    for (int i = 0; i < s->hop; i++)
        s->rise[i] = (float)(0.5 - 0.5 * cos(3.14159265358979323846 * (i + 0.5) / s->hop));
    return s;
}

void stretch_free(struct stretch *s)
{
    if (!s)
        return;
    free(s->rise);
    free(s->tail);
    free(s->block);
    free(s->in);
    free(s);
}

static void keep(struct stretch *s, const float *samples, size_t n)
{
    if (s->len + n > s->cap) {
        s->cap = (s->len + n) * 2;
        s->in = mem_resize(s->in, s->cap * sizeof *s->in);
    }
    if (samples)
        memcpy(s->in + s->len, samples, n * sizeof *samples);
    else
        memset(s->in + s->len, 0, n * sizeof *s->in);
    s->len += n;
}

static void forget(struct stretch *s, int64_t before)
{
    size_t n = before > s->base ? (size_t)(before - s->base) : 0;
    if (n < 8192 || n > s->len)
        return;
    memmove(s->in, s->in + n, (s->len - n) * sizeof *s->in);
    s->len -= n;
    s->base = before;
}

static int64_t ideal(const struct stretch *s, int64_t frame)
{
    return llround((double)frame * s->hop * s->speed);
}

// How well b goes on like a: their correlation over half a frame.
static double likeness(const float *a, const float *b, int n)
{
    float dot = 0, energy = 0;
    for (int i = 0; i < n; i++) {
        dot += a[i] * b[i];
        energy += b[i] * b[i];
    }
    return dot / sqrt((double)energy + 1e-9);
}

// Where around its ideal place the next frame continues the last one best; the ideal one itself when all are alike.
static int64_t best_place(const struct stretch *s, int64_t at)
{
    const float *wanted = s->in + (s->last + s->hop - s->base);
    int64_t low = at - s->search < s->base ? s->base : at - s->search, best = at;
    double most = likeness(wanted, s->in + (at - s->base), s->hop);
    for (int64_t p = low; p <= at + s->search; p++) {
        double v = likeness(wanted, s->in + (p - s->base), s->hop);
        if (v > most) {
            most = v;
            best = p;
        }
    }
    return best;
}

static err_code frame(struct stretch *s, int64_t at, size_t most, stretch_out *out, void *ud, err *e)
{
    int64_t place = s->frame == 0 ? 0 : best_place(s, at);
    const float *in = s->in + (place - s->base);
    for (int i = 0; i < s->hop; i++) {
        s->block[i] = s->frame == 0 ? in[i] : s->tail[i] + in[i] * s->rise[i];
        s->tail[i] = in[s->hop + i] * (1 - s->rise[i]);
    }
    s->last = place;
    s->frame++;
    int64_t next = ideal(s, s->frame) - s->search;
    forget(s, next < place + s->hop ? next : place + s->hop);
    size_t n = (size_t)s->hop < most ? (size_t)s->hop : most;
    s->total_out += (int64_t)n;
    return n ? out(ud, s->block, n, e) : ERR_OK;
}

// Input that the frame at `at` may look at, from s->base.
static size_t needed(const struct stretch *s, int64_t at)
{
    int64_t end = at + s->search + 2 * s->hop, natural = s->last + 2 * s->hop;
    return (size_t)((end > natural ? end : natural) - s->base);
}

err_code stretch_add(struct stretch *s, const float *samples, size_t n, stretch_out *out, void *ud, err *e)
{
    s->total_in += (int64_t)n;
    if (s->speed == 1) {
        s->total_out += (int64_t)n;
        return n ? out(ud, samples, n, e) : ERR_OK;
    }
    keep(s, samples, n);
    for (int64_t at; needed(s, at = ideal(s, s->frame)) <= s->len;)
        if (frame(s, at, SIZE_MAX, out, ud, e))
            return e->code;
    return ERR_OK;
}

err_code stretch_finish(struct stretch *s, stretch_out *out, void *ud, err *e)
{
    int64_t target = llround((double)s->total_in / s->speed);
    while (s->total_out < target) {
        int64_t at = ideal(s, s->frame);
        size_t need = needed(s, at);
        if (need > s->len)
            keep(s, NULL, need - s->len);
        if (frame(s, at, (size_t)(target - s->total_out), out, ud, e))
            return e->code;
    }
    return ERR_OK;
}
