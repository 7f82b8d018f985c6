// qwen2moe.c - Qwen2 and Qwen1.5 with a mixture of experts and a shared one (Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B).
//
//   ids -> embed -> [ norm -> q,k,v (biases) -> RoPE -> attention -> o -> + ;
//                     norm -> router: the best k experts, sum of w silu(gate) * up -> down -> + ;
//                             sigmoid(switch) * shared expert -> + ] x L -> norm -> head
//
// Unusual: every token meets the shared expert, and a linear of one row says by how much. The weights of a token's experts
// do not sum to 1 unless norm_topk_prob says so. Dense layers as in Qwen3's (qwen3moe.c); sliding windows where
// layer_types has them.

#include "engine/blocks/sparse.h"

static const char *const archs[] = {"qwen2moe", "Qwen2MoeForCausalLM", "qwen2_moe", NULL};

static const struct hyper hypers[] = {
    DECODER_HYPERS(32768, 16, 0),
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", HYPER_FLOAT, offsetof(struct decoder_dims, eps), false, 1e-6,
     0, 1, 1e-6},
    {"sliding_window", NULL, HYPER_INT, offsetof(struct decoder_dims, window), false, 4096, 0, 1 << 30, 0},
    {"use_sliding_window", NULL, HYPER_BOOL, offsetof(struct decoder_dims, window_used), false, 0, 0, 1, 0},
    {"qkv_bias", NULL, HYPER_BOOL, offsetof(struct decoder_dims, qkv_bias), false, 1, 0, 1, 0},
};

static const struct hyper expert_hypers[] = {
    SPARSE_HYPERS(4, 1408, 0),
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length", HYPER_INT, SPARSE_FIELD(dims.shared_ffn),
     false, 5632, 0, 1 << 22, 0},
};

static err_code prepare(struct model *m, err *e)
{
    struct sparse *p = m->impl;
    const struct weights *w = m->weights;
    int ffn = p->base.dims.ffn;
    if (p->base.dims.window_used && meta_array_length(w, "layer_types") < 0)
        return err_set_param(e, ERR_UNSUPPORTED, "use_sliding_window",
                             "%s: 'use_sliding_window' without 'layer_types' is not built", weights_path(w));
    p->dims.shared_switch = true;
    err_code code = sparse_prepare(m, expert_hypers, sizeof expert_hypers / sizeof *expert_hypers, 60, e);
    if (!code && !p->dims.shared_ffn)
        p->dims.shared_ffn = ffn;  // of a GGUF without the key
    return code;
}

static const struct decoder_spec spec = {
    .hyper = hypers,
    .nhyper = sizeof hypers / sizeof *hypers,
    .hf = &decoder_names_hf,
    .gguf = &decoder_names_gguf,
    .hf_pairs = ROPE_HALF,
    .gguf_pairs = ROPE_HALF,
    .impl_bytes = sizeof(struct sparse),
    .prepare = prepare,
    .open_mlp = sparse_open_mlp,
};

static err_code open(struct model *m, err *e)
{
    return sparse_open(m, &spec, e);
}

static const struct gen_ops gen = SPARSE_GEN;

const struct family family_qwen2moe = {
    .name = "qwen2moe", .archs = archs, .open = open, .close = sparse_close, .gen = &gen,
};
