// mat.c - planning a weight's layout, and multiplying by it: which kernel, in which pieces. Lanes call mat_mul side by
// side on different row groups; all scratch is on the stack.
#include "kernels/mat.h"

#include <assert.h>
#include <string.h>

#include "kernels/cpu.h"
#include "kernels/cpu/mat_ops.h"
#include "kernels/cpu/ref.h"

enum {
    FLOAT_TOKENS = 96,  // activations of a tile and a piece stay in L2
    FLOAT_PIECE = 512,
    FETCH_BYTES = 8192,  // all of most groups: the hardware follows only where reading goes on
    PAIR_PIECE = 256,
    PANEL_K = 256,  // a multiple of every type's block; the panel is 32 KB
};

static const struct {
    const char *name;
    enum mat_math math;
} maths[] = {{"f32", MAT_F32}, {"int8", MAT_INT8}, {"bf16", MAT_INT8_BF16}};

bool mat_math_from_name(const char *name, enum mat_math *ret_math)
{
    for (size_t i = 0; i < sizeof maths / sizeof *maths; i++) {
        if (strcmp(maths[i].name, name) == 0) {
            *ret_math = maths[i].math;
            return true;
        }
    }
    return false;
}

const char *mat_math_name(enum mat_math math)
{
    return math & MAT_BF16 ? "bf16" : math & MAT_INT8 ? "int8" : "f32";
}

typedef void chain_fn(float *acc, int ldacc, const void *w, int width, int ng, const float *x, int ldx, int n, int k);

static void plan_records(struct mat *m)
{
    int open = mat_traits[m->form].numbers == MAT_NUMBERS_ANY_ADD ? 2 * MAT_GROUP * quant_number_bytes(m->number) : 0;
    m->head = mat_pack_head(m->form, m->block) + open;
    m->record = mat_pack_record(m->form, m->block) + open;
    m->bytes = (size_t)mat_groups(m) * (size_t)(m->cols / m->block) * (size_t)m->record;
}

err_code mat_plan(struct mat *m, enum quant_type type, int rows, int cols, enum mat_math math, err *e)
{
    const struct quant *q = quant_get(type);
    if (rows <= 0 || cols <= 0 || cols % q->block)
        return err_set(e, ERR_INVALID, "matrix of %d x %d %s weights, expected positive sizes and columns in blocks of %d",
                       rows, cols, q->name, q->block);
    const struct mat_packing *p = mat_pack_of(type);
    *m = (struct mat){.type = type, .math = MAT_F32, .layout = MAT_PACKED, .form = p->form, .rows = rows, .cols = cols,
                      .table = p->table, .unit = p->unit};
    size_t groups = (size_t)mat_groups(m);
    if (m->form == MAT_FORM_FLOAT) {
        m->bytes = groups * MAT_GROUP * (size_t)cols * (size_t)q->block_bytes;
        if (type == QUANT_BF16 && math & MAT_BF16) {
            m->math = MAT_BF16;
            m->bytes = groups * MAT_GROUP * mat_pack_pairs(cols) * 4;
        }
        return ERR_OK;
    }
    m->math = math & MAT_INT8;
    m->block = q->block;
    m->number = QUANT_NUMBER_F32;
    plan_records(m);
    return ERR_OK;
}

err_code mat_plan_parts(struct mat *m, enum quant_type type, const struct quant_parts *parts, int rows, int cols,
                        enum mat_math math, err *e)
{
    struct mat plan;
    err_code code = mat_plan(&plan, type, rows, cols, math, e);
    if (code)
        return code;
    if (parts->group <= 0 || cols % parts->group)
        return err_set(e, ERR_INVALID, "matrix of %d columns in groups of %d, expected whole groups", cols, parts->group);
    plan.parts = parts;
    if (mat_traits[plan.form].numbers == MAT_NUMBERS_ANY_ADD) {
        if (parts->group != 32 && parts->group != 64 && parts->group != 128)
            return err_set(e, ERR_UNSUPPORTED, "groups of %d columns, expected 32, 64 or 128", parts->group);
        plan.block = parts->group;
        plan.number = parts->number;
        plan_records(&plan);
    }
    *m = plan;
    return ERR_OK;
}

bool mat_uses_int8(const struct mat *m)
{
    return m->math == MAT_INT8;
}

// ---- single rows

