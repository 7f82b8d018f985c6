// kv.c - how one key or value of a head is stored.
//
//   f16, f32  head_dim numbers
//   q8        ceil(head_dim/32) f16 scales, padded to 4 bytes, then head_dim int8: value = scale[i/32] * q[i]
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
