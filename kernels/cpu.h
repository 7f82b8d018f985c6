// cpu.h - the arithmetic of one instruction set, chosen once at start.
//
//     const struct cpu_ops *ops;
//     if (cpu_select("auto", &ops, &e)) ...           // or a name cpu_isa has
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

enum {
    KV_PIECE = 64,      // keys taken together by attention; a KV page holds whole pieces
    KV_SEGMENT = 256,   // keys whose softmax is computed apart from the others: whole pieces
};

// Attention of one sequence's rows over one KV head (a group of query heads shares it).
// Row i (position pos0 + i) sees keys max(0, pos - window + 1) .. pos (window 0: all). Keys lie in pages of page_tokens
// positions; inside a page this head's keys start k_off bytes in, as kv_put_key puts them, its values v_off, in rows.
//
// The value of a row and head is a computation on its own query, keys and values alone:
//   score  the fma chain of (q * scale) and key over d ascending from +0, then the cap
//   piece  KV_PIECE keys: m = max(old m, scores); w = exp(score - m); sum = fma(sum, exp(old m - m), tree of 16 sums of w,
//          key mod 16); acc = acc * exp(old m - m), then the fma chain of w and value over keys ascending
//   segment  pieces of KV_SEGMENT positions from a multiple of it, starting with m = -inf, sum = acc = 0
//   row    its first segment, then each next one joined: M = max(m, m'), a = exp(m - M), b = exp(m' - M),
//          sum = fma(sum, a, sum' * b), acc = fma(acc, a, acc' * b); at last out = acc * (1 / sum)
// So segments may be computed by different lanes and joined later, which changes no bit.
struct attn_args {
    const float *q;        // [rows, group, head_dim], row stride ldq floats
    float *out;            // the same shape, row stride ldo
    int ldq, ldo;
    int rows, group, head_dim;
    int heads;             // KV heads, taken page by page so that memory is read in long runs: with one row at most
    size_t head_step;      // attn_heads_max(group), q and out are [heads, group, head_dim], and the heads' keys and
                           // values lie head_step bytes apart. 0, 1: one head
    int pos0, window;
    float scale;           // scores are multiplied by it
    float softcap;         // 0: none; else softcap * tanh(score / softcap)
    void *const *pages;    // page of position p is pages[p / page_tokens]
    int page_tokens;
    size_t k_off, v_off;
    enum kv_type kv;
    float *scratch;        // attn_scratch_floats() floats, private to the lane
    // One row's segments [seg0, seg1) of one head, each of which it sees, go to parts [seg1 - seg0, group, head_dim + 2] (acc, m, sum)
    // for attn_join instead of out. NULL: the whole row.
    float *parts;
    int seg0, seg1;
};

// Tokens of one sequence through GDN_COLS columns of one head's state S [k, v] of a gated delta rule. Per token:
//     d = beta (v - decay S^T k);  S = decay S + k d^T;  o = S^T q
// Chains: S^T k is fma(S[i], k[i], acc) with i ascending; S[i] = fma(k[i], d, decay S[i]), o = fma(S[i], q[i], acc).
// Every column is a computation of its own, so any split of columns and of tokens gives the same bits.
enum { GDN_COLS = 32 };
struct gdn_args {
    float *state;          // [k_dim, GDN_COLS]; columns past `cols` are zero and stay zero
    int rows, k_dim, cols;
    const float *q, *k;    // [rows, k_dim], row stride ldqk
    const float *v;        // [rows, cols], row stride ldv
    const float *decay, *beta;  // one a row, row stride ldg
    float *out;            // [rows, cols], row stride ldo
    int ldqk, ldv, ldg, ldo;
};

// Attention of some rows over one head's keys and values, both plain rows (encoders, cross-attention, denoisers).
// Row i sees keys 0 .. keys-1, or with causal 0 .. min(pos0 + i, keys - 1), at least one. Pieces of MHA_PIECE keys are
// walked from key 0 with online softmax: a score is the fma chain of (q * scale) and key over d ascending from +0, an
// output element the fma chain of weights and values over the keys of a piece, continued from piece to piece after
// one multiplication by the change of maximum. So a row's bits depend on its query, keys and values alone.
enum { MHA_PIECE = 128 };