static float float_at(enum quant_type type, const uint8_t *p, size_t i)
{
    float f;
    uint16_t h;
    if (type == QUANT_F32) {
        memcpy(&f, p + 4 * i, 4);
        return f;
    }
    memcpy(&h, p + 2 * i, 2);
    if (type == QUANT_F16)
        return quant_f16_to_f32(h);
    uint32_t bits = (uint32_t)h << 16;
    memcpy(&f, &bits, 4);
    return f;
}

// Rows interleaved together in the 32-row block that group g belongs to.
static int float_width(const struct mat *m, int g)
{
    int groups = mat_groups(m) - g / 4 * 4;
    return (groups < 4 ? groups : 4) * MAT_GROUP;
}

static void row_pairs(const struct mat *m, int r, float *dst)
{
    size_t width = (size_t)float_width(m, r / MAT_GROUP);
    size_t at = (size_t)(r / MAT_WIDE) * MAT_WIDE * mat_pack_pairs(m->cols) + (size_t)(r % MAT_WIDE);
    for (int k = 0; k < m->cols; k++)
        dst[k] = float_at(m->type, m->data, 2 * (at + (size_t)(k / 2) * width) + (size_t)(k % 2));
}

static void row_floats(const struct mat *m, int r, float *dst)
{
    size_t width = (size_t)float_width(m, r / MAT_GROUP);
    size_t at = (size_t)(r / MAT_WIDE) * MAT_WIDE * (size_t)m->cols + (size_t)(r % MAT_WIDE);
    for (int k = 0; k < m->cols; k++)
        dst[k] = float_at(m->type, m->data, at + (size_t)k * width);
}

static float code_value(const struct mat_codes *c, int i)
{
    float v = c->d[i / 16] * (float)c->s[i / 16] * (float)c->v[i];
    return c->has_min ? v - c->min * (float)c->m[i / 16] : v;
}

static void row_codes(const struct mat *m, int r, float *dst)
{
    size_t records = (size_t)(m->cols / m->block), bytes = (size_t)m->record;
    const uint8_t *p = m->data + (size_t)(r / MAT_GROUP) * records * bytes;
    struct mat_codes c;
    for (int k = 0; k < m->cols; k += MAT_BLOCK, dst += MAT_BLOCK) {
        mat_pack_codes(m, p + (size_t)(k / m->block) * bytes, k % m->block / MAT_BLOCK, r % MAT_GROUP, &c);
        for (int i = 0; i < MAT_BLOCK; i++)
            dst[i] = code_value(&c, i);
    }
}

// Elements k..k+n of row r, as the file has them.
static void file_floats(const struct mat *m, int r, int k, int n, float *dst)
{
    const struct quant *q = quant_get(m->type);
    if (!m->parts) {
        size_t blocks = (size_t)r * (size_t)(m->cols / q->block) + (size_t)(k / q->block);
        q->dequantize(m->data + blocks * (size_t)q->block_bytes, dst, (size_t)n);
        return;
    }
    uint8_t block[64];
    assert(q->block_bytes <= (int)sizeof block);
    for (int i = 0; i < n; i += q->block) {
        quant_gather(m->type, m->parts, m->cols, r, k + i, q->block, block);
        q->dequantize(block, dst + i, (size_t)q->block);
    }
}

void mat_row(const struct mat *m, int r, float *dst)
{
    if (m->layout == MAT_BORROWED)
        file_floats(m, r, 0, m->cols, dst);
    else if (m->form != MAT_FORM_FLOAT)
        row_codes(m, r, dst);
    else if (m->math == MAT_BF16)
        row_pairs(m, r, dst);
    else
        row_floats(m, r, dst);
}

// ---- the float chain

static void write_rows(float *y, int ldy, const float *acc, int ldacc, int n, int rows, enum mat_write write)
{
    for (int t = 0; t < n; t++, y += ldy, acc += ldacc) {
        for (int r = 0; r < rows; r++)
            y[r] = write == MAT_ADD ? y[r] + acc[r] : acc[r];
    }
}

// Panel of row groups g .. g+ng, elements k .. k+n: the dequantised weights as [n][32] floats.
static void fill_panel(const struct cpu_ops *ops, const struct mat *m, int g, int ng, int k, int n, float *panel)
{
    int block = m->block;
    size_t bytes = (size_t)m->record, records = (size_t)(m->cols / block);
    for (int i = 0; i < ng; i++) {
        const uint8_t *record = m->data + ((size_t)(g + i) * records + (size_t)(k / block)) * bytes;
        for (int at = 0; at < n; at += block, record += bytes) {
            float *to = panel + at * MAT_WIDE + i * MAT_GROUP;
            if (ops->mat->panel[m->form])
                ops->mat->panel[m->form](m, record, to);
            else
                ref_mat_panel(m, record, to);
        }
    }
}

