// weights.h - a model on disk, whatever its container: tensors by name, metadata by key.
//
//     struct weights *w;
//     if (weights_open("/models/qwen3-0.6b", &w, &e)) ...     // a .gguf, a .safetensors, or a folder
//     const struct tensor *t = weights_find(w, "model.norm.weight");
//     int64_t layers;
//     if (meta_int(w, "num_hidden_layers", &layers)) ...
//     weights_close(w);                                       // after everything borrowed from it is gone
//
// A container is one file in engine/weights/ and one line in formats.def. Every offset, count and size in a file is
// checked against the real file before use; a damaged file is ERR_CORRUPT and names file, tensor, found and expected.
// Tensors are borrowed from the mapping. After open it is immutable and may be read by any thread.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "kernels/quant.h"

struct json_t;
struct weights;

enum { TENSOR_DIMS = 8 };

struct tensor {
    const char *name;
    enum quant_type type;
    int ndim;
    int64_t shape[TENSOR_DIMS];  // outermost first (PyTorch's order; GGUF's is turned round): [rows, cols]
    const void *data;            // may be unaligned
    size_t bytes;
    int shard;
    const char *dtype;           // as the file calls it: "Q4_K", "F16", "I64"
    // Rows that are not the type's blocks one after another; only linears and tables read such tensors.
    const struct quant_parts *parts;  // MLX: data and bytes are those of the codes; NULL: none
    const struct tensor *numbers;     // then the scales, and the offsets if it has them
    bool packed;                      // in the kernels' own layout (kernels/mat_pack.h), as `oxinferd quantize` writes it
};

enum weights_container { WEIGHTS_GGUF, WEIGHTS_HF };  // metadata is GGUF's, or config.json's

// path: a GGUF file (any shard of a split one), a safetensors file (or index) beside its config.json, or a folder that
// holds config.json with model.safetensors or model.safetensors.index.json, or exactly one (split) GGUF. A folder that
// `oxinferd quantize` made of a GGUF has metadata.gguf instead of config.json and counts as a GGUF. Diffusers'
// diffusion_pytorch_model.safetensors counts like model.safetensors; a LoRA's adapter_model.safetensors is read with
// its adapter_config.json, and pytorch_lora_weights.safetensors with no config. Where a plain name is absent, its half
// precision variant counts (model.fp16.safetensors). A diffusers pipeline, whose folder has model_index.json and no
// weights, opens with that as its config and without tensors.
// Errors name what is missing: ERR_NOT_FOUND, ERR_CORRUPT, ERR_UNSUPPORTED (pickle, unknown type), ERR_IO, ERR_INVALID
// (a folder with several models), ERR_TOO_LARGE (past a named maximum), ERR_MEMORY.
MUST_CHECK err_code weights_open(const char *path, struct weights **ret_weights, err *e);

// The same of one file that is in memory already and stays there; name tells what messages call it. A safetensors file
// then has an empty config.
MUST_CHECK err_code weights_open_memory(const char *name, const void *data, size_t size, struct weights **ret_weights,
                                        err *e);
void weights_close(struct weights *w);

enum weights_container weights_container(const struct weights *w);
const char *weights_path(const struct weights *w);    // as given
const char *weights_folder(const struct weights *w);  // where side files (tokenizer.json ...) lie
// GGUF general.architecture, or config.json's architectures[0] ("LlamaForCausalLM"), else its model_type, else its
// _class_name (diffusers); "" if none.
const char *weights_arch(const struct weights *w);

// Tensors of a storage type (quant.h). A file may hold others as well (position ids in I64, F8): those are not counted
// and not found here, so that they only matter to who asks for them.
const struct tensor *weights_find(const struct weights *w, const char *name);  // NULL: there is none
const struct tensor *weights_at(const struct weights *w, size_t i);            // sorted by name
size_t weights_count(const struct weights *w);
size_t weights_bytes(const struct weights *w);  // sum over these tensors

