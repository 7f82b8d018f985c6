// mat_pack.c - rows of a file to the kernels' interleaved layouts and back to numbers. Loader lanes call mat_pack side by
// side on different groups; nothing is shared.
//
// A type reads its own file block into codes (kernels/quant/*.c); the planes are written here, four codes of a row at a
// time as one 32-bit word. The commonest types of 32 elements are plain moves of such words.
#include "kernels/mat_pack.h"

#include <string.h>

#include "kernels/cpu/mat_ops.h"
#include "kernels/mat.h"
#include "kernels/quant/bits.h"
#include "kernels/quant/levels.h"

#define IQ3(a, b, c, d, e, f, g, h) {a, b, c, d, e, f, g, h, -(a), -(b), -(c), -(d), -(e), -(f), -(g), -(h)}

// Entries past a form's codes are not read. IQ2: 8, 25, 43 and their negatives from 4 on; IQ1: 8 times -1, 0, 1, plus 1,
// and minus 1 from 4 on.
static const int8_t tables[][16] = {
    [MAT_TABLE_IQ4] = IQ4_LEVELS,
    [MAT_TABLE_E2M1] = E2M1_LEVELS,
    [MAT_TABLE_IQ3_XXS] = IQ3(4, 12, 20, 28, 36, 44, 52, 62),
    [MAT_TABLE_IQ3_S] = IQ3(1, 3, 5, 7, 9, 11, 13, 15),
    [MAT_TABLE_IQ2] = {8, 25, 43, 0, -8, -25, -43, 0},
    [MAT_TABLE_IQ1] = {-7, 1, 9, 0, -9, -1, 7, 0},
};

static const struct mat_packing packings[QUANT_COUNT] = {
#define PACK_FLOAT {MAT_FORM_FLOAT, NULL, 1}
#define PACK(form, table, unit) {MAT_FORM_##form, MAT_TABLE_##table == MAT_TABLE_NONE ? NULL : tables[MAT_TABLE_##table], unit}
#define QUANT(file, name, pack) [QUANT_##name] = pack,
#include "kernels/quant/quants.def"
#undef QUANT
};

const struct mat_packing *mat_pack_of(enum quant_type type)
{
    return &packings[type];
}

// ---- into the layout

static uint32_t word(const uint8_t *u, int group)  // 4 codes
{
    uint32_t w;
    memcpy(&w, u + 4 * group, 4);
    return w;
}

static void put(uint8_t *dst, int vector, int r, uint32_t w)
{
    memcpy(dst + 32 * vector + 4 * r, &w, 4);
}

static void put_nibbles(uint8_t *dst, int r, const uint8_t *u)
{
    for (int j = 0; j < 4; j++)
        put(dst, j, r, (word(u, j) & 0x0f0f0f0f) | (word(u, 4 + j) & 0x0f0f0f0f) << 4);
}

// Two-bit fields, four k-groups to a byte; the bits from `shift` on of the codes.
static void put_2bit(uint8_t *dst, int r, const uint8_t *u, int shift)
{
    for (int h = 0; h < 2; h++) {
        uint32_t w = 0;
        for (int f = 0; f < 4; f++)
            w |= (word(u, 4 * h + f) >> shift & 0x03030303) << 2 * f;
        put(dst, h, r, w);
    }
}

static void put_high_bit(uint8_t *dst, int r, const uint8_t *u, int bit)
{
    uint32_t w = 0;
    for (int j = 0; j < 8; j++)
        w |= (word(u, j) >> bit & 0x01010101) << j;
    put(dst, 0, r, w);
}

static void put_plane(enum mat_plane plane, uint8_t *dst, int r, const uint8_t *u)
{
    switch (plane) {
    case MAT_PLANE_BYTES:
        for (int j = 0; j < 8; j++)
            put(dst, j, r, word(u, j));
        break;
    case MAT_PLANE_NIBBLES:
        put_nibbles(dst, r, u);
        break;
    case MAT_PLANE_5BIT:
        put_nibbles(dst, r, u);
        put_high_bit(dst + 128, r, u, 4);
        break;
    case MAT_PLANE_6BIT:
        put_nibbles(dst, r, u);
        put_2bit(dst + 128, r, u, 4);
        break;
    case MAT_PLANE_3BIT:
        put_2bit(dst, r, u, 0);
        put_high_bit(dst + 64, r, u, 2);
        break;
    case MAT_PLANE_2BIT:
        put_2bit(dst, r, u, 0);
        break;
    }
}