struct mha_args {
    const float *q, *k, *v;  // row 0 of this head
    float *out;              // not q, k or v
    int ldq, ldk, ldv, ldo;  // floats between rows
    int rows, keys, head_dim;
    bool causal;
    int pos0;
    float scale;
    float *scratch;          // attn_mha_floats(rows, head_dim), private to the lane
};

// Which elements RoPE pairs: (i, i + n/2) as in Hugging Face checkpoints, or (2i, 2i+1).
enum rope_pairs { ROPE_HALF, ROPE_ADJACENT };

// erf: x/2 (1 + erf(x / sqrt 2)). tanh: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). quick: x / (1 + exp(-1.702 x)).
enum gelu { GELU_ERF, GELU_TANH, GELU_QUICK };

// How many instructions' products of int8 may be added as 16 bits before they are widened, which the range of a type's
// integers decides; WIDE: none, they are widened before they are multiplied.
enum int8_sums { INT8_SUM8, INT8_SUM4, INT8_SUM2, INT8_WIDE, INT8_SUMS };

struct cpu_ops {
    const char *isa;
    // y = x / sqrt(mean(x^2) + eps) * (w + add); w may be NULL (no weight). Sum in 8 partial sums of k mod 8, then a
    // fixed tree, in f32.
    void (*rmsnorm)(float *y, const float *x, const float *w, int n, float eps, float add);
    // The same for rows of ldy and ldx floats; y may be x. NULL: cpu_rmsnorm_rows takes them one by one.
    void (*rmsnorm_rows)(float *y, int ldy, const float *x, int ldx, const float *w, int rows, int n, float eps, float add);
    // y = (x - mean) / sqrt(var + eps) * w + b; b may be NULL.
    void (*layernorm)(float *y, const float *x, const float *w, const float *b, int n, float eps);
    void (*add)(float *y, const float *x, int n);                           // y += x
    void (*silu_mul)(float *y, const float *gate, const float *up, int n);  // silu(gate) * up
    void (*silu)(float *y, const float *x, int n);                          // x / (1 + exp(-x)); y may be x
    void (*gelu)(float *y, const float *x, int n, enum gelu kind);          // y may be x
    void (*sigmoid_mul)(float *y, const float *gate, int n);                // y = y / (1 + exp(-gate))
    // One output of a causal depthwise convolution, then SiLU: silu(sum over j of w[j] x[j]), a chain with j ascending.
    void (*conv_silu)(float *y, const float *const *x, const float *const *w, int taps, int n);
    void (*gdn)(const struct gdn_args *a);
    // Rotates the first n elements of x; cos and sin have n/2 entries.
    void (*rope)(float *x, const float *cos, const float *sin, int n, enum rope_pairs pairs);
    float (*max)(const float *x, int n);
    int (*argmax)(const float *x, int n);               // first of equal ones; NaN never wins
    double (*sum_exp)(const float *x, int n, float max);  // sum of exp(x - max) in f64: 8 sums of k mod 8, a tree
    void (*kv_store)(void *dst, const float *src, int n, enum kv_type kv);  // one key or value row
    void (*attn)(const struct attn_args *a);
    // out [head_dim] of a head from all n segments it sees, ld floats apart.
    void (*attn_join)(float *out, const float *parts, int ld, int n, int head_dim);
    void (*mha)(const struct mha_args *a);
    // Audio decoders; kernels/cpu/wave.h has the formulas.
    void (*snake)(float *y, int ldy, const float *x, int ldx, const float *alpha, const float *inv, int rows, int n);
    void (*depthwise)(float *y, int ldy, const float *x, int ldx, const float *w, int ldw, const float *b, int dilation,
                      int rows, int n);
    // Ceiling for cpu_measure: `rounds` repetitions of integer products in this pattern, returning the number of
    // operations. NULL: one kind of instruction does for all of them (mat->peak_int8).
    double (*peak_sums)(long rounds, enum int8_sums sums);
    // Matrix slots used by mat.c: see kernels/cpu/mat_ops.h.
    const struct mat_ops *mat;
    // Convolution slots used by conv.c: see kernels/cpu/conv_ops.h.
    const struct conv_ops *conv;
};

