// mat_pack.c - rows of a file to the kernels' interleaved layouts and back to numbers (kernels/cpu/mat_ops.h has the
// layouts). Loader lanes call mat_pack side by side on different groups; nothing is shared.
//
// Packing goes through one row's codes: a type says how to read them from its file block, and where its scales lie; the
// bit planes are written by shared code. The two most used planes are plain moves of 4-byte pieces.
#include <string.h>

#include "kernels/cpu/mat_ops.h"
#include "kernels/mat.h"

enum plane {
    PLANE_BYTES,    // 8 vectors
    PLANE_NIBBLES,  // 4 vectors
    PLANE_5BIT,     // 4 + 1
    PLANE_6BIT,     // 4 + 2
    PLANE_3BIT,     // 2 + 1
    PLANE_2BIT,     // 2
};

static const uint8_t plane_vectors[] = {8, 4, 5, 6, 3, 2};

// What a type's packed record is made of. Offsets of 8-row arrays inside a record; -1: absent.
struct form {
    int block, file_bytes;  // elements and bytes of one row's file block
    int f16s;               // f16 numbers per row at the start (d, then the minimum)
    int d_at, m_at;         // where they lie in the file block
    int scales;             // scale bytes per row that follow (already widened to 8 bits)
    enum plane plane;
    void (*codes)(const uint8_t *src, uint8_t *scales, uint8_t *u);  // file block -> scale bytes, codes
};

static int nibble(const uint8_t *qs, int i)  // Q4_0's order: 16 low nibbles, then 16 high ones
{
    return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4;
}

static void codes_nibbles(const uint8_t *qs, uint8_t *u)
{
    for (int i = 0; i < 32; i++)
        u[i] = (uint8_t)nibble(qs, i);
}

static void codes_q4_0(const uint8_t *src, uint8_t *scales, uint8_t *u)
{
    (void)scales;
    codes_nibbles(src + 2, u);
}

static void codes_q4_1(const uint8_t *src, uint8_t *scales, uint8_t *u)
{
    (void)scales;
    codes_nibbles(src + 4, u);
}

static void codes_5(const uint8_t *qh, const uint8_t *qs, uint8_t *u)
{
    uint32_t h = qh[0] | (uint32_t)qh[1] << 8 | (uint32_t)qh[2] << 16 | (uint32_t)qh[3] << 24;
    for (int i = 0; i < 32; i++)
        u[i] = (uint8_t)(nibble(qs, i) | (h >> i & 1) << 4);
}

static void codes_q5_0(const uint8_t *src, uint8_t *scales, uint8_t *u)
{
    (void)scales;
    codes_5(src + 2, src + 6, u);
}

static void codes_q5_1(const uint8_t *src, uint8_t *scales, uint8_t *u)
{
    (void)scales;
    codes_5(src + 4, src + 8, u);
}

static void codes_q8_0(const uint8_t *src, uint8_t *scales, uint8_t *u)
{
    (void)scales;
    memcpy(u, src + 2, 32);
}

// The 6-bit scales and minimums of Q4_K and Q5_K: 12 bytes at p; [0, 8) scales, [8, 16) minimums.
static void scales_k4(const uint8_t *p, uint8_t *scales)
{
    for (int b = 0; b < 4; b++) {
        scales[b] = p[b] & 63;
        scales[8 + b] = p[4 + b] & 63;
        scales[4 + b] = (uint8_t)((p[8 + b] & 15) | p[b] >> 6 << 4);
        scales[12 + b] = (uint8_t)(p[8 + b] >> 4 | p[4 + b] >> 6 << 4);
    }
}

// d f16, dmin f16, scales[12], qs[128]: chunk i of 32 bytes is block 2i (low nibbles) and 2i + 1 (high).
static void codes_q4_k(const uint8_t *src, uint8_t *scales, uint8_t *u)
{
    scales_k4(src + 4, scales);
    for (int i = 0; i < 4; i++) {
        for (int l = 0; l < 32; l++) {
            uint8_t byte = src[16 + 32 * i + l];
            u[64 * i + l] = byte & 15;
            u[64 * i + 32 + l] = byte >> 4;
        }
    }
}

// As Q4_K with qh[32] before qs: bit b of qh[l] belongs to block b.
static void codes_q5_k(const uint8_t *src, uint8_t *scales, uint8_t *u)
{
    scales_k4(src + 4, scales);
    for (int i = 0; i < 4; i++) {
        for (int l = 0; l < 32; l++) {
            uint8_t byte = src[48 + 32 * i + l], h = src[16 + l];
            u[64 * i + l] = (uint8_t)((byte & 15) | (h >> 2 * i & 1) << 4);
            u[64 * i + 32 + l] = (uint8_t)(byte >> 4 | (h >> (2 * i + 1) & 1) << 4);
        }
    }
}

