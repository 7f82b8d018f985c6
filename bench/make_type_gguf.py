#!/usr/bin/env python3
"""make_type_gguf.py --shape SHAPE --type TYPE[,TYPE...] --out DIR - GGUF files of random weights, for speed tests.

Speed depends on shapes and storage types, not on what the weights mean. So every block is made of random bytes with scales of
a sensible size: weights have a standard deviation of 0.02 and a mean near 0, and activations stay finite. TYPE is a storage
type, or one of the mixes Q4_K_M, Q5_K_M, Q3_K_L with a type for each tensor. The embedding, which is also the head, has the type
that llama-quantize gives it (--head TYPE: another one). Files are DIR/SHAPE-TYPE.gguf. The tokenizer is a valid byte-level BPE
that makes one token of every byte.

Needs the Python packages numpy and gguf. --list prints the shapes and types.
"""

import argparse
import os
import sys
from collections import namedtuple

SIGMA = 0.02
NOISE_BYTES = 16 << 20  # of different random blocks; larger tensors repeat them

Shape = namedtuple("Shape", "arch layers hidden heads kv_heads head_dim ffn vocab theta eps context qk_norm pre")
SHAPES = {
    "qwen3-0.6b": Shape("qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 1e6, 1e-6, 40960, True, "qwen2"),
    "llama-1b": Shape("llama", 16, 2048, 32, 8, 64, 8192, 128256, 5e5, 1e-5, 131072, False, "llama-bpe"),
    "tiny": Shape("llama", 2, 256, 4, 2, 64, 512, 512, 1e4, 1e-5, 4096, False, "llama-bpe"),
}

# Where a block has f16 scales, and f16 minimums with how many scales make the mean 0.
SCALES = {
    "Q4_0": [(0, 1)], "Q4_1": [(0, 1), (2, -7.5)], "Q5_0": [(0, 1)], "Q5_1": [(0, 1), (2, -15.5)], "Q8_0": [(0, 1)],
    "Q2_K": [(80, 1), (82, 1.5)], "Q3_K": [(108, 1)], "Q4_K": [(0, 1), (2, 7.5)], "Q5_K": [(0, 1), (2, 15.5)],
    "Q6_K": [(208, 1)], "IQ1_S": [(0, 1)], "IQ2_XXS": [(0, 1)], "IQ2_XS": [(0, 1)], "IQ2_S": [(0, 1)], "IQ3_XXS": [(0, 1)],
    "IQ3_S": [(0, 1)], "IQ4_NL": [(0, 1)], "IQ4_XS": [(0, 1)], "TQ1_0": [(52, 1)], "TQ2_0": [(64, 1)],
    "IQ1_M": [], "MXFP4": [],
}
FLOATS = ("F32", "F16", "BF16")
MIXES = ("Q4_K_M", "Q5_K_M", "Q3_K_L")
TYPES = (*FLOATS, *SCALES, *MIXES)


def more_bits(layer, layers):
    """The layers whose attn_v and ffn_down get more bits in the K mixes."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def head_type(kind):
    """What llama-quantize stores an embedding as that is also the head."""
    if kind in FLOATS or kind == "Q8_0":
        return kind
    if kind == "MXFP4":
        return "Q8_0"
    return "Q5_K" if kind.startswith(("IQ1", "IQ2", "IQ3_XXS")) else "Q6_K"


def tensor_type(kind, part, layer, layers):
    if kind in ("Q4_K_M", "Q5_K_M"):
        return "Q6_K" if part in ("attn_v", "ffn_down") and more_bits(layer, layers) else kind[:4]
    if kind == "Q3_K_L":
        return "Q5_K" if part in ("attn_v", "ffn_down", "attn_output") else "Q3_K"
    return kind


def tensors(shape, kind, head):
    """(name, type, dimensions, outermost first) of each tensor."""
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    yield "token_embd.weight", head, (shape.vocab, shape.hidden)
    yield "output_norm.weight", "F32", (shape.hidden,)
    for i in range(shape.layers):
        yield f"blk.{i}.attn_norm.weight", "F32", (shape.hidden,)
        yield f"blk.{i}.ffn_norm.weight", "F32", (shape.hidden,)
        if shape.qk_norm:
            yield f"blk.{i}.attn_q_norm.weight", "F32", (shape.head_dim,)
            yield f"blk.{i}.attn_k_norm.weight", "F32", (shape.head_dim,)
        for part, rows, cols in (("attn_q", q, shape.hidden), ("attn_k", kv, shape.hidden), ("attn_v", kv, shape.hidden),
                                 ("attn_output", shape.hidden, q), ("ffn_gate", shape.ffn, shape.hidden),
                                 ("ffn_up", shape.ffn, shape.hidden), ("ffn_down", shape.hidden, shape.ffn)):
            yield f"blk.{i}.{part}.weight", tensor_type(kind, part, i, shape.layers), (rows, cols)


class Noise:
    """Bytes of random blocks, made once for each storage type."""

    def __init__(self, np, gguf, seed):
        self.np, self.gguf, self.rng, self.made = np, gguf, np.random.default_rng(seed), {}

    def floats(self, kind):
        x = self.rng.standard_normal(NOISE_BYTES // 4 + 1, dtype=self.np.float32) * self.np.float32(SIGMA)
        if kind == "F16":
            x = x.astype(self.np.float16)
        elif kind == "BF16":
            x = (x.view(self.np.uint32) >> 16).astype(self.np.uint16)
        return x.view(self.np.uint8)

    def set_scales(self, kind, blocks, size):
        np = self.np
        n = len(blocks)
        d = size * self.rng.uniform(0.75, 1.25, n)
        if kind == "IQ1_M":  # the f16 is spread over the top four bits of four words
            bits = d.astype(np.float16).view(np.uint16)
            for i in range(4):
                high = blocks[:, 49 + 2 * i]
                blocks[:, 49 + 2 * i] = (high & 0x0F) | ((bits >> 4 * i & 15) << 4).astype(np.uint8)
        for at, factor in SCALES[kind]:
            blocks[:, at:at + 2] = (d * factor).astype(np.float16).view(np.uint8).reshape(n, 2)

    def blocks(self, kind):
        np, t = self.np, self.gguf.GGMLQuantizationType[kind]
        width = self.gguf.GGML_QUANT_SIZES[t][1]
        n = NOISE_BYTES // width | 1
        b = self.rng.integers(0, 256, (n, width), dtype=np.uint8)
        if kind == "TQ2_0":  # of four codes three are digits
            b[:, :64] &= ~(b[:, :64] >> 1 & 0x55)
        if kind == "MXFP4":  # a power of two
            b[:, 0] = self.rng.integers(119, 122, n, dtype=np.uint8)
            return b.reshape(-1)
        self.set_scales(kind, b, 1.0)
        with np.errstate(over="ignore", invalid="ignore"):
            spread = float(self.gguf.quants.dequantize(b[:512], t).astype(np.float64).std())
        self.set_scales(kind, b, SIGMA / spread)
        return b.reshape(-1)

    def take(self, kind, count):
        """At least count bytes, always the same ones."""
        have = self.made.get(kind)
        if have is None:
            have = self.floats(kind) if kind in FLOATS else self.blocks(kind)
        if len(have) < count:
            have = self.np.tile(have, -(-count // len(have)))
        self.made[kind] = have
        return have[:count]


def byte_alphabet():
    """The printable characters that byte-level BPE writes the 256 bytes as."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(rest)) for b in range(256)]


def add_tokenizer(writer, gguf, shape):
    alphabet = byte_alphabet()
    first, second = alphabet[254], alphabet[255]  # bytes that no UTF-8 text has: a merge that is never done
    tokens = alphabet + ["<|start|>", "<|stop|>", first + second]
    kinds = [gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.NORMAL]
    unused = shape.vocab - len(tokens)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(shape.pre)
    writer.add_token_list(tokens + [f"<|unused {i}|>" for i in range(unused)])
    writer.add_token_types(kinds + [gguf.TokenType.UNUSED] * unused)
    writer.add_token_merges([f"{first} {second}"])
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(257)
    writer.add_add_bos_token(False)


def add_shape(writer, gguf, shape, kind, label):
    writer.add_name(label)
    names = {"F32": "ALL_F32"}
    file_type = getattr(gguf.LlamaFileType, names.get(kind, "MOSTLY_" + kind), None)
    if file_type is not None:
        writer.add_file_type(file_type)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.theta)
    writer.add_layer_norm_rms_eps(shape.eps)
    writer.add_vocab_size(shape.vocab)


