// sparse.h - the decoder of decoder.h where the MLPs of some or all layers are mixtures of experts (moe.h). What a family
// of that kind shares with the others: the keys, which layers are dense, opening, the forward pass.
//
//     static err_code prepare(struct model *m, err *e) { return sparse_prepare(m, hypers, count, &defaults, e); }
//     static const struct decoder_spec spec = {..., .impl_bytes = sizeof(struct sparse), .prepare = prepare,
//                                              .open_mlp = sparse_open_mlp};
//     static err_code open(struct model *m, err *e) { return sparse_open(m, &spec, e); }
//     static const struct gen_ops gen = SPARSE_GEN;
//
// Which layers are mixtures: in config.json those outside mlp_only_layers whose number, counted from 1, is a multiple of
// decoder_sparse_step; in a GGUF those without an ffn_gate of their own.
#pragma once

#include "engine/blocks/decoder.h"
#include "engine/blocks/moe.h"

struct sparse {
    struct decoder base;
    struct moe_dims dims;
    struct moe *moe;      // [layers]; those of dense layers are not used
    int local_experts, step;
    float weights_scale;
    int gating;           // GGUF: 1 is softmax
};

#define SPARSE_FIELD(name) offsetof(struct sparse, name)
// Defaults of a config.json without the key; a GGUF's expert size is feed_forward_length / top_k where it has none.
#define SPARSE_HYPERS(chosen, size, gguf_normalise)                                                                   \
    {"num_experts", "expert_count", HYPER_INT, SPARSE_FIELD(dims.experts), false, 0, 0, MOE_EXPERTS, 0},              \
    {"num_local_experts", NULL, HYPER_INT, SPARSE_FIELD(local_experts), false, 0, 0, MOE_EXPERTS, 0},                 \
    {"num_experts_per_tok", "expert_used_count", HYPER_INT, SPARSE_FIELD(dims.top_k), false, chosen, 0,               \
     MOE_EXPERTS, 0},                                                                                                 \
    {"moe_intermediate_size", "expert_feed_forward_length", HYPER_INT, SPARSE_FIELD(dims.ffn), false, size, 0,        \
     1 << 22, 0},                                                                                                     \
    {"norm_topk_prob", "expert_weights_norm", HYPER_BOOL, SPARSE_FIELD(dims.normalise), false, 0, 0, 1,               \
     gguf_normalise},                                                                                                 \
    {"decoder_sparse_step", NULL, HYPER_INT, SPARSE_FIELD(step), false, 1, 1, 1 << 20, 1},                            \
    {NULL, "expert_weights_scale", HYPER_FLOAT, SPARSE_FIELD(weights_scale), false, 0, -1e9, 1e9, 0},                 \
    {NULL, "expert_gating_func", HYPER_INT, SPARSE_FIELD(gating), false, 1, 0, 1 << 20, 1}

// experts: how many there are where config.json does not say. Errors as model_open.
MUST_CHECK err_code sparse_prepare(struct model *m, const struct hyper *table, size_t n, int experts, err *e);
MUST_CHECK err_code sparse_open_mlp(const struct decoder_opening *o, int layer);
MUST_CHECK err_code sparse_open(struct model *m, const struct decoder_spec *spec, err *e);
void sparse_close(struct model *m);
size_t sparse_scratch_bytes(const struct model *m, int max_rows, int max_out, int lanes);
void sparse_forward(const struct model *m, const struct batch *b, struct lane *lane);

#define SPARSE_GEN {decoder_kv_layout, sparse_scratch_bytes, sparse_forward, decoder_head_row}