// ql[128], qh[64], i8 scales[16], d f16; two halves of 128 elements.
static void codes_q6_k(const uint8_t *src, uint8_t *scales, uint8_t *u)
{
    memcpy(scales, src + 192, 16);
    for (int h = 0; h < 2; h++) {
        const uint8_t *ql = src + 64 * h, *qh = src + 128 + 32 * h;
        for (int l = 0; l < 32; l++) {
            u[128 * h + l] = (uint8_t)((ql[l] & 15) | (qh[l] & 3) << 4);
            u[128 * h + 32 + l] = (uint8_t)((ql[32 + l] & 15) | (qh[l] >> 2 & 3) << 4);
            u[128 * h + 64 + l] = (uint8_t)(ql[l] >> 4 | (qh[l] >> 4 & 3) << 4);
            u[128 * h + 96 + l] = (uint8_t)(ql[32 + l] >> 4 | (qh[l] >> 6 & 3) << 4);
        }
    }
}

// hmask[32], qs[64], scales[12] (6 bits, minus 32), d f16. Codes are 0..7 and mean code - 4.
static void codes_q3_k(const uint8_t *src, uint8_t *scales, uint8_t *u)
{
    const uint8_t *p = src + 96;
    for (int i = 0; i < 16; i++) {
        int low = i < 8 ? p[i] & 15 : p[i - 8] >> 4, high = p[8 + i % 4] >> 2 * (i / 4) & 3;
        scales[i] = (uint8_t)(int8_t)((low | high << 4) - 32);
    }
    for (int i = 0; i < 256; i++) {
        int half = i / 128, pair = i / 32 % 4, l = i % 32;
        int low = src[32 + 32 * half + l] >> 2 * pair & 3, high = src[l] >> (i / 32) & 1;
        u[i] = (uint8_t)(low | high << 2);
    }
}

// scales[16] (4 bits scale, 4 bits minimum), qs[64], d f16, dmin f16.
static void codes_q2_k(const uint8_t *src, uint8_t *scales, uint8_t *u)
{
    memcpy(scales, src, 16);
    for (int i = 0; i < 256; i++)
        u[i] = src[16 + 32 * (i / 128) + i % 32] >> 2 * (i / 32 % 4) & 3;
}

// d f16, scales_h u16, scales_l[4], qs[128].
static void codes_iq4_xs(const uint8_t *src, uint8_t *scales, uint8_t *u)
{
    unsigned high = src[2] | (unsigned)src[3] << 8;
    for (int b = 0; b < 8; b++) {
        int low = src[4 + b / 2] >> 4 * (b % 2) & 15;
        scales[b] = (uint8_t)(int8_t)((low | (int)(high >> 2 * b & 3) << 4) - 32);
        codes_nibbles(src + 8 + 16 * b, u + 32 * b);
    }
}

static const struct form forms[QUANT_COUNT] = {
    [QUANT_Q4_0] = {32, 18, 1, 0, 0, 0, PLANE_NIBBLES, codes_q4_0},
    [QUANT_Q4_1] = {32, 20, 2, 0, 2, 0, PLANE_NIBBLES, codes_q4_1},
    [QUANT_Q5_0] = {32, 22, 1, 0, 0, 0, PLANE_5BIT, codes_q5_0},
    [QUANT_Q5_1] = {32, 24, 2, 0, 2, 0, PLANE_5BIT, codes_q5_1},
    [QUANT_Q8_0] = {32, 34, 1, 0, 0, 0, PLANE_BYTES, codes_q8_0},
    [QUANT_IQ4_NL] = {32, 18, 1, 0, 0, 0, PLANE_NIBBLES, codes_q4_0},
    [QUANT_Q2_K] = {256, 84, 2, 80, 82, 16, PLANE_2BIT, codes_q2_k},
    [QUANT_Q3_K] = {256, 110, 1, 108, 0, 16, PLANE_3BIT, codes_q3_k},
    [QUANT_Q4_K] = {256, 144, 2, 0, 2, 16, PLANE_NIBBLES, codes_q4_k},
    [QUANT_Q5_K] = {256, 176, 2, 0, 2, 16, PLANE_5BIT, codes_q5_k},
    [QUANT_Q6_K] = {256, 210, 1, 208, 0, 16, PLANE_6BIT, codes_q6_k},
    [QUANT_IQ4_XS] = {256, 136, 1, 0, 0, 8, PLANE_NIBBLES, codes_iq4_xs},
};

const int8_t mat_pack_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

bool mat_pack_has(enum quant_type type)
{
    return forms[type].block != 0;
}

int mat_pack_block(enum quant_type type)
{
    return forms[type].block;
}

static int planes_at(const struct form *f)
{
    return 16 * f->f16s + 8 * f->scales;
}

