// llama.c - Llama 2 and 3, SmolLM2, TinyLlama and the many models of the same shape; in GGUF also Mistral.
//
//   ids -> embed -> [ norm -> q,k,v -> RoPE -> attention -> o -> + ;
//                     norm -> silu(gate) * up -> down -> + ] x L -> norm -> head
//
// Unusual: llama.cpp stores q and k of this architecture with rows reordered so that RoPE pairs neighbours (2i, 2i+1);
// Hugging Face pairs halves (i, i + d/2). Biases are there when attention_bias and mlp_bias say so. A sliding_window in
// config.json means nothing to this architecture; a GGUF made from a Mistral may have one.
#include "engine/blocks/decoder.h"

static const char *const archs[] = {"llama", "LlamaForCausalLM", NULL};

static const struct hyper hypers[] = {
    DECODER_HYPERS(2048, 0, 0),
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", HYPER_FLOAT, offsetof(struct decoder_dims, eps), false, 1e-6,
     0, 1, 1e-6},
    {"attention_bias", NULL, HYPER_BOOL, offsetof(struct decoder_dims, qkv_bias), false, 0, 0, 1, 0},
    {"attention_bias", NULL, HYPER_BOOL, offsetof(struct decoder_dims, o_bias), false, 0, 0, 1, 0},
    {"mlp_bias", NULL, HYPER_BOOL, offsetof(struct decoder_dims, mlp_bias), false, 0, 0, 1, 0},
    {NULL, "attention.sliding_window", HYPER_INT, offsetof(struct decoder_dims, window), false, 0, 0, 1 << 30, 0},
    {NULL, NULL, HYPER_BOOL, offsetof(struct decoder_dims, window_used), false, 1, 0, 1, 1},
};

static const struct decoder_spec spec = {
    .hyper = hypers,
    .nhyper = sizeof hypers / sizeof *hypers,
    .hf = &decoder_names_hf,
    .gguf = &decoder_names_gguf,
    .hf_pairs = ROPE_HALF,
    .gguf_pairs = ROPE_ADJACENT,
};

static err_code open(struct model *m, err *e)
{
    return decoder_open(m, &spec, e);
}

static const struct gen_ops gen = {decoder_kv_layout, decoder_scratch_bytes, decoder_forward, decoder_head_row};

const struct family family_llama = {.name = "llama", .archs = archs, .open = open, .close = decoder_close, .gen = &gen};