// As weights_find with an error that names the tensor: ERR_NOT_FOUND, or ERR_UNSUPPORTED for one of another dtype.
MUST_CHECK err_code weights_need(const struct weights *w, const char *name, const struct tensor **ret_tensor, err *e);

// A tensor of any dtype, for who reads its bytes itself; type is QUANT_COUNT when it is no storage type. NULL: none.
const struct tensor *weights_find_raw(const struct weights *w, const char *name);

// The GGUF file that the metadata is from, up to the end of its keys. False: it is config.json.
bool weights_keys(const struct weights *w, const uint8_t **ret_keys, size_t *ret_len);

// The model is opened only to see which tensors it uses (engine/blocks/loader.h): before its family is opened.
void weights_set_survey(struct weights *w);
// Reads bytes begin .. begin + n of a tensor into dst. Unlike touching t->data, which ends the process when the file
// has been cut meanwhile, this is ERR_CORRUPT then; and it leaves no mapped pages behind. Any thread.
MUST_CHECK err_code weights_read(const struct weights *w, const struct tensor *t, size_t begin, void *dst, size_t n,
                                 err *e);

// Refuses with ERR_CORRUPT, naming tensor, row and column, a NaN or an infinity among numbers of a tensor: n bytes, whole
// blocks, that begin `begin` bytes inside it.
MUST_CHECK err_code weights_finite(const struct weights *w, const struct tensor *t, size_t begin, const void *bytes,
                                   size_t n, err *e);

// Asks the kernel to drop the pages of a tensor that was repacked; the mapping stays valid.
void weights_release(const struct weights *w, const struct tensor *t);

// ---- metadata. Keys: GGUF's own ("llama.block_count"), or a path into config.json ("rope_scaling.factor"). Texts
// are borrowed with their length: GGUF's end without a zero byte and may hold any bytes. False when absent, null or
// of another type (meta_int takes integral floats; meta_float takes integers). Keys are from now on looked for under
// this object of config.json first ("text_config" of a model that sees), before the weights are shared between
// threads. False: there is no such object.
bool meta_scope(struct weights *w, const char *key);
bool meta_int(const struct weights *w, const char *key, int64_t *ret_value);
bool meta_float(const struct weights *w, const char *key, double *ret_value);
// Whether the file has the key, whatever its value; whether it is null; whether it is an object with something in it.
bool meta_has(const struct weights *w, const char *key);
bool meta_null(const struct weights *w, const char *key);
bool meta_group(const struct weights *w, const char *key);
bool meta_bool(const struct weights *w, const char *key, bool *ret_value);
bool meta_string(const struct weights *w, const char *key, const char **ret_text, size_t *ret_len);

// Arrays. GGUF: string, integer and float arrays; HF: JSON arrays. -1 when absent or no array.
int64_t meta_array_length(const struct weights *w, const char *key);
bool meta_array_string(const struct weights *w, const char *key, int64_t i, const char **ret_text, size_t *ret_len);
bool meta_array_int(const struct weights *w, const char *key, int64_t i, int64_t *ret_value);
bool meta_array_float(const struct weights *w, const char *key, int64_t i, double *ret_value);

// config.json as a whole; NULL for GGUF. Borrowed.
struct json_t *weights_config(const struct weights *w);
// A JSON side file of the folder (tokenizer.json, generation_config.json): borrowed, parsed once at open; NULL if
// absent. Read where they exist: added_tokens, chat_template, config_sentence_transformers, generation_config,
// modules, preprocessor_config, processor_config, sentence_bert_config, special_tokens_map, tokenizer_config and
// tokenizer (each .json), and config.json of every folder modules.json names ("1_Pooling/config.json"). None for GGUF.
struct json_t *weights_json(const struct weights *w, const char *file);
// Frees a side file that has served (a large tokenizer.json), before the weights are shared between threads.
void weights_drop_json(struct weights *w, const char *file);
