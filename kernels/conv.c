// conv.c - puts 3x3 convolutions together from an instruction set's slots. Any lane; scratch is the caller's or the stack.
#include "kernels/conv.h"

#include <string.h>

#include "base/mem.h"
#include "kernels/cpu.h"

enum { PAD = 16 };  // floats between planes: planes a multiple of 4 KB apart would share the same few cache lines

static size_t element(enum quant_type type)
{
    return type == QUANT_F32 ? 4 : 2;
}

err_code conv_plan(struct conv *c, enum quant_type type, int cout, int cin, err *e)
{
    if (type != QUANT_F32 && type != QUANT_F16 && type != QUANT_BF16)
        return err_set(e, ERR_UNSUPPORTED, "convolution weights of type %s, expected F32, F16 or BF16",
                       quant_get(type)->name);
    *c = (struct conv){.type = type, .cout = cout, .cin = cin};
    size_t bytes = 9 * CONV_WIDE * element(type);
    if (cout <= 0 || cin <= 0 || !size_mul(bytes, (size_t)cin, &bytes) ||
        !size_mul(bytes, (size_t)conv_groups(c), &bytes))
        return err_set(e, ERR_TOO_LARGE, "convolution from %d to %d channels", cin, cout);
    c->bytes = bytes;
    return ERR_OK;
}

// `channels` rows of [cin][9] to [9][cin][16], elements of a constant size. The file's bytes may be unaligned.
static inline __attribute__((always_inline)) void pack_group(uint8_t *to, const uint8_t *from, size_t cin, size_t channels,
                                                             const size_t size)
{
    for (size_t i = 0; i < cin; i++) {
        for (size_t t = 0; t < 9; t++) {
            uint8_t *at = to + (t * cin + i) * CONV_WIDE * size;
            for (size_t o = 0; o < channels; o++)
                memcpy(at + o * size, from + ((o * cin + i) * 9 + t) * size, size);
        }
    }
}

void conv_pack(const struct conv *c, uint8_t *dst, const void *src, int g0, int g1)
{
    size_t size = element(c->type), cin = (size_t)c->cin, row = 9 * cin * size;
    for (int g = g0; g < g1; g++) {
        uint8_t *to = dst + (size_t)g * CONV_WIDE * row;
        const uint8_t *from = (const uint8_t *)src + (size_t)g * CONV_WIDE * row;
        size_t left = (size_t)(c->cout - g * CONV_WIDE), channels = left < CONV_WIDE ? left : CONV_WIDE;
        if (channels < CONV_WIDE)
            memset(to, 0, CONV_WIDE * row);
        if (size == 2)
            pack_group(to, from, cin, channels, 2);
        else
            pack_group(to, from, cin, channels, 4);
    }
}

// Few tiles do not pay for transforming the weights.
bool conv_winograd(const struct conv *c, int stride, int h, int w)
{
    return stride == 1 && c->cin % 8 == 0 && (long)h * w >= 64;
}

static size_t pixel_floats(const struct conv_job *j, int image, int y, int x)
{
    return (((size_t)image * (size_t)j->h + (size_t)y) * (size_t)j->wd + (size_t)x) * (size_t)j->ldy;
}

static size_t frame_floats(const struct conv_job *j, int image, int row, int column)
{
    return (((size_t)image * (size_t)j->rows + (size_t)row) * (size_t)j->width + (size_t)column) * (size_t)j->w->cin;
}

static const uint8_t *group_weights(const struct conv *c, int g)
{
    return c->data + (size_t)g * 9 * (size_t)c->cin * CONV_WIDE * element(c->type);
}

static int group_channels(const struct conv *c, int g)
{
    return c->cout - g * CONV_WIDE < CONV_WIDE ? c->cout - g * CONV_WIDE : CONV_WIDE;
}

// ---- direct

static void write_pixel(const struct conv_job *j, size_t at, int g, const float *acc)
{
    const float *bias = j->bias + g * CONV_WIDE, *add = j->add ? j->add + at + g * CONV_WIDE : NULL;
    float *y = j->y + at + g * CONV_WIDE;
    int channels = group_channels(j->w, g);
    for (int o = 0; o < channels; o++)
        y[o] = add ? add[o] + (acc[o] + bias[o]) : acc[o] + bias[o];
}

