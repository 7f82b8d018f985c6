// decoder.h - the pre-norm decoder that Llama, Mistral, Qwen2 and Qwen3 share: a stack of
//
//     x += attention(norm x);  x += down(silu(gate n) * up n), n = norm x
//
// over one residual stream x. A family hands decoder_open its names and what is special, and uses decoder_forward as it
// is, or writes its own loop from the stages below (a mixture of experts replaces decoder_mlp alone; a layer whose token
// mixer is no attention replaces decoder_attention). A family with more to remember has a struct that begins with struct
// decoder.
//
// Eight barriers a layer: after the inputs of q/k/v, q/k/v, store, attention, o, the inputs of gate and up, gate and up,
// down. A step of few rows computes norms and the activations' quantisation on every lane instead of splitting them and
// waiting: six. What attention yields, and silu(gate) * up, is quantised by the lane that computes it, a few columns at a time
// while they are in its cache, where no float weight and no low-rank pair reads them.
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "engine/blocks/linear.h"
#include "engine/blocks/rope.h"
#include "engine/family/family.h"
#include "engine/model.h"

struct decoder_dims {
    int hidden, layers, heads, kv_heads, head_dim, ffn, vocab, context;
    int rotary;       // elements of a head that turn
    float eps;
    bool tied;        // the head is the embedding
    int window;       // 0: none
    int window_from;  // first layer that has it
    bool window_used; // the model has a switch for it
    bool qkv_bias, o_bias, mlp_bias; // config.json says so; a GGUF has the biases whose tensors it has
};

// Tensor names without ".weight" and ".bias"; `layer` is put in front of the ones below it, with the layer's number.
struct decoder_names {
    const char *embed, *norm, *head, *layer;
    const char *attn_norm, *q, *k, *v, *o, *q_norm, *k_norm, *ffn_norm, *gate, *up, *down;
};
extern const struct decoder_names decoder_names_hf, decoder_names_gguf;

struct decoder_opening;

struct decoder_spec {
    const struct hyper *hyper;  // rows into struct decoder_dims
    size_t nhyper;
    const struct decoder_names *hf, *gguf;
    const struct decoder_names *hf_inner;  // where the decoder is a part of a larger model; NULL: nowhere
    enum rope_pairs hf_pairs, gguf_pairs;
    bool qk_norm;               // q and k heads are normalised
    bool gated;                 // q's matrix gives each head its query and then a gate for what attention yields
    float hf_norm_add;          // added to the norm weights of a config.json model (1: stored around zero)
    bool tied;                  // as if tie_word_embeddings were true
    size_t impl_bytes;          // of the struct that begins with struct decoder; 0: no more than that
    // After dims are complete: reads the family's own keys; may set dims.rotary, layers[i].own and own_mlp, dims.ffn to 0 where no
    // layer has an MLP of the decoder's, and the fields of struct
    // decoder marked so. NULL: nothing.
    err_code (*prepare)(struct model *m, err *e);
    // Opens the token mixer of a layer that is `own`.
    err_code (*open_mixer)(const struct decoder_opening *o, int layer);
    // Opens what follows the ffn_norm of a layer that is `own_mlp`. NULL: the family knows no mixture of experts.
    err_code (*open_mlp)(const struct decoder_opening *o, int layer);
};

struct decoder_layer {
    struct linear q, k, v, o, gate, up, down;
    const float *attn_norm, *ffn_norm, *q_norm, *k_norm;
    int window;
    int kv_layer;  // of the layout's group
    bool own;      // its token mixer is the family's: no q, k, v, o
    bool own_mlp;  // so is its MLP: no gate, up, down
};

struct decoder {
    struct decoder_dims dims;
    struct rope rope;
    enum mat_math math;         // of the activations: what some weight needs
    struct mat embed;           // untied embedding
    struct linear head;
    const float *norm;
    struct decoder_layer *layers;
    struct kv_layout layout;
    bool gated;
    int mixer_floats;           // of step.mixer a row; prepare may set it
    int mixer_cols;             // widest rows a mixer multiplies, if wider than the attention's; prepare may set it
};