// All elements of groups g .. g+ng (inside one 32-row block) for n tokens; acc is [n][32], zeroed.
static void chain_rows(const struct cpu_ops *ops, const struct mat *m, int g, int ng, const float *x, int ldx, int n,
                       float *acc)
{
    _Alignas(64) float panel[PANEL_K * MAT_WIDE];
    if (m->form != MAT_FORM_FLOAT) {
        for (int k = 0; k < m->cols; k += PANEL_K) {
            int piece = m->cols - k < PANEL_K ? m->cols - k : PANEL_K;
            fill_panel(ops, m, g, ng, k, piece, panel);
            ops->mat->chain_f32(acc, MAT_WIDE, panel, MAT_WIDE, ng, x + k, ldx, n, piece);
        }
        return;
    }
    const struct mat_ops *o = ops->mat;
    chain_fn *chain = m->type == QUANT_F32 ? o->chain_f32 : m->type == QUANT_F16 ? o->chain_f16 : o->chain_bf16;
    size_t size = m->type == QUANT_F32 ? 4 : 2, width = (size_t)float_width(m, g);
    size_t at = (size_t)(g / 4) * MAT_WIDE * (size_t)m->cols + (size_t)(g % 4) * MAT_GROUP;
    int step = n <= 3 ? m->cols : FLOAT_PIECE;
    for (int k = 0; k < m->cols; k += step) {
        int piece = m->cols - k < step ? m->cols - k : step;
        chain(acc, MAT_WIDE, m->data + (at + (size_t)k * width) * size, (int)width, ng, x + k, ldx, n, piece);
    }
}

// The same of bf16 by bf16; x rows of ldx numbers.
static void pair_rows(const struct cpu_ops *ops, const struct mat *m, int g, int ng, const uint16_t *x, int ldx, int n, float *acc)
{
    size_t width = (size_t)float_width(m, g);
    size_t at = (size_t)(g / 4) * MAT_WIDE * mat_pack_pairs(m->cols) + (size_t)(g % 4) * MAT_GROUP;
    int cols = 2 * (int)mat_pack_pairs(m->cols), step = n <= 3 ? cols : PAIR_PIECE;
    for (int k = 0; k < cols; k += step) {
        int piece = cols - k < step ? cols - k : step;
        ops->mat->pairs(acc, MAT_WIDE, m->data + (at + (size_t)(k / 2) * width) * 4, (int)width, ng, x + k, ldx, n, piece / 2);
    }
}

static void mul_float(const struct cpu_ops *ops, const struct mat *m, const struct acts *a, float *y, int ldy, int g0,
                      int g1, enum mat_write write)
{
    _Alignas(64) float acc[FLOAT_TOKENS * MAT_WIDE];
    for (int g = g0, next; g < g1; g = next) {
        next = g / 4 * 4 + 4 < g1 ? g / 4 * 4 + 4 : g1;
        int first = g * MAT_GROUP, last = next * MAT_GROUP < m->rows ? next * MAT_GROUP : m->rows;
        for (int t = 0; t < a->n; t += FLOAT_TOKENS) {
            int n = a->n - t < FLOAT_TOKENS ? a->n - t : FLOAT_TOKENS;
            memset(acc, 0, (size_t)n * MAT_WIDE * sizeof *acc);
            chain_rows(ops, m, g, next - g, a->x + (size_t)t * (size_t)a->ldx, a->ldx, n, acc);
            write_rows(y + (size_t)t * (size_t)ldy + first, ldy, acc, MAT_WIDE, n, last - first, write);
        }
    }
}

