// own.h - tensors that `oxinferd quantize` writes into ordinary safetensors: U8 arrays whose meaning stands in the file's
// __metadata__, texts all of them.
//
//   oxinferd.layout     "1": MAT_PACK_LAYOUT, the version of the packed bytes
//   oxinferd.precision  "q8" or "q4": what the linears were quantised to (a head is q8 in both)
//   oxinferd.metadata   "gguf" where hyper-parameters and tokenizer are in metadata.gguf, names being GGUF's
//   oxinferd:NAME       "packed Q8_0 576 1536": tensor NAME is a matrix [576, 1536] in the layout of kernels/mat_pack.h, filled
//                       up with zeros to a whole page; or "rows Q6_K 49152 576": blocks of the type, as GGUF has them
//
// Packed tensors lie at multiples of 4096 bytes of the file: they are used where they are mapped.
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "engine/weights/format.h"
#include "engine/weights/weights.h"

struct json_t;

enum { OWN_PAGE = 4096 };

#define OWN_LAYOUT "oxinferd.layout"
#define OWN_PRECISION "oxinferd.precision"
#define OWN_METADATA "oxinferd.metadata"
#define OWN_TENSOR "oxinferd:"

// Checks the layout a file says it has; metadata NULL or another program's: nothing.
MUST_CHECK err_code own_check(const struct format_file *f, const struct json_t *metadata, err *e);
bool own_is_gguf(const struct json_t *metadata);

// Gives *t, as read from the file, the type and shape that the metadata tells. Errors name the tensor: ERR_CORRUPT.
MUST_CHECK err_code own_tensor(const struct format_file *f, const struct json_t *metadata, struct tensor *t, err *e);