void conv_direct(const struct cpu_ops *ops, const struct conv_job *j, int block, int g0, int g1)
{
    const struct conv *c = j->w;
    _Alignas(64) float acc[CONV_BLOCK * CONV_WIDE];
    const float *x[CONV_BLOCK];
    size_t at[CONV_BLOCK];
    int rows = j->y1 - j->y0, all = j->n * rows * j->wd, n = 0;
    for (int p = block * CONV_BLOCK; p < all && n < CONV_BLOCK; p++, n++) {
        int column = p % j->wd, row = p / j->wd % rows, image = p / j->wd / rows;
        x[n] = j->x + frame_floats(j, image, row * j->stride, column * j->stride);
        at[n] = pixel_floats(j, image, j->y0 + row, column);
    }
    for (int g = g0; g < g1; g++) {
        const uint8_t *w = group_weights(c, g);
        memset(acc, 0, sizeof acc);
        for (int t = 0; t < 9; t++) {
            size_t offset = ((size_t)(t / 3) * (size_t)j->width + (size_t)(t % 3)) * (size_t)c->cin;
            for (int k = 0; k < c->cin; k += CONV_PIECE) {
                int piece = c->cin - k < CONV_PIECE ? c->cin - k : CONV_PIECE;
                ops->conv->taps(c->type, acc, w, x, offset + (size_t)k, n, piece);
                w += (size_t)piece * CONV_WIDE * element(c->type);
            }
        }
        for (int i = 0; i < n; i++)
            write_pixel(j, at[i], g, acc + i * CONV_WIDE);
    }
}

// ---- Winograd

struct place {
    int image, row, column;  // of the tile's first output, the row in the stripe
};

static struct place tile_at(const struct conv_job *j, int tile)
{
    int across = (j->wd + 3) / CONV_TILE, down = (j->y1 - j->y0 + 3) / CONV_TILE;
    return (struct place){tile / across / down, tile / across % down * CONV_TILE, tile % across * CONV_TILE};
}

size_t conv_plane(int tiles, int cin)
{
    return (size_t)tiles * (size_t)cin + PAD;
}

void conv_input(const struct cpu_ops *ops, const struct conv_job *j, int first, int t0, int t1, float *v, size_t plane)
{
    int cin = j->w->cin;
    for (int t = t0; t < t1; t++) {
        struct place p = tile_at(j, first + t);
        ops->conv->input(v + (size_t)t * (size_t)cin, plane, j->x + frame_floats(j, p.image, p.row, p.column),
                         (size_t)j->width * (size_t)cin, cin);
    }
}

size_t conv_group_floats(int tiles, int cin)
{
    return CONV_PLANES * ((size_t)cin * CONV_WIDE + PAD + (size_t)tiles * CONV_WIDE + PAD);
}

void conv_group(const struct cpu_ops *ops, const struct conv_job *j, int first, int t0, int t1, int g, const float *v,
                size_t plane, float *scratch)
{
    const struct conv *c = j->w;
    size_t uplane = (size_t)c->cin * CONV_WIDE + PAD, mplane = (size_t)(t1 - t0) * CONV_WIDE + PAD;
    float *u = scratch, *m = scratch + CONV_PLANES * uplane;
    ops->conv->weights(c->type, u, uplane, group_weights(c, g), c->cin);
    for (size_t p = 0; p < CONV_PLANES; p++)
        ops->conv->points(m + p * mplane, v + p * plane + (size_t)t0 * (size_t)c->cin, u + p * uplane, t1 - t0, c->cin);
    for (int t = t0; t < t1; t++) {
        struct place p = tile_at(j, first + t);
        size_t at = pixel_floats(j, p.image, j->y0 + p.row, p.column) + (size_t)(g * CONV_WIDE);
        int below = j->y1 - j->y0 - p.row, right = j->wd - p.column;
        struct conv_place to = {.y = j->y + at, .add = j->add ? j->add + at : NULL,
                                .row = (size_t)j->wd * (size_t)j->ldy, .ld = j->ldy,
                                .rows = below < CONV_TILE ? below : CONV_TILE,
                                .cols = right < CONV_TILE ? right : CONV_TILE,
                                .channels = group_channels(c, g), .bias = j->bias + g * CONV_WIDE};
        ops->conv->output(&to, m + (size_t)(t - t0) * CONV_WIDE, mplane);
    }
}
