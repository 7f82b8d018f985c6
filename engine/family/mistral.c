// mistral.c - Mistral 7B and its successors of the same shape.
//
//   ids -> embed -> [ norm -> q,k,v -> RoPE -> attention -> o -> + ;
//                     norm -> silu(gate) * up -> down -> + ] x L -> norm -> head
//
// Unusual: a sliding window on every layer, of 4096 when config.json does not speak of it, none when it says null; with
// layer_types, on the layers these name. No biases. GGUF files call this architecture "llama".
#include "engine/blocks/decoder.h"

static const char *const archs[] = {"mistral", "MistralForCausalLM", NULL};

static const struct hyper hypers[] = {
    DECODER_HYPERS(131072, 8, 0),
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon", HYPER_FLOAT, offsetof(struct decoder_dims, eps), false, 1e-6,
     0, 1, 1e-6},
    {"sliding_window", "attention.sliding_window", HYPER_INT, offsetof(struct decoder_dims, window), false, 4096, 0,
     1 << 30, 0},
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

const struct family family_mistral = {
    .name = "mistral", .archs = archs, .open = open, .close = decoder_close, .gen = &gen,
};