static void mul_bf16(const struct cpu_ops *ops, const struct mat *m, const struct acts *a, float *y, int ldy, int g0,
                     int g1, enum mat_write write)
{
    _Alignas(64) float acc[FLOAT_TOKENS * MAT_WIDE];
    int ldx = acts_row16(a->cols);
    for (int g = g0, next; g < g1; g = next) {
        next = g / 4 * 4 + 4 < g1 ? g / 4 * 4 + 4 : g1;
        int first = g * MAT_GROUP, last = next * MAT_GROUP < m->rows ? next * MAT_GROUP : m->rows;
        for (int t = 0, n; t < a->n; t += n) {
            n = a->n - t < FLOAT_TOKENS ? a->n - t : FLOAT_TOKENS;
            memset(acc, 0, (size_t)n * MAT_WIDE * sizeof *acc);
            pair_rows(ops, m, g, next - g, a->b + (size_t)t * (size_t)ldx, ldx, n, acc);
            write_rows(y + (size_t)t * (size_t)ldy + first, ldy, acc, MAT_WIDE, n, last - first, write);
        }
    }
}

static void mul_int8(const struct cpu_ops *ops, const struct mat *m, const struct acts *a, float *y, int ldy, int g0,
                     int g1, enum mat_write write)
{
    if (ops->mat->int8[m->form])
        ops->mat->int8[m->form](m, a, y, ldy, g0, g1, write);
    else
        ref_mat_int8(m, a, y, ldy, g0, g1, write);
}

// The rows of one tile as activations of their own.
static struct acts tile_of(const struct cpu_ops *ops, const struct acts *a, int tile)
{
    struct acts t = *a;
    size_t base = acts_base(a, tile);
    t.n = acts_tile(a, tile);
    t.max = a->max + tile * ACT_TILE;  // so that the pairs, behind as many sums, are found
    t.q = a->q + 32 * base;
    t.wide = (uint8_t *)a->wide + (size_t)ops->mat->wide_bytes * base;
    t.d = a->d + base;
    t.sx = a->sx + base;
    t.sums = a->sums + base;
    return t;
}

enum { FINE_ROWS = 64 };  // results of a tile that are held

// Both rows of each token of a tile by a slice of the weights, then their sums.
static void mul_fine(const struct cpu_ops *ops, const struct mat *m, const struct acts *a, float *y, int ldy, int g0,
                     int g1, enum mat_write write)
{
    _Alignas(64) float both[ACT_TILE * FINE_ROWS];
    const struct acts rows = acts_rows(a);
    for (int tile = 0; tile * ACT_TILE < rows.n; tile++, y += ACT_TILE / 2 * (size_t)ldy) {
        struct acts part = tile_of(ops, &rows, tile);
        for (int g = g0; g < g1; g += FINE_ROWS / MAT_GROUP) {
            int end = g + FINE_ROWS / MAT_GROUP < g1 ? g + FINE_ROWS / MAT_GROUP : g1, first = g * MAT_GROUP;
            int count = (end * MAT_GROUP < m->rows ? end * MAT_GROUP : m->rows) - first;
            struct mat slice = *m;
            slice.data = m->data + (size_t)g * (size_t)(m->cols / m->block) * (size_t)m->record;
            slice.rows = m->rows - first;
            mul_int8(ops, &slice, &part, both, FINE_ROWS, 0, end - g, MAT_STORE);
            for (int t = 0; t < part.n / 2; t++) {
                float *to = y + (size_t)t * (size_t)ldy + first;
                const float *from = both + 2 * t * FINE_ROWS;
                for (int r = 0; r < count; r++) {
                    float sum = from[r] + from[FINE_ROWS + r];
                    to[r] = write == MAT_ADD ? to[r] + sum : sum;
                }
            }
        }
    }
}

void mat_fetch(const struct mat *m, int g)
{
    size_t bytes = m->bytes / (size_t)mat_groups(m);
    const uint8_t *p = m->data + bytes * (size_t)(m->form == MAT_FORM_FLOAT ? g / 4 * 4 : g);
    for (size_t i = 0; i < bytes && i < FETCH_BYTES; i += 64)
        __builtin_prefetch(p + i, 0, 2);
}

void mat_mul(const struct cpu_ops *ops, const struct mat *m, const struct acts *a, float *y, int ldy, int g0, int g1,
             enum mat_write write)
{
    assert(m->layout == MAT_PACKED && m->cols == a->cols && (m->math & a->math) == m->math);
    if (g0 >= g1 || a->n <= 0)
        return;
    if (m->math == MAT_BF16)
        mul_bf16(ops, m, a, y, ldy, g0, g1, write);
    else if (!mat_uses_int8(m))
        mul_float(ops, m, a, y, ldy, g0, g1, write);
    else if (a->fine)
        mul_fine(ops, m, a, y, ldy, g0, g1, write);
    else
        mul_int8(ops, m, a, y, ldy, g0, g1, write);
}
