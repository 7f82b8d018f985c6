// model.h - a loaded model: weights, family, tokenizer, template. Made by a loader thread, immutable afterwards.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/cpu.h"

struct weights;
struct family;
struct tokenizer;
struct chat;
struct packed;

struct model_options {
    enum mat_math math;     // activations
    enum kv_type kv;
    const char *chat_template;  // see engine.h model_config
    int context;            // 0: the model's own
    int load_threads;       // for repacking; 0: all usable cores
};

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
    int vocab, context;           // logits per row; positions
    size_t resident_bytes;        // packed copies this model allocated
    size_t token_bytes;           // weights read to decode one token
    size_t token_macs;            // multiplications of one token of a prompt, without the head
    void *impl;                   // the family's own
};

// Opens everything. Errors name file, tensor, found and expected.
MUST_CHECK err_code model_open(const char *path, const struct model_options *o, const struct cpu_ops *ops,
                               struct model **ret_model, err *e);
void model_close(struct model *m);

// ---- engine.c's second door, for tests: models that have no file, and a look at the accounts.
struct engine;
// Serves a model the caller opened; from here on it is the engine's, which closes it with model_close.
MUST_CHECK err_code engine_add_open_model(struct engine *en, const char *name, struct model *m, err *e);
// Drops cached pages nobody uses if flush, and checks all page accounts. False: they are wrong.
bool engine_check(struct engine *en, bool flush);
