// attn.c - sizes and layout of attention's scratch memory.
#include "kernels/cpu/attn.h"

int attn_heads_max(int group)
{
    return group < ATTN_MANY ? ATTN_MANY / group : 1;
}

static int states(int group)
{
    int rows = attn_rows(group) * group, heads = attn_heads_max(group) * group;
    return ((rows > heads ? rows : heads) + 15) & ~15;
}

// 16 floats more, so that every array can start on a cache line.
int attn_scratch_floats(int group, int head_dim)
{
    int pad = attn_pad(head_dim), n = states(group);
    return 2 * KV_PIECE * pad + 2 * n * pad + n * KV_PIECE + 5 * n + 16;
}

struct attn_scratch attn_lay_out(float *scratch, int group, int head_dim)
{
    int pad = attn_pad(head_dim), n = states(group);
    struct attn_scratch s;
    float *at = (float *)(((uintptr_t)scratch + 63) & ~(uintptr_t)63);
    s.k = at;
    s.v = s.k + KV_PIECE * pad;
    s.q = s.v + KV_PIECE * pad;
    s.acc = s.q + n * pad;
    s.p = s.acc + n * pad;
    s.max = s.p + n * KV_PIECE;
    s.sum = s.max + n;
    s.scale = s.sum + n;
    s.all_max = s.scale + n;
    s.all_sum = s.all_max + n;
    return s;
}

static size_t mha_states(int rows)
{
    return ((size_t)rows + 15) & ~(size_t)15;
}

size_t attn_mha_floats(int rows, int head_dim)
{
    size_t pad = (size_t)attn_mha_pad(head_dim), n = mha_states(rows);
    return 2 * MHA_PIECE * pad + 2 * n * pad + MHA_BLOCK * MHA_PIECE + 2 * n + 16;
}

struct mha_scratch attn_mha_lay_out(float *scratch, int rows, int head_dim)
{
    size_t pad = (size_t)attn_mha_pad(head_dim), n = mha_states(rows);
    struct mha_scratch s;
    s.k = (float *)(((uintptr_t)scratch + 63) & ~(uintptr_t)63);
    s.v = s.k + MHA_PIECE * pad;
    s.q = s.v + MHA_PIECE * pad;
    s.acc = s.q + n * pad;
    s.p = s.acc + n * pad;
    s.max = s.p + MHA_BLOCK * MHA_PIECE;
    s.sum = s.max + n;
    return s;
}
