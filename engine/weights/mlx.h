// mlx.h - joins the tensors of Apple's MLX: X.weight (U32, codes), X.scales and X.biases become one tensor X.weight.
//
// config.json has "quantization" (and the same again as "quantization_config"): {"group_size": 64, "bits": 4, "mode":
// "affine", "model.embed_tokens": {"group_size": 32, "bits": 8}, "lm_head": false}: the object of a module goes before, false
// says that it is not quantised. https://ml-explore.github.io/mlx/build/html/python/nn/_autosummary/mlx.nn.quantize.html
#pragma once

#include "base/err.h"
#include "engine/weights/weights.h"

// After metadata and directory of *w are there, by the thread that opens it. Without such an object in config.json nothing
// happens. Errors name the tensor: ERR_CORRUPT for parts that are missing or do not fit together, ERR_UNSUPPORTED for a mode
// or a number of bits that is not known.
MUST_CHECK err_code mlx_join(struct weights *w, err *e);

// Bytes of a joined tensor's scales, and of its biases where it has them; 0 of any other tensor.
size_t mlx_numbers_bytes(const struct tensor *t);
// Bytes of the scales (0) or biases (1) of one row; 0: it has none.
size_t mlx_row_bytes(const struct tensor *t, int which);