int mat_pack_bytes(enum quant_type type)
{
    const struct form *f = &forms[type];
    return planes_at(f) + f->block / 32 * plane_vectors[f->plane] * 32;
}

// Two-bit fields, four k-groups to a byte, of 32 codes of row r.
static void put_2bit(uint8_t *dst, int r, const uint8_t *u, int shift)
{
    for (int i = 0; i < 32; i++)
        dst[32 * (i / 16) + 4 * r + i % 4] |= (uint8_t)((u[i] >> shift & 3) << 2 * (i / 4 % 4));
}

static void put_nibbles(uint8_t *dst, int r, const uint8_t *u)
{
    for (int i = 0; i < 16; i++)
        dst[32 * (i / 4) + 4 * r + i % 4] = (uint8_t)((u[i] & 15) | (u[16 + i] & 15) << 4);
}

static void put_high_bit(uint8_t *dst, int r, const uint8_t *u, int bit)
{
    for (int i = 0; i < 4; i++) {
        unsigned byte = 0;
        for (int j = 0; j < 8; j++)
            byte |= (u[4 * j + i] >> bit & 1u) << j;
        dst[4 * r + i] = (uint8_t)byte;
    }
}

static void put_plane(enum plane plane, uint8_t *dst, int r, const uint8_t *u)
{
    switch (plane) {
    case PLANE_BYTES:
        for (int j = 0; j < 8; j++)
            memcpy(dst + 32 * j + 4 * r, u + 4 * j, 4);
        break;
    case PLANE_NIBBLES:
        put_nibbles(dst, r, u);
        break;
    case PLANE_5BIT:
        put_nibbles(dst, r, u);
        put_high_bit(dst + 128, r, u, 4);
        break;
    case PLANE_6BIT:
        put_nibbles(dst, r, u);
        put_2bit(dst + 128, r, u, 4);
        break;
    case PLANE_3BIT:
        put_2bit(dst, r, u, 0);
        put_high_bit(dst + 64, r, u, 2);
        break;
    case PLANE_2BIT:
        put_2bit(dst, r, u, 0);
        break;
    }
}

// One row's file block into its place in a (zeroed) record.
static void pack_row(const struct form *f, const uint8_t *src, uint8_t *record, int r)
{
    uint8_t scales[16], u[256];
    f->codes(src, scales, u);
    memcpy(record + 2 * r, src + f->d_at, 2);
    if (f->f16s == 2)
        memcpy(record + 16 + 2 * r, src + f->m_at, 2);
    for (int i = 0; i < f->scales; i++)
        record[16 * f->f16s + 8 * i + r] = scales[i];
    int step = plane_vectors[f->plane] * 32;
    for (int b = 0; b < f->block / 32; b++)
        put_plane(f->plane, record + planes_at(f) + b * step, r, u + 32 * b);
}

// The 32-element types whose planes keep the file's byte order: 4-byte moves.
static bool pack_row_fast(enum quant_type type, const uint8_t *src, uint8_t *record, int r)
{
    const struct form *f = &forms[type];
    bool nibbles = type == QUANT_Q4_0 || type == QUANT_Q4_1 || type == QUANT_IQ4_NL;
    if (!nibbles && type != QUANT_Q8_0)
        return false;
    memcpy(record + 2 * r, src, 2);
    if (f->f16s == 2)
        memcpy(record + 16 + 2 * r, src + 2, 2);
    const uint8_t *q = src + 2 * f->f16s;
    uint8_t *dst = record + 16 * f->f16s + 4 * r;
    for (int j = 0; j < (nibbles ? 4 : 8); j++)
        memcpy(dst + 32 * j, q + 4 * j, 4);
    return true;
}

static void pack_group(const struct mat *m, uint8_t *dst, const uint8_t *src, int g)
{
    const struct form *f = &forms[m->type];
    int records = m->cols / f->block, bytes = mat_pack_bytes(m->type);
    size_t row_bytes = (size_t)records * (size_t)f->file_bytes;
    dst += (size_t)g * (size_t)records * (size_t)bytes;
    memset(dst, 0, (size_t)records * (size_t)bytes);
    int rows = m->rows - g * MAT_GROUP < MAT_GROUP ? m->rows - g * MAT_GROUP : MAT_GROUP;
    for (int i = 0; i < records; i++) {
        for (int r = 0; r < rows; r++) {
            const uint8_t *block = src + (size_t)(g * MAT_GROUP + r) * row_bytes + (size_t)i * (size_t)f->file_bytes;
            uint8_t *record = dst + (size_t)i * (size_t)bytes;
            if (!pack_row_fast(m->type, block, record, r))
                pack_row(f, block, record, r);
        }
    }
}

