#!/usr/bin/env python3
"""make_quants.py - blocks of every storage type and what they mean, for tests/unit/kernels/quant/test_quants.c.

Needs numpy and gguf 0.19, whose gguf.quants follows ggml's reference code operation for operation in single precision.
Writes tests/fixtures/quants/NAME.bin, little-endian:

    u32 blocks, u32 block_bytes, u32 block (numbers)
    the blocks: random bytes with finite half-precision scales; small, subnormal, zero and negative scales occur
    u64 for each block: FNV-1a over its floats' bytes
    f32 [block]: the floats of the first block

gguf has no Q8_1, Q1_0, Q2_0: their values here are the layouts in ggml-common.h. Q8_1: f16 d, f16 s, i8 q[32]; number =
d * q. Q1_0: f16 d, 128 bits from the lowest on; number = d or -d. Q2_0: f16 d, 64 times 2 bits from the lowest on;
number = d * (q - 1). The last two were checked against what llama-quantize makes of them as F32.
"""
import os
import sys

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

# Where a block keeps its half-precision numbers; enough blocks that every entry of a code book is drawn.
HALVES = {
    "F16": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q8_1": [0, 2],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "TQ1_0": [52], "TQ2_0": [64],
    "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0],
    "IQ4_NL": [0], "IQ4_XS": [0], "F32": [], "BF16": [], "MXFP4": [], "NVFP4": [], "IQ1_M": [],
    "Q1_0": [0], "Q2_0": [0],
}
BLOCKS = {"F32": 256, "F16": 1024, "BF16": 512, "MXFP4": 256, "NVFP4": 64, "IQ1_S": 900, "IQ1_M": 700,
          "IQ2_XS": 160, "IQ2_S": 320, "IQ3_S": 96, "IQ2_XXS": 80, "IQ3_XXS": 64}

SIZES = {"Q8_1": (32, 36), "Q1_0": (128, 18), "Q2_0": (64, 18)}


def fnv(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def finite_half(rng, n):
    h = rng.integers(0, 1 << 16, n, dtype=np.uint16)
    return np.where(h & 0x7C00 == 0x7C00, h & 0xBFFF, h).astype(np.uint16)


def blocks_of(name, n, size, rng):
    b = rng.integers(0, 256, (n, size), dtype=np.uint8)
    for at in HALVES[name]:
        b[:, at:at + 2] = finite_half(rng, n).view(np.uint8).reshape(n, 2)
    if name == "IQ1_M":  # the half is the upper quarters of four words
        h = finite_half(rng, n)
        for i in range(4):
            b[:, 49 + 2 * i] = b[:, 49 + 2 * i] & 15 | (h >> 4 * i & 15) << 4
    scales = {"MXFP4": 1, "NVFP4": 4}.get(name, 0)  # bytes of their own kinds: each value occurs
    b[:, :scales] = (np.arange(n * scales) % 256).astype(np.uint8).reshape(n, scales)
    if name in ("F32", "BF16"):  # no NaN: their bits are not promised
        top = b[:, size - 2:].copy().view(np.uint16)
        b[:, size - 2:] = np.where(top & 0x7F80 == 0x7F80, top & 0xBFFF, top).astype(np.uint16).view(np.uint8)
    return b


def values_of(name, b):
    if name == "Q8_1":
        d = b[:, 0:2].copy().view(np.float16).astype(np.float32)
        return d * b[:, 4:].copy().view(np.int8).astype(np.float32)
    if name in ("Q1_0", "Q2_0"):
        d = b[:, 0:2].copy().view(np.float16).astype(np.float32)
        bits = np.unpackbits(b[:, 2:], axis=1, bitorder="little").astype(np.int32)
        q = 2 * bits - 1 if name == "Q1_0" else bits[:, 0::2] + 2 * bits[:, 1::2] - 1
        return d * q.astype(np.float32)
    return dequantize(b, T[name]).astype(np.float32, copy=False)


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else "tests/fixtures/quants"
    os.makedirs(out, exist_ok=True)
    rng = np.random.default_rng(20)
    for name in HALVES:
        block, size = SIZES.get(name) or GGML_QUANT_SIZES[T[name]]
        b = blocks_of(name, BLOCKS.get(name, 48), size, rng)
        with np.errstate(over="ignore"):
            v = values_of(name, b).reshape(len(b), block)
        with open(os.path.join(out, name.lower() + ".bin"), "wb") as f:
            f.write(np.array([len(b), size, block], "<u4").tobytes())
            f.write(b.tobytes())
            f.write(np.array([fnv(r.tobytes()) for r in v], "<u8").tobytes())
            f.write(v[0].tobytes())


if __name__ == "__main__":
    main()