static void put_numbers(const struct mat *m, uint8_t *record, int r, const struct quant_codes *c)
{
    size_t size = (size_t)quant_number_bytes(m->number);
    switch (mat_traits[m->form].numbers) {
    case MAT_NUMBERS_NONE:
        break;
    case MAT_NUMBERS_ANY_ADD:
        memcpy(record + (size_t)r * size, c->d, size);
        memcpy(record + (MAT_GROUP + (size_t)r) * size, c->m, size);
        break;
    case MAT_NUMBERS_E8M0:
        record[r] = c->d[0];
        break;
    case MAT_NUMBERS_F16_ADD:
    case MAT_NUMBERS_F16_SUB:
        memcpy(record + 16 + 2 * r, c->m, 2);
        memcpy(record + 2 * r, c->d, 2);
        break;
    case MAT_NUMBERS_F16:
        memcpy(record + 2 * r, c->d, 2);
        break;
    }
}

// One row's file block into its place in a record.
static void pack_block(const struct mat *m, const struct quant *q, const uint8_t *src, uint8_t *record, int r)
{
    struct quant_codes c;
    int scales = mat_pack_scales(m->form, m->block), numbers = m->head - 8 * scales;
    q->codes(src, &c);
    put_numbers(m, record, r, &c);
    for (int i = 0; i < scales; i++)
        record[numbers + 8 * i + r] = c.scales[i];
    uint8_t *plane = record + m->head;
    for (int b = 0; b < m->block / 32; b++, plane += mat_pack_plane(m->form))
        put_plane(mat_traits[m->form].plane, plane, r, c.u + 32 * b);
}

// The 32-element types whose planes keep the file's byte order: moves of 4 bytes. `head` numbers of 2 bytes and `words`
// of codes, both constant.
static inline __attribute__((always_inline)) void move_block(const uint8_t *src, uint8_t *record, int r, int head, int words)
{
    for (int i = 0; i < head; i++)
        memcpy(record + 16 * i + 2 * r, src + 2 * i, 2);
    for (int j = 0; j < words; j++)
        memcpy(record + 16 * head + 32 * j + 4 * r, src + 2 * head + 4 * j, 4);
}

static void pack_row(const struct mat *m, const uint8_t *src, uint8_t *dst, int r)
{
    const struct quant *q = quant_get(m->type);
    int records = m->cols / m->block;
    for (int i = 0; i < records; i++, src += q->block_bytes, dst += m->record) {
        switch (m->type) {
        case QUANT_Q4_0:
        case QUANT_IQ4_NL:
            move_block(src, dst, r, 1, 4);
            break;
        case QUANT_Q4_1:
            move_block(src, dst, r, 2, 4);
            break;
        case QUANT_Q8_0:
            move_block(src, dst, r, 1, 8);
            break;
        default:
            pack_block(m, q, src, dst, r);
        }
    }
}

// A group of an MLX tensor is a record's row: its numbers as they are, and the codes of each 32.
static void pack_affine(const struct mat *m, const struct quant *q, int row, int k, uint8_t *record, int r)
{
    const size_t bytes = (size_t)q->block_bytes - 8;  // of 32 codes, which follow two f32
    const struct quant_parts *p = m->parts;
    size_t size = (size_t)quant_number_bytes(p->number);
    size_t at = ((size_t)row * (size_t)(m->cols / p->group) + (size_t)(k / p->group)) * size;
    struct quant_codes c;
    const uint8_t *codes = p->codes + ((size_t)row * (size_t)(m->cols / 32) + (size_t)(k / 32)) * bytes;
    uint8_t block[64] = {0}, *plane = record + m->head;
    for (int b = 0; b < m->block / 32; b++, codes += bytes, plane += mat_pack_plane(m->form)) {
        memcpy(block + 8, codes, bytes);
        q->codes(block, &c);
        put_plane(mat_traits[m->form].plane, plane, r, c.u);
    }
    memcpy(c.d, p->scales + at, size);
    memcpy(c.m, p->biases + at, size);
    put_numbers(m, record, r, &c);
}

static void pack_parts_row(const struct mat *m, int row, uint8_t *dst, int r)
{
    const struct quant *q = quant_get(m->type);
    uint8_t block[64];
    for (int k = 0; k < m->cols; k += m->block, dst += m->record) {
        if (mat_traits[m->form].numbers == MAT_NUMBERS_ANY_ADD) {
            pack_affine(m, q, row, k, dst, r);
            continue;
        }
        quant_gather(m->type, m->parts, m->cols, row, k, q->block, block);
        pack_block(m, q, block, dst, r);
    }
}

