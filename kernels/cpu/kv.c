// kv.c - how the keys and values of a head are stored. A row is one key or value as kv_store writes it:
//
//   f16, f32  head_dim numbers
//   q8        ceil(head_dim/32) f16 scales, padded to 4 bytes, then head_dim int8: value = scale[i/32] * q[i]
//
// Values lie as rows one after the other. Keys are read by one dimension of many keys at a time, so those of a piece are
// interleaved: [head_dim][KV_PIECE] numbers; q8: [ceil(head_dim/32)][KV_PIECE] scales, then [head_dim][KV_PIECE] int8.
// A piece takes the bytes of its rows.
#include <string.h>

#include "kernels/cpu.h"

size_t kv_row_bytes(enum kv_type kv, int head_dim)
{
    size_t n = (size_t)head_dim;
    switch (kv) {
    case KV_F16:
        return 2 * n;
    case KV_F32:
        return 4 * n;
    case KV_Q8:
        return ((((n + 31) / 32 * 2 + 3) & ~(size_t)3) + n + 3) & ~(size_t)3;
    }
    return 0;
}

static size_t blocks(int head_dim)
{
    return ((size_t)head_dim + 31) / 32;
}

static size_t codes_at(int head_dim)  // of a q8 row
{
    return (2 * blocks(head_dim) + 3) & ~(size_t)3;
}

// The piece that position `slot` of a page's keys is in; *slot becomes the position in the piece.
static size_t piece_at(size_t *slot, int head_dim, enum kv_type kv)
{
    size_t piece = *slot / KV_PIECE;
    *slot %= KV_PIECE;
    return piece * KV_PIECE * kv_row_bytes(kv, head_dim);
}

void kv_put_key(void *keys, int slot, const void *row, int head_dim, enum kv_type kv)
{
    size_t n = (size_t)head_dim, at = (size_t)slot;
    uint8_t *p = (uint8_t *)keys + piece_at(&at, head_dim, kv);
    const uint8_t *r = row;
    if (kv == KV_F32) {
        for (size_t d = 0; d < n; d++)
            memcpy(p + 4 * (d * KV_PIECE + at), r + 4 * d, 4);
        return;
    }
    size_t halves = kv == KV_F16 ? n : blocks(head_dim);
    for (size_t d = 0; d < halves; d++)
        memcpy(p + 2 * (d * KV_PIECE + at), r + 2 * d, 2);
    for (size_t d = 0; kv == KV_Q8 && d < n; d++)
        p[2 * halves * KV_PIECE + d * KV_PIECE + at] = r[codes_at(head_dim) + d];
}

void kv_get_key(const void *keys, int slot, void *ret_row, int head_dim, enum kv_type kv)
{
    size_t n = (size_t)head_dim, at = (size_t)slot;
    const uint8_t *p = (const uint8_t *)keys + piece_at(&at, head_dim, kv);
    uint8_t *r = ret_row;
    size_t size = kv == KV_F32 ? 4 : 2, numbers = kv == KV_Q8 ? blocks(head_dim) : n;
    for (size_t d = 0; d < numbers; d++)
        memcpy(r + size * d, p + size * (d * KV_PIECE + at), size);
    for (size_t d = 0; kv == KV_Q8 && d < n; d++)
        r[codes_at(head_dim) + d] = p[2 * numbers * KV_PIECE + d * KV_PIECE + at];
}

static const char *const names[] = {[KV_F16] = "f16", [KV_F32] = "f32", [KV_Q8] = "q8"};

bool kv_type_from_name(const char *name, enum kv_type *ret_type)
{
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, names[i]) == 0) {
            *ret_type = (enum kv_type)i;
            return true;
        }
    }
    return false;
}

const char *kv_type_name(enum kv_type kv)
{
    return names[kv];
}
