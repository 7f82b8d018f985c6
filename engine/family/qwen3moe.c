// qwen3moe.c - Qwen3 with a mixture of experts (Qwen3-30B-A3B and its kin).
//
//   ids -> embed -> [ norm -> q,k,v -> norm of each q and k head -> RoPE -> attention -> o -> + ;
//                     norm -> router: the best k experts, sum of w silu(gate) * up -> down -> + ] x L -> norm -> head
//
// Unusual: attention is Qwen3's (every head of q and k is normalised, head_dim is not hidden / heads). A sliding window,
// where use_sliding_window says so, is every layer's. Layers of mlp_only_layers or between decoder_sparse_step have one
// MLP of intermediate_size. The weights of a token's experts sum to 1 where norm_topk_prob says so, and in a GGUF.
// Experts are tensors of their own, or stacks [experts, out, in]; a GGUF has stacks only.
#include "engine/blocks/sparse.h"

static const char *const archs[] = {"qwen3moe", "Qwen3MoeForCausalLM", "qwen3_moe", NULL};

static const struct hyper hypers[] = {
    DECODER_HYPERS(32768, 4, 0),
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", HYPER_FLOAT, offsetof(struct decoder_dims, eps), false, 1e-6,
     0, 1, 1e-6},
    {"sliding_window", NULL, HYPER_INT, offsetof(struct decoder_dims, window), false, 4096, 0, 1 << 30, 0},
    {"use_sliding_window", NULL, HYPER_BOOL, offsetof(struct decoder_dims, window_used), false, 0, 0, 1, 0},
    {"attention_bias", NULL, HYPER_BOOL, offsetof(struct decoder_dims, qkv_bias), false, 0, 0, 1, 0},
    {"attention_bias", NULL, HYPER_BOOL, offsetof(struct decoder_dims, o_bias), false, 0, 0, 1, 0},
};

static const struct hyper expert_hypers[] = {SPARSE_HYPERS(8, 768, 1)};

static err_code prepare(struct model *m, err *e)
{
    return sparse_prepare(m, expert_hypers, sizeof expert_hypers / sizeof *expert_hypers, 128, e);
}

static const struct decoder_spec spec = {
    .hyper = hypers,
    .nhyper = sizeof hypers / sizeof *hypers,
    .hf = &decoder_names_hf,
    .gguf = &decoder_names_gguf,
    .hf_pairs = ROPE_HALF,
    .gguf_pairs = ROPE_HALF,
    .qk_norm = true,
    .impl_bytes = sizeof(struct sparse),
    .prepare = prepare,
    .open_mlp = sparse_open_mlp,
};

static err_code open(struct model *m, err *e)
{
    return sparse_open(m, &spec, e);
}

static const struct gen_ops gen = SPARSE_GEN;

const struct family family_qwen3moe = {
    .name = "qwen3moe", .archs = archs, .open = open, .close = sparse_close, .gen = &gen,
};