static void pack_floats(const struct mat *m, uint8_t *dst, const uint8_t *src, int g)
{
    size_t size = m->type == QUANT_F32 ? 4 : 2, cols = (size_t)m->cols;
    int wide = g / 4, groups = mat_groups(m) - 4 * wide;
    size_t width = (size_t)(groups < 4 ? groups : 4) * MAT_GROUP;
    dst += ((size_t)wide * MAT_WIDE * cols + (size_t)(g % 4) * MAT_GROUP) * size;
    for (int r = 0; r < MAT_GROUP; r++) {
        int row = g * MAT_GROUP + r;
        uint8_t *d = dst + (size_t)r * size;
        const uint8_t *s = src + (size_t)row * cols * size;
        for (size_t k = 0; k < cols; k++, d += width * size) {
            if (row >= m->rows)
                memset(d, 0, size);
            else if (size == 4)
                memcpy(d, s + 4 * k, 4);
            else
                memcpy(d, s + 2 * k, 2);
        }
    }
}

void mat_pack(const struct mat *m, uint8_t *dst, const void *src, int g0, int g1)
{
    for (int g = g0; g < g1; g++) {
        if (mat_pack_has(m->type))
            pack_group(m, dst, src, g);
        else
            pack_floats(m, dst, src, g);
    }
}

// ---- back to integers

static int get_2bit(const uint8_t *p, int r, int i)
{
    return p[32 * (i / 16) + 4 * r + i % 4] >> 2 * (i / 4 % 4) & 3;
}

static int get_nibble(const uint8_t *p, int r, int i)
{
    return p[32 * (i / 4 % 4) + 4 * r + i % 4] >> (i < 16 ? 0 : 4) & 15;
}

static int get_bit(const uint8_t *p, int r, int i)
{
    return p[4 * r + i % 4] >> (i / 4) & 1;
}

static int get_code(enum plane plane, const uint8_t *p, int r, int i)
{
    switch (plane) {
    case PLANE_BYTES:
        return (int8_t)p[32 * (i / 4) + 4 * r + i % 4];
    case PLANE_NIBBLES:
        return get_nibble(p, r, i);
    case PLANE_5BIT:
        return get_nibble(p, r, i) | get_bit(p + 128, r, i) << 4;
    case PLANE_6BIT:
        return get_nibble(p, r, i) | get_2bit(p + 128, r, i) << 4;
    case PLANE_3BIT:
        return get_2bit(p, r, i) | get_bit(p + 64, r, i) << 2;
    case PLANE_2BIT:
        return get_2bit(p, r, i);
    }
    return 0;
}

static int zero_point(enum quant_type type)
{
    return type == QUANT_Q4_0 ? 8 : type == QUANT_Q5_0 ? 16 : type == QUANT_Q6_K ? 32 : type == QUANT_Q3_K ? 4 : 0;
}

static float f16_at(const uint8_t *p, int i)
{
    uint16_t h;
    memcpy(&h, p + 2 * i, 2);
    return quant_f16_to_f32(h);
}

// Scales and minimums of 32-block b, row r.
static void get_scales(enum quant_type type, const uint8_t *record, int b, int r, struct mat_codes *c)
{
    const struct form *f = &forms[type];
    const uint8_t *scale = record + 16 * f->f16s + r;
    c->s[0] = c->s[1] = c->m[0] = c->m[1] = 1;
    c->d = f16_at(record, r);
    c->has_min = f->f16s == 2;
    c->min = c->has_min ? f16_at(record + 16, r) : 0;
    switch (type) {
    case QUANT_Q4_1:
    case QUANT_Q5_1:
        c->min = -c->min;  // these files store what is added
        break;
    case QUANT_Q4_K:
    case QUANT_Q5_K:
        c->d *= (float)scale[8 * b];
        c->min *= (float)scale[64 + 8 * b];
        break;
    case QUANT_IQ4_XS:
        c->d *= (float)(int8_t)scale[8 * b];
        break;
    case QUANT_Q3_K:
    case QUANT_Q6_K:
        for (int h = 0; h < 2; h++)
            c->s[h] = (int8_t)scale[8 * (2 * b + h)];
        break;
    case QUANT_Q2_K:
        for (int h = 0; h < 2; h++) {
            c->s[h] = scale[8 * (2 * b + h)] & 15;
            c->m[h] = scale[8 * (2 * b + h)] >> 4;
        }
        break;
    default:
        break;
    }
}

void mat_pack_codes(enum quant_type type, const uint8_t *record, int b, int r, struct mat_codes *ret_codes)
{
    const struct form *f = &forms[type];
    const uint8_t *plane = record + planes_at(f) + b * plane_vectors[f->plane] * 32;
    bool table = type == QUANT_IQ4_NL || type == QUANT_IQ4_XS;
    for (int i = 0; i < 32; i++) {
        int u = get_code(f->plane, plane, r, i);
        ret_codes->v[i] = table ? mat_pack_iq4_values[u] : u - zero_point(type);
    }
    get_scales(type, record, b, r, ret_codes);
}
