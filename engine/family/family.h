// family.h - what a model family is: one file here that exports one record, and one line in families.def.
//
// A family's file reads in this order: head comment (pipeline drawing, what is unusual, dims letters), architecture
// names, hyper-parameters, tensors, forward pass, record. It never sees a container, a quantisation, a thread count or
// another sequence: it reads hyper-parameters by table, opens its weights through blocks/linear.h, and its forward pass
// runs on every lane of the team over whatever rows the scheduler put into the step.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/engine.h"
#include "engine/sched/batch.h"
#include "engine/sched/kv.h"
#include "engine/sched/work.h"
#include "engine/weights/weights.h"
#include "kernels/cpu.h"
#include "kernels/team.h"

struct model;
struct model_options;

// One hyper-parameter: where it goes in the family's dims struct and what it is called.
enum hyper_kind { HYPER_INT, HYPER_FLOAT, HYPER_BOOL };
// A null in config.json is 0 of an integer or a switch, and an absent number.
struct hyper {
    const char *hf;       // path in config.json; NULL: not there
    const char *gguf;     // key without the architecture: "block_count"; NULL: not there
    enum hyper_kind kind; // int, float, bool field
    size_t offset;        // offsetof in the dims struct
    bool required;
    double fallback;      // when config.json does not have it and it is not required
    double min, max;      // anything outside is ERR_CORRUPT naming the key
    double gguf_fallback; // when a GGUF does not have it
};
MUST_CHECK err_code hyper_read(const struct weights *w, const struct hyper *table, size_t n, void *dims, err *e);

// Text generation. All functions but open-time ones are called by every lane.
struct gen_ops {
    // How the model's KV cache looks; filled at open time.
    void (*kv_layout)(const struct model *m, struct kv_layout *ret_layout);
    // Bytes of step scratch for at most max_rows tokens and max_out rows of logits.
    size_t (*scratch_bytes)(const struct model *m, int max_rows, int max_out, int lanes);
    // Computes b->logits for the rows b->out_rows asks for, at least the groups of b->out_groups, and appends keys and values
    // at each row's position. SPMD: every lane calls it with the same batch; returns after a barrier.
    void (*forward)(const struct model *m, const struct batch *b, struct lane *lane);
    // Row `id` of the output head (with its low-rank pair if adapter), hidden numbers, dequantised:
    // logit = row . (last hidden state after the final norm).
    void (*head_row)(const struct model *m, int32_t id, bool adapter, float *dst);
};

struct family {
    const char *name;
    const char *const *archs;  // GGUF architectures and Hugging Face class names or model types; NULL-terminated
    // For a family that is a special case of another one (Orpheus of Llama): whether a checkpoint of one of the
    // architectures is its. NULL: all that no such family claims are.
    bool (*claims)(const struct weights *w, const struct model_options *o);
    // Reads dims and tensors into m->impl. On failure everything it took is released.
    err_code (*open)(struct model *m, err *e);
    void (*close)(struct model *m);  // accepts a half-built model
    // Whether what its tasks need beside the weights is there (tokens of the tokenizer ...); NULL: nothing.
    err_code (*ready)(const struct model *m, err *e);
    // What it can do; NULL: cannot. Any family with gen decides as well (engine/decide).
    const struct gen_ops *gen;
    const struct work_ops *embed, *transcribe, *speak, *image;
    // What only the family knows of the model (dimensions, sample rate, voices ...); NULL: nothing.
    void (*describe)(const struct model *m, struct model_info *ret_info);
};

// The family that claims the checkpoint, else the one that answers to the architecture; NULL: none.
const struct family *family_find(const char *arch, const struct weights *w, const struct model_options *o);
void family_names(char *out, size_t size);          // every architecture name, comma-separated
