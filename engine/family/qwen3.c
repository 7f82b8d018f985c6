// qwen3.c - Qwen3, dense.
//
//   ids -> embed -> [ norm -> q,k,v -> norm of each q and k head -> RoPE -> attention -> o -> + ;
//                     norm -> silu(gate) * up -> down -> + ] x L -> norm -> head
//
// Unusual: every head of q and k is normalised before RoPE, with one weight for all heads of a layer; head_dim is not
// hidden / heads. A sliding window is used only when use_sliding_window says so. GGUF keeps the halves (i, i + d/2).
#include "engine/blocks/decoder.h"

static const char *const archs[] = {"qwen3", "Qwen3ForCausalLM", NULL};

static const struct hyper hypers[] = {
    DECODER_HYPERS(32768, 32, 128),
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", HYPER_FLOAT, offsetof(struct decoder_dims, eps), false, 1e-6,
     0, 1, 1e-6},
    {"sliding_window", NULL, HYPER_INT, offsetof(struct decoder_dims, window), false, 4096, 0, 1 << 30, 0},
    {"max_window_layers", NULL, HYPER_INT, offsetof(struct decoder_dims, window_from), false, 28, 0, 1 << 20, 0},
    {"use_sliding_window", NULL, HYPER_BOOL, offsetof(struct decoder_dims, window_used), false, 0, 0, 1, 0},
    {"attention_bias", NULL, HYPER_BOOL, offsetof(struct decoder_dims, qkv_bias), false, 0, 0, 1, 0},
    {"attention_bias", NULL, HYPER_BOOL, offsetof(struct decoder_dims, o_bias), false, 0, 0, 1, 0},
};

static const struct decoder_spec spec = {
    .hyper = hypers,
    .nhyper = sizeof hypers / sizeof *hypers,
    .hf = &decoder_names_hf,
    .gguf = &decoder_names_gguf,
    .hf_pairs = ROPE_HALF,
    .gguf_pairs = ROPE_HALF,
    .qk_norm = true,
};

static err_code open(struct model *m, err *e)
{
    return decoder_open(m, &spec, e);
}

static const struct gen_ops gen = {decoder_kv_layout, decoder_scratch_bytes, decoder_forward, decoder_head_row};

const struct family family_qwen3 = {.name = "qwen3", .archs = archs, .open = open, .close = decoder_close, .gen = &gen};