static void pack_group(const struct mat *m, uint8_t *dst, const uint8_t *src, int g)
{
    const struct quant *q = quant_get(m->type);
    size_t records = (size_t)(m->cols / m->block), row_bytes = records * (size_t)q->block_bytes;
    int rows = m->rows - g * MAT_GROUP < MAT_GROUP ? m->rows - g * MAT_GROUP : MAT_GROUP;
    dst += (size_t)g * records * (size_t)m->record;
    if (rows < MAT_GROUP)
        memset(dst, 0, records * (size_t)m->record);
    for (int r = 0; r < rows; r++) {
        if (m->parts)
            pack_parts_row(m, g * MAT_GROUP + r, dst, r);
        else
            pack_row(m, src + (size_t)(g * MAT_GROUP + r) * row_bytes, dst, r);
    }
}

// 8 rows of elements of a constant size.
static inline __attribute__((always_inline)) void pack_floats(const struct mat *m, uint8_t *dst, const uint8_t *src, int g,
                                                              const size_t size)
{
    const size_t cols = (size_t)m->cols;
    size_t wide = (size_t)g / 4, groups = (size_t)mat_groups(m) - 4 * wide;
    size_t width = (groups < 4 ? groups : 4) * MAT_GROUP;
    dst += (wide * MAT_WIDE * cols + (size_t)(g % 4) * MAT_GROUP) * size;
    for (size_t k = 0; k < cols; k++, dst += width * size) {
        for (size_t r = 0; r < MAT_GROUP; r++) {
            size_t row = (size_t)g * MAT_GROUP + r;
            if (row < (size_t)m->rows)
                memcpy(dst + r * size, src + (row * cols + k) * size, size);
            else
                memset(dst + r * size, 0, size);
        }
    }
}

// Two k of up to 8 rows of bf16, side by side; both: there are two.
static inline __attribute__((always_inline)) void pack_pair(uint8_t *dst, const uint8_t *src, size_t row_bytes, size_t rows,
                                                            const bool both)
{
    uint16_t v[2 * MAT_GROUP] = {0};
    for (size_t r = 0; r < rows; r++)
        memcpy(v + 2 * r, src + r * row_bytes, both ? 4 : 2);
    for (int i = 0; i < 2 * MAT_GROUP; i++)
        v[i] = bf16_kept(v[i]);
    memcpy(dst, v, sizeof v);
}

static void pack_pairs(const struct mat *m, uint8_t *dst, const uint8_t *src, int g)
{
    const size_t cols = (size_t)m->cols, wide = (size_t)g / 4, first = (size_t)g * MAT_GROUP;
    size_t groups = (size_t)mat_groups(m) - 4 * wide, step = (groups < 4 ? groups : 4) * MAT_GROUP * 4;
    size_t rows = (size_t)m->rows - first < MAT_GROUP ? (size_t)m->rows - first : MAT_GROUP, k = 0;
    dst += wide * MAT_WIDE * mat_pack_pairs(m->cols) * 4 + (size_t)(g % 4) * MAT_GROUP * 4;
    src += first * cols * 2;
    for (; rows == MAT_GROUP && k + 2 <= cols; k += 2, dst += step)
        pack_pair(dst, src + 2 * k, 2 * cols, MAT_GROUP, true);
    for (; k + 2 <= cols; k += 2, dst += step)
        pack_pair(dst, src + 2 * k, 2 * cols, rows, true);
    if (k < cols)
        pack_pair(dst, src + 2 * k, 2 * cols, rows, false);
}