static inline void cpu_rmsnorm_rows(const struct cpu_ops *ops, float *y, int ldy, const float *x, int ldx, const float *w,
                                    int rows, int n, float eps, float add)
{
    if (ops->rmsnorm_rows) {
        ops->rmsnorm_rows(y, ldy, x, ldx, w, rows, n, eps, add);
        return;
    }
    for (int r = 0; r < rows; r++)
        ops->rmsnorm(y + (size_t)r * (size_t)ldy, x + (size_t)r * (size_t)ldx, w, n, eps, add);
}

// isa: "auto" or NULL takes the best this machine runs; a name it cannot run is ERR_UNSUPPORTED.
MUST_CHECK err_code cpu_select(const char *isa, const struct cpu_ops **ret_ops, err *e);

// The instruction sets of this build, best first, whether this machine runs them or not: x86 "avx512", "avx2"; ARM "i8mm",
// "dotprod", "neon"; "scalar" is last. NULL past it.
const char *cpu_isa(int i);

size_t kv_row_bytes(enum kv_type kv, int head_dim);  // bytes of one key or value of one head
// Moves a key between kv_store's form and its place among a page's keys (slot: the position in the page).
void kv_put_key(void *keys, int slot, const void *row, int head_dim, enum kv_type kv);
void kv_get_key(const void *keys, int slot, void *ret_row, int head_dim, enum kv_type kv);
bool kv_type_from_name(const char *name, enum kv_type *ret_type);
const char *kv_type_name(enum kv_type kv);
int attn_scratch_floats(int group, int head_dim);
int attn_heads_max(int group);
size_t attn_mha_floats(int rows, int head_dim);

// What `oxinferd devices` prints.
struct cpu_info {
    char model[64];
    char features[128];          // the ones a kernel could use: "avx2 fma f16c avx512f ... vnni"
    const char *isa;             // what "auto" takes
    char missing[128];           // why no better one: "avx512 needs avx512vnni"; "" when there is none in this build
    int cores, usable;           // online; in the cpuset
    double quota;                // cgroup CPU quota in cores, 0: none
    size_t l1d, l2, l3, memory;  // bytes; memory is the smaller of RAM and the cgroup's limit
};
void cpu_probe(struct cpu_info *ret_info);

// Measured on `threads` pinned cores in a few hundred milliseconds: streaming read GB/s, f32 FMA GFLOP/s, int8 GOP/s of the
// densest pattern and of each, bf16 GFLOP/s.
struct cpu_speed {
    double read_gb_s, fma_gflop_s, int8_gop_s, sums_gop_s[INT8_SUMS];
    double bf16_gflop_s;  // products of bf16 summed in f32
};
MUST_CHECK err_code cpu_measure(int threads, struct cpu_speed *ret_speed, err *e);
// The same with the instructions of ops.
MUST_CHECK err_code cpu_measure_ops(const struct cpu_ops *ops, int threads, struct cpu_speed *ret_speed, err *e);

// How fast a team reads at the moment: on a shared host that is another figure from one second to the next. Between steps only.
struct team;
struct cpu_meter;
MUST_CHECK err_code cpu_meter_open(const struct cpu_ops *ops, struct team *t, struct cpu_meter **ret_meter, err *e);
void cpu_meter_close(struct cpu_meter *meter);  // accepts NULL; before the team
double cpu_meter_read_gb_s(struct cpu_meter *meter);  // the middle one of three readings of 128 MB
