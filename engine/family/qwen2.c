// qwen2.c - Qwen2 and Qwen2.5.
//
//   ids -> embed -> [ norm -> q,k,v (biases) -> RoPE -> attention -> o -> + ;
//                     norm -> silu(gate) * up -> down -> + ] x L -> norm -> head
//
// Unusual: q, k and v have biases, o has none. A sliding window is used only when use_sliding_window says so, and then
// from layer max_window_layers on (or where layer_types says "sliding_attention"). GGUF keeps the halves (i, i + d/2).
#include "engine/blocks/decoder.h"

static const char *const archs[] = {"qwen2", "Qwen2ForCausalLM", NULL};

static const struct hyper hypers[] = {
    DECODER_HYPERS(32768, 32, 0),
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", HYPER_FLOAT, offsetof(struct decoder_dims, eps), false, 1e-6,
     0, 1, 1e-6},
    {"sliding_window", NULL, HYPER_INT, offsetof(struct decoder_dims, window), false, 4096, 0, 1 << 30, 0},
    {"max_window_layers", NULL, HYPER_INT, offsetof(struct decoder_dims, window_from), false, 28, 0, 1 << 20, 0},
    {"use_sliding_window", NULL, HYPER_BOOL, offsetof(struct decoder_dims, window_used), false, 0, 0, 1, 0},
    {NULL, NULL, HYPER_BOOL, offsetof(struct decoder_dims, qkv_bias), false, 1, 0, 1, 0},
};

static const struct decoder_spec spec = {
    .hyper = hypers,
    .nhyper = sizeof hypers / sizeof *hypers,
    .hf = &decoder_names_hf,
    .gguf = &decoder_names_gguf,
    .hf_pairs = ROPE_HALF,
    .gguf_pairs = ROPE_HALF,
};

static err_code open(struct model *m, err *e)
{
    return decoder_open(m, &spec, e);
}

static const struct gen_ops gen = {decoder_kv_layout, decoder_scratch_bytes, decoder_forward, decoder_head_row};

const struct family family_qwen2 = {.name = "qwen2", .archs = archs, .open = open, .close = decoder_close, .gen = &gen};