// The hyper-parameters that all of these models have under the same keys. What a config.json leaves out differs between
// the families: its length, its KV heads and the size of a head (0: as many as heads, hidden / heads).
#define DECODER_HYPERS(length, kv, head)                                                                              \
    {"hidden_size", "embedding_length", HYPER_INT, offsetof(struct decoder_dims, hidden), true, 0, 1, 1 << 20, 0},    \
    {"num_hidden_layers", "block_count", HYPER_INT, offsetof(struct decoder_dims, layers), true, 0, 1, 4096, 0},      \
    {"num_attention_heads", "attention.head_count", HYPER_INT, offsetof(struct decoder_dims, heads), true, 0,         \
     1, 4096, 0},                                                                                                     \
    {"num_key_value_heads", "attention.head_count_kv", HYPER_INT, offsetof(struct decoder_dims, kv_heads),            \
     false, kv, 0, 4096, 0},                                                                                          \
    {"head_dim", "attention.key_length", HYPER_INT, offsetof(struct decoder_dims, head_dim), false, head, 0,          \
     1024, 0},                                                                                                        \
    {NULL, "rope.dimension_count", HYPER_INT, offsetof(struct decoder_dims, rotary), false, 0, 0, 1024, 0},           \
    {"intermediate_size", "feed_forward_length", HYPER_INT, offsetof(struct decoder_dims, ffn), true, 0, 1,           \
     1 << 22, 0},                                                                                                     \
    {"vocab_size", "vocab_size", HYPER_INT, offsetof(struct decoder_dims, vocab), false, 0, 0, 1 << 24, 0},           \
    {"max_position_embeddings", "context_length", HYPER_INT, offsetof(struct decoder_dims, context), false,           \
     length, 1, 1 << 30, 2048},                                                                                       \
    {"tie_word_embeddings", NULL, HYPER_BOOL, offsetof(struct decoder_dims, tied), false, 0, 0, 1, 0}

// Makes m->impl (a struct decoder), m->packed, m->vocab and m->context. Errors as model_open.
MUST_CHECK err_code decoder_open(struct model *m, const struct decoder_spec *spec, err *e);

// For open_mixer: tensors of the layer by their name after the layer's prefix, without ".weight" and ".bias".
struct decoder_opening {
    struct model *m;
    struct decoder *d;
    const struct decoder_spec *spec;
    const struct decoder_names *names;
    struct loader *ld;
    int layer;  // -1: outside the layers
    err *e;
};
// kind: "weight", "bias"; NULL: part is the whole name.
void decoder_name(const struct decoder_opening *o, char *out, size_t size, const char *part, const char *kind);
MUST_CHECK err_code decoder_matrix(const struct decoder_opening *o, struct linear *l, const char *part, int out, int in,
                                   bool bias_there);
MUST_CHECK err_code decoder_norm(const struct decoder_opening *o, const float **ret_norm, const char *part, int n);
void decoder_close(struct model *m);

void decoder_kv_layout(const struct model *m, struct kv_layout *ret_layout);
size_t decoder_scratch_bytes(const struct model *m, int max_rows, int max_out, int lanes);
void decoder_forward(const struct model *m, const struct batch *b, struct lane *lane);
void decoder_head_row(const struct model *m, int32_t id, bool adapter, float *dst);

// ---- stages; every lane calls them in the same order with its own struct step
struct step {
    const struct model *m;
    const struct decoder *d;
    const struct batch *batch;
    struct lane *lane;
    bool few;                // inputs are computed by every lane for itself
    float *x;                // [rows, hidden]
    float *qkv, *att;        // [rows, (heads + 2 kv_heads) * head_dim], [rows, heads * head_dim]
    float *gate, *up;        // [rows, ffn]
    float *mixer;            // [rows, d->mixer_floats]
    float *cos, *sin;        // [rows, rotary / 2]
    float *h;                // [rows, hidden], the lane's own when few
    void *acts;              // the lane's own when few
    float *attn_scratch;     // the lane's own
    float *attn_parts;       // all lanes'
};

// Each ends with a barrier.
void decoder_begin(struct step *s, const struct model *m, const struct batch *b, struct lane *lane);
void decoder_attention(struct step *s, int layer);
void decoder_mlp(struct step *s, int layer);
void decoder_logits(struct step *s);

// Makes `rows` rows of x ready to be multiplied, normalised first when norm is given; from[i] names the row of x to take
// for row i (NULL: row i). Ends with a barrier, unless rows are few: then every lane does all of it for itself.
void decoder_input(struct step *s, struct acts *a, const float *x, int ldx, int cols, int rows, const float *norm,
                   const int32_t *from);
void decoder_multiply(struct step *s, const struct linear *l, float *y, int ldy, const struct acts *a, enum mat_write write);