void mat_pack(const struct mat *m, uint8_t *dst, const void *src, int g0, int g1)
{
    for (int g = g0; g < g1; g++) {
        if (m->form != MAT_FORM_FLOAT)
            pack_group(m, dst, src, g);
        else if (m->math == MAT_BF16)
            pack_pairs(m, dst, src, g);
        else if (m->type == QUANT_F32)
            pack_floats(m, dst, src, g, 4);
        else
            pack_floats(m, dst, src, g, 2);
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

static int get_code(enum mat_plane plane, const uint8_t *p, int r, int i)
{
    switch (plane) {
    case MAT_PLANE_BYTES:
        return (int8_t)p[32 * (i / 4) + 4 * r + i % 4];
    case MAT_PLANE_NIBBLES:
        return get_nibble(p, r, i);
    case MAT_PLANE_5BIT:
        return get_nibble(p, r, i) | get_bit(p + 128, r, i) << 4;
    case MAT_PLANE_6BIT:
        return get_nibble(p, r, i) | get_2bit(p + 128, r, i) << 4;
    case MAT_PLANE_3BIT:
        return get_2bit(p, r, i) | get_bit(p + 64, r, i) << 2;
    case MAT_PLANE_2BIT:
        return get_2bit(p, r, i);
    }
    return 0;
}

static void get_numbers(const struct mat *m, const uint8_t *record, int r, struct mat_codes *c)
{
    enum mat_numbers numbers = mat_traits[m->form].numbers;
    c->s[0] = c->s[1] = c->m[0] = c->m[1] = 1;
    if (numbers == MAT_NUMBERS_ANY_ADD) {
        size_t size = (size_t)quant_number_bytes(m->number);
        c->d[0] = get_float(m->number, record + (size_t)r * size);
        c->min = -get_float(m->number, record + (MAT_GROUP + (size_t)r) * size);
        c->has_min = true;
        return;
    }
    c->d[0] = numbers == MAT_NUMBERS_E8M0 ? e8m0_half(record[r]) : get_f16(record + 2 * r) * m->unit;
    c->has_min = numbers == MAT_NUMBERS_F16_ADD || numbers == MAT_NUMBERS_F16_SUB;
    c->min = c->has_min ? get_f16(record + 16 + 2 * r) : 0;
    if (numbers == MAT_NUMBERS_F16_ADD)
        c->min = -c->min;
}

// Sub-scales of 32-block b.
static void get_scales(const struct mat *m, const uint8_t *record, int b, int r, struct mat_codes *c)
{
    const uint8_t *scale = record + m->head - 8 * mat_pack_scales(m->form, m->block) + r;
    switch (mat_traits[m->form].scales) {
    case MAT_SCALES_NONE:
        break;
    case MAT_SCALES_U8_32:
        c->d[0] *= (float)scale[8 * b];
        c->min *= (float)scale[m->block / 4 + 8 * b];
        break;
    case MAT_SCALES_I8_32:
        c->d[0] *= (float)(int8_t)scale[8 * b];
        break;
    case MAT_SCALES_I8_16:
        for (int h = 0; h < 2; h++)
            c->s[h] = (int8_t)scale[8 * (2 * b + h)];
        break;
    case MAT_SCALES_U4_16:
        for (int h = 0; h < 2; h++) {
            c->s[h] = scale[8 * (2 * b + h)] & 15;
            c->m[h] = scale[8 * (2 * b + h)] >> 4;
        }
        break;
    case MAT_SCALES_E4M3_16:
        c->split = true;
        c->d[0] = e4m3_half(scale[16 * b]);
        c->d[1] = e4m3_half(scale[16 * b + 8]);
        return;
    }
    c->d[1] = c->d[0];
}

void mat_pack_codes(const struct mat *m, const uint8_t *record, int b, int r, struct mat_codes *ret_codes)
{
    const struct mat_traits *t = &mat_traits[m->form];
    const uint8_t *plane = record + m->head + b * mat_pack_plane(m->form);
    for (int i = 0; i < 32; i++) {
        int u = get_code(t->plane, plane, r, i);
        ret_codes->v[i] = t->lookup ? m->table[u] : u - t->zero;
    }
    ret_codes->split = false;
    get_numbers(m, record, r, ret_codes);
    get_scales(m, record, b, r, ret_codes);
}

// Numbers of f16 only: the other kinds are either finite by themselves or not written to files.
bool mat_pack_finite(const struct mat *m, int g0, int g1, int *ret_row, int *ret_col)
{
    enum mat_numbers numbers = mat_traits[m->form].numbers;
    size_t records = (size_t)(m->cols / m->block);
    int count = numbers == MAT_NUMBERS_F16 ? 8 : numbers == MAT_NUMBERS_F16_ADD || numbers == MAT_NUMBERS_F16_SUB ? 16 : 0;
    const uint8_t *record = m->data + (size_t)g0 * records * (size_t)m->record;
    for (int g = g0; g < g1; g++) {
        for (size_t i = 0; i < records; i++, record += m->record) {
            int bad = -1;
            for (int k = 0; k < count; k++)
                bad = (get_u16(record + 2 * k) & 0x7c00) == 0x7c00 ? k : bad;
            if (bad >= 0) {
                *ret_row = g * MAT_GROUP + bad % 8;
                *ret_col = (int)i * m->block;
                return false;
            }
        }
    }
    return true;
}
