// cpu.h - the arithmetic of one instruction set, chosen once at start.
//
//     const struct cpu_ops *ops;
//     if (cpu_select("auto", &ops, &e)) ...           // or "avx512", "avx2", "neon", "scalar"
//     ops->rmsnorm(y, x, w, n, 1e-6f, 0);
//
// Everything here works on one row, one head or one group of rows and is called by many lanes at once on different
// parts. Results are equal on every instruction set unless a function says otherwise. kernels/cpu/ref.c (isa "scalar")
// is the definition; an op a SIMD table does not have is taken from it.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/mat.h"

enum kv_type { KV_F16, KV_F32, KV_Q8 };

enum { KV_PIECE = 32 };  // keys taken together by attention; a KV page holds whole pieces

// Attention of one sequence's rows over one KV head (a group of query heads shares it).
// Row i (position pos0 + i) sees keys max(0, pos - window + 1) .. pos (window 0: all). Keys lie in pages of page_tokens
// positions; inside a page this head's keys start k_off bytes in, [page_tokens, head_dim], values v_off likewise.
// Pieces of KV_PIECE keys are walked from position 0 (or the window's first piece) with online softmax, so a row's bits
// depend on its keys alone.
struct attn_args {
    const float *q;        // [rows, group, head_dim], row stride ldq floats
    float *out;            // the same shape, row stride ldo
    int ldq, ldo;
    int rows, group, head_dim;
    int pos0, window;
    float scale;           // scores are multiplied by it
    float softcap;         // 0: none; else softcap * tanh(score / softcap)
    void *const *pages;    // page of position p is pages[p / page_tokens]
    int page_tokens;
    size_t k_off, v_off;
    enum kv_type kv;
    float *scratch;        // attn_scratch_floats() floats, private to the lane
};

// Which elements RoPE pairs: (i, i + n/2) as in Hugging Face checkpoints, or (2i, 2i+1).
enum rope_pairs { ROPE_HALF, ROPE_ADJACENT };

struct cpu_ops {
    const char *isa;
    // y = x / sqrt(mean(x^2) + eps) * (w + add); w may be NULL (no weight). Sum in 8 partial sums of k mod 8, then a
    // fixed tree, in f32.
    void (*rmsnorm)(float *y, const float *x, const float *w, int n, float eps, float add);
    // y = (x - mean) / sqrt(var + eps) * w + b; b may be NULL.
    void (*layernorm)(float *y, const float *x, const float *w, const float *b, int n, float eps);
    void (*add)(float *y, const float *x, int n);                           // y += x
    void (*silu_mul)(float *y, const float *gate, const float *up, int n);  // silu(gate) * up
    // Rotates the first n elements of x; cos and sin have n/2 entries.
    void (*rope)(float *x, const float *cos, const float *sin, int n, enum rope_pairs pairs);
    float (*max)(const float *x, int n);
    int (*argmax)(const float *x, int n);               // first of equal ones; NaN never wins
    double (*sum_exp)(const float *x, int n, float max);  // sum of exp(x - max) in f64: 8 sums of k mod 8, a tree
    void (*kv_store)(void *dst, const float *src, int n, enum kv_type kv);  // one key or value row
    void (*attn)(const struct attn_args *a);
    // Matrix slots used by mat.c: see kernels/cpu/mat_ops.h.
    const struct mat_ops *mat;
};

// isa: "auto" or NULL takes the best this machine runs; a name it cannot run is ERR_UNSUPPORTED.
MUST_CHECK err_code cpu_select(const char *isa, const struct cpu_ops **ret_ops, err *e);

size_t kv_row_bytes(enum kv_type kv, int head_dim);  // bytes of one key or value of one head
bool kv_type_from_name(const char *name, enum kv_type *ret_type);
const char *kv_type_name(enum kv_type kv);
int attn_scratch_floats(int group, int head_dim);

// What `oxinferd devices` prints.
struct cpu_info {
    char model[64];
    char features[128];          // the ones a kernel could use: "avx2 fma f16c avx512f ... vnni"
    const char *isa;             // what "auto" takes
    int cores, usable;           // online; in the cpuset
    double quota;                // cgroup CPU quota in cores, 0: none
    size_t l1d, l2, l3, memory;  // bytes; memory is the smaller of RAM and the cgroup's limit
};
void cpu_probe(struct cpu_info *ret_info);

// Measured on `threads` pinned cores in a few hundred milliseconds: streaming read GB/s, f32 FMA GFLOP/s, int8 GOP/s.
struct cpu_speed {
    double read_gb_s, fma_gflop_s, int8_gop_s;
};
MUST_CHECK err_code cpu_measure(int threads, struct cpu_speed *ret_speed, err *e);