def write(np, gguf, noise, path, name, kind, head):
    shape = SHAPES[name]
    writer = gguf.GGUFWriter(path, shape.arch)
    add_shape(writer, gguf, shape, kind, f"random {name} {kind}")
    add_tokenizer(writer, gguf, shape)
    for tensor, stored, dims in tensors(shape, kind, head):
        if len(dims) == 1:
            writer.add_tensor(tensor, np.ones(dims, dtype=np.float32))
            continue
        t = gguf.GGMLQuantizationType[stored]
        block, width = gguf.GGML_QUANT_SIZES[t]
        row = dims[1] // block * width
        data = noise.take(stored, dims[0] * row).reshape(dims[0], row)
        writer.add_tensor(tensor, data, raw_dtype=t)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shape", choices=sorted(SHAPES))
    p.add_argument("--type", help="types with commas between, or all")
    p.add_argument("--out", help="the folder")
    p.add_argument("--head", choices=[*FLOATS, *SCALES], help="type of embedding and head")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--list", action="store_true")
    o = p.parse_args()
    if o.list:
        print("shapes:", *sorted(SHAPES))
        print("types:", *TYPES)
        sys.exit(0)
    if not (o.shape and o.type and o.out):
        p.error("--shape, --type and --out are needed")
    o.kinds = list(TYPES) if o.type == "all" else o.type.upper().split(",")
    for kind in o.kinds:
        if kind not in TYPES:
            p.error(f"'{kind}' is no type, expected one of {' '.join(TYPES)}")
    return o


def main():
    o = options()
    try:
        import gguf
        import numpy as np
    except ImportError as missing:
        sys.exit(f"make_type_gguf.py: {missing}; it needs numpy and gguf")
    noise = Noise(np, gguf, o.seed)
    os.makedirs(o.out, exist_ok=True)
    for kind in o.kinds:
        path = os.path.join(o.out, f"{o.shape}-{kind}.gguf")
        write(np, gguf, noise, path + ".part", o.shape, kind, o.head or head_type(kind))
        os.replace(path + ".part", path)
        noise.made = {k: v for k, v in noise.made.items() if k in ("Q6_K", "Q5_K", "Q8_0")}  # what others share
        print(f"{path}: {os.path.getsize(path) / 1e6:.0f} MB", flush=True)


main()
