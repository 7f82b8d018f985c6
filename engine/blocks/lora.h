// lora.h - a LoRA adapter as PEFT writes it (adapter_config.json, adapter_model.safetensors): low-rank pairs that a linear
// adds to its product when a step asks for it (Hu et al. 2021, arXiv 2106.09685):
//
//     y = W x + bias + B (s (A x)),   A [rank, in], B [out, rank],   s = alpha / rank, or alpha / sqrt(rank) with rslora
//
// The pair stays beside the weight and is never merged into it. It is stored as in the adapter and computed in f32 from the
// f32 rows, whatever the weight's own type.
//
//     struct lora *a;
//     lora_open(weights, &a, &e);        // refuses by name what is not built: DoRA, biases, whole modules, embeddings
//     loader_set_adapter(ld, a);         // before linears are opened: each takes its pair
//     ... loader_run ...
//     lora_check(a, path, &e);           // every tensor of the adapter was taken, or ERR_CORRUPT naming one that was not
//     lora_free(a);                      // the pairs live in the loader's packed memory
//
// Modules are compared without the leading "model." and "language_model.", so that an adapter trained on the text part
// alone fits a checkpoint that sees, and the other way round; a GGUF's names are translated. Where a GGUF has rows or columns
// in another order than the checkpoint it was made from, the pair's are reordered alike (lora_order). One thread uses it
// while a model opens.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/weights/weights.h"
#include "kernels/mat.h"

struct lora;

enum { LORA_MAX_RANK = 256 };

struct lora_pair {
    struct mat a, b;  // [rank, in], [out, rank]
    int rank;
    float scale;
};

// Row r of the model's weight is row rows[r] of the one the adapter was trained on; likewise columns. NULL: as they are.
struct lora_order {
    const int32_t *rows, *cols;
};

// The tensors of one module, not yet packed.
struct lora_source {
    const char *a, *b;  // names
    const char *base;   // peft's copy of the base weight beside a pair of the head; NULL: none
    int rank;           // as adapter_config.json has it
    float scale;
};

MUST_CHECK err_code lora_open(const struct weights *w, struct lora **ret_lora, err *e);
void lora_free(struct lora *l);
const struct weights *lora_weights(const struct lora *l);

// module: "model.layers.0.mlp.up_proj". False: the adapter does not touch it. What is found counts as taken.
bool lora_take(struct lora *l, const char *module, struct lora_source *ret_source);
MUST_CHECK err_code lora_check(const struct lora *l, const char *model_path, err *e);
