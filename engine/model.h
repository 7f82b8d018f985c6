// model.h - a loaded model: weights, family, tokenizer, template. Made by a loader thread, immutable afterwards.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/task.h"
#include "kernels/cpu.h"

struct weights;
struct family;
struct tokenizer;
struct chat;
struct packed;
struct decider;
struct lora;

struct model_options {
    enum mat_math math;     // activations
    enum kv_type kv;
    const char *chat_template;  // see engine.h model_config
    int context;            // 0: the model's own
    int load_threads;       // for repacking; 0: all usable cores
    const char *vocoder, *decision;  // see engine.h model_config; borrowed while the model opens
    size_t max_image_pixels;    // 0: 1024 x 1024
    const char *adapter;    // folder of a PEFT LoRA whose pairs the linears get, for the steps that ask for them; NULL: none
};

// Further weights of a model made of several: a pipeline's networks, a speech model's vocoder, an adapter.
struct model_part {
    const char *name;         // "unet", "snac", "adapter"
    struct weights *weights;
    struct packed *packed;    // what its linears point into; set by the family
    void *impl;               // the family's own, freed by its close
};

// Layers that attend alike, for counting what attention computes.
struct model_attention {
    int layers, width;  // width: query heads * their size
    int window;         // 0: all positions before
};

enum { MODEL_PARTS = 8 };

struct model {
    char *path;
    struct model_options options;
    struct weights *weights;
    const struct family *family;
    const struct cpu_ops *ops;
    struct packed *packed;        // what the linears point into
    struct tokenizer *tokenizer;  // NULL: the model has none (logits from ids still work)
    err tokenizer_error;          // why tokenizer is NULL
    struct chat *chat;            // NULL: no chat template
    err chat_error;               // why chat is NULL
    struct model_part parts[MODEL_PARTS];  // beside weights and packed
    int nparts;
    struct lora *adapter;         // of the part "adapter"; NULL: none
    int vocab, context;           // logits per row; positions
    int hidden;                   // numbers of a hidden state (families with gen)
    struct decider *decider;      // how it answers decisions; NULL: not
    err decider_error;            // why decider is NULL
    size_t resident_bytes;        // packed copies this model allocated
    size_t token_bytes;           // weights read to decode one token
    size_t token_macs;            // multiplications of one token of a prompt, without the head
    struct model_attention attention[2];  // of the layers that attend; zeroed: there are none of a second kind
    size_t idle_macs;             // of the experts that a token does not meet
    void *impl;                   // the family's own
};

// Opens everything. Errors name file, tensor, found and expected.
MUST_CHECK err_code model_open(const char *path, const struct model_options *o, const struct cpu_ops *ops,
                               struct model **ret_model, err *e);
// Opens it only to see which tensors its family uses, and as what (m->packed): matrices are not packed and read as zero, and
// it has neither tokenizer nor tasks.
MUST_CHECK err_code model_open_survey(const char *path, const struct cpu_ops *ops, struct model **ret_model, err *e);
void model_close(struct model *m);
// Whether it can be served. A model may lack a tokenizer, but not have a damaged one: it would answer in another way than
// its files mean, and the first to know would be a client.
MUST_CHECK err_code model_ready(const struct model *m, err *e);
// For errors that are sent to clients: the model's files are named as parts of `name`, not by where they lie.
void model_hide_paths(const struct model *m, const char *name, err *e);
// Opens the weights in path as a further part, which the model owns: its number in *ret_part. Errors as weights_open.
MUST_CHECK err_code model_add_part(struct model *m, const char *name, const char *path, struct model_part **ret_part,
                                   err *e);
unsigned model_can(const struct model *m);  // task_bits
// How it does this kind of task in steps; NULL: it cannot, or the kind is not done so (TASK_GENERATE ...).
const struct work_ops *model_work(const struct model *m, enum task_kind kind);

// ---- engine.c's second door, for tests: models that have no file, and a look at the accounts.
struct engine;
// Serves a model the caller opened; from here on it is the engine's, which closes it with model_close.
MUST_CHECK err_code engine_add_open_model(struct engine *en, const char *name, struct model *m, err *e);
// Drops cached pages nobody uses if flush, and checks all page accounts. False: they are wrong.
bool engine_check(struct engine *en, bool flush);
