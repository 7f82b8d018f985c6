#!/usr/bin/env python3
"""make_types.py - tiny GGUF models of every storage type, and what transformers computes with their dequantised weights.

    python3 tests/reference/make_types.py             writes tests/fixtures/types
    python3 tests/reference/make_types.py DIR         writes the models to DIR as GGUF files as well

Needs torch, transformers, gguf and numpy. The weights are random blocks, a function of a number that tests/helpers/blocks.c
computes as well: so models.json has the tensors' names, types and shapes and no weights, and tests/contract/test_types.c
makes the files. models.json: for each model its dims, its tensors [name, type, rows, columns, exponent of the rms], the CRC-32
of all tensors' bytes, a prompt, the rows whose logits lie in logits.bin (f32, model after model), and greedy tokens.
Dequantised by gguf.quants, or by make_quants.py for what gguf does not know. f32, eager attention, no cache.
"""
import json
import os
import re
import sys
import zlib

import gguf
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from make_models import gguf_name
from make_quants import SIZES, values_of

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "fixtures", "types")
LAYERS, TOKENS, ROWS, GREEDY = 2, 37, [0, 17, 36], 8
KIND = gguf.GGMLQuantizationType
RULES = {}
with open(os.path.join(HERE, "..", "helpers", "blocks.def")) as f:
    for m in re.finditer(r"^BLOCKS\((\w+), (\w+), (\d+), (-?\d+), (\w+), (\d+), (-?\d+)\)", f.read(), re.M):
        if not m[1].startswith("MLX"):  # no GGUF holds these
            RULES[m[1]] = [(m[2], int(m[3]), int(m[4])), (m[5], int(m[6]), int(m[7]))]
PLAIN = ("F32", "F16", "BF16")


def block_size(kind):
    return SIZES.get(kind) or gguf.GGML_QUANT_SIZES[KIND[kind]]


# ---- the blocks: see tests/helpers/blocks.c

def mix(z):
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)


def random_bytes(n, stream):
    with np.errstate(over="ignore"):
        words = mix(mix(mix(np.array([1], np.uint64)) ^ np.uint64(stream)) ^ np.arange((n + 7) // 8, dtype=np.uint64))
    return words.view(np.uint8)[:n].copy()


def set_scale(b, field, at, exponent):
    half = min(max(exponent + 15, 1), 30) << 10
    if field == "HALF":
        b[:, at + 1] = b[:, at + 1] & 0x83 | half >> 8
    elif field == "QUARTERS":
        for i in range(4):
            p = b[:, at + 2 * i + 1]
            p[:] = p & (0x0f | (0x83ff >> 4 * i & 15) << 4) | (half >> 4 * i & 15) << 4
    elif field == "POWER":
        b[:, at] = 127 + exponent + (b[:, at] & 1)
    elif field == "E4M3":
        b[:, at:at + 4] = b[:, at:at + 4] & 7 | min(max(exponent + 7, 0), 14) << 3
    elif field in ("SINGLE", "BRAIN"):
        top = b[:, at + 2:at + 4] if field == "SINGLE" else b[:, at:at + 2]
        bits = (top[:, 1].astype(np.uint16) & 0x80) << 8 | 127 + exponent << 7 | top[:, 0] & 0x7f
        top[:, 0], top[:, 1] = bits & 255, bits >> 8


def random_blocks(kind, n, stream, exponent):
    b = random_bytes(n * block_size(kind)[1], stream).reshape(n, -1)
    for field, at, own in RULES[kind]:
        set_scale(b, field, at, exponent + own)
    return b


# ---- which type a tensor has: functions of (name, columns, number of the tensor)

def fits(kind, cols):
    return cols % block_size(kind)[0] == 0


def all_of(kind):
    return lambda name, cols, i: kind if fits(kind, cols) else "F16"


def fallback(kind, cols):
    """What llama-quantize takes instead where the columns are not whole blocks."""
    if fits(kind, cols):
        return kind
    other = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0", "TQ1_0": "Q4_0", "TQ2_0": "Q4_0"}.get(kind, "IQ4_NL")
    return other if fits(other, cols) else "F16"


def mixed(base, **parts):
    """`base`, and other types for the tensors whose names have a word; embedding and head are Q6_K."""
    def choose(name, cols, i):
        for word, kind in {"token_embd": "Q6_K", "output.": "Q6_K", **parts}.items():
            if word in name and (word != "output." or name.startswith(word)):
                return fallback(kind, cols)
        return fallback(base, cols)
    return choose


def dynamic(name, cols, i):
    """A type for each tensor."""
    kinds = [k for k in RULES if fits(k, cols)]
    return kinds[(7 * i + 3) % len(kinds)]


# ---- models

def config(arch, hidden, ffn, heads, kv_heads, head_dim, vocab, tied):
    cls = {"llama": LlamaConfig, "qwen3": Qwen3Config}[arch]
    return cls(hidden_size=hidden, intermediate_size=ffn, num_hidden_layers=LAYERS, num_attention_heads=heads,
               num_key_value_heads=kv_heads, head_dim=head_dim, vocab_size=vocab, tie_word_embeddings=tied,
               max_position_embeddings=256, rms_norm_eps=1e-5, attn_implementation="eager",
               rope_parameters={"rope_type": "default", "rope_theta": 10000.0})


def specs():
    """(name, config, types): every type in both families, as odd as its blocks allow; then files of several types."""
    for kind in RULES:
        low, block = kind.lower(), block_size(kind)[0]
        yield f"llama-{low}", config("llama", 256, 256, 4, 1, 64, 157, True), all_of(kind)
        if block <= 32:
            yield f"qwen3-{low}", config("qwen3", 96, 160, 3, 1, 32, 203, False), all_of(kind)
        elif block <= 128:
            yield f"qwen3-{low}", config("qwen3", 3 * block, 128, 3, 3, block, 203, False), all_of(kind)
        else:
            yield f"qwen3-{low}", config("qwen3", 512, 256, 5, 1, 20, 203, False), all_of(kind)
    q4_k_m = mixed("Q4_K", attn_v="Q6_K", ffn_down="Q6_K")
    q3_k_l = mixed("Q3_K", attn_v="Q5_K", attn_output="Q5_K", ffn_down="Q5_K")
    yield "q4_k_m-256", config("llama", 256, 512, 4, 2, 64, 157, True), q4_k_m
    yield "q3_k_l-512", config("qwen3", 512, 256, 8, 1, 32, 157, False), q3_k_l
    yield "ud-256", config("qwen3", 256, 512, 4, 1, 64, 203, False), dynamic
    yield "ud-96", config("llama", 96, 256, 3, 1, 32, 157, True), dynamic
    for low, types in (("q4_k_m", q4_k_m), ("q3_k_l", q3_k_l), ("tq1_0", mixed("TQ1_0"))):
        yield f"{low}-288", config("llama", 288, 512, 9, 3, 32, 157, True), types
    yield "iq2_m-96", config("qwen3", 96, 256, 3, 3, 32, 203, False), mixed("IQ2_S", attn_v="Q4_K", ffn_down="IQ3_S")


def to_halves(w, heads):
    """llama.cpp's "llama" pairs the rows (2i, 2i + 1) of a head, Hugging Face (i, i + d/2)."""
    return w.reshape(heads, w.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(w.shape)


def rms_exponent(name, shape):
    if len(shape) == 1:
        return -1
    return -4 if "embd" in name or name.startswith("output.") else round(float(np.log2(1.6 / shape[1] ** 0.5)))


def fill(model, c, types, number):
    """Gives the model the dequantised weights; returns the list of tensors with their blocks, and the bytes' CRC-32."""
    state, tensors, h = model.state_dict(), [], 0
    for i, (key, value) in enumerate(state.items()):
        if key == "lm_head.weight" and c.tie_word_embeddings:
            continue
        name, shape = gguf_name(key), tuple(value.shape)
        kind = "F32" if len(shape) == 1 else types(name, shape[-1], i)
        exponent, (block, size) = rms_exponent(name, shape), block_size(kind)
        data = random_blocks(kind, value.numel() // block, 1000 * number + len(tensors), exponent)
        w = np.ascontiguousarray(values_of(kind, data)).reshape(shape)
        heads = {"q_proj": c.num_attention_heads, "k_proj": c.num_key_value_heads}.get(key.split(".")[-2])
        if c.model_type == "llama" and heads:
            w = to_halves(w, heads)
        value.copy_(torch.from_numpy(w.astype(np.float32)))
        h = zlib.crc32(data.tobytes(), h)
        rows = shape[0] if len(shape) == 2 else 1
        tensors.append([name, kind, rows, shape[-1], exponent, data.reshape(rows, -1)])
    model.tie_weights()
    return tensors, h


def run(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].numpy()


def expected(model, vocab):
    """A prompt whose greedy tokens are far from their rivals."""
    for seed in range(100):
        ids = np.random.default_rng(seed).integers(0, vocab, TOKENS).tolist()
        logits, longer, gap = run(model, ids), list(ids), np.inf
        spread = float(logits.max() - logits.min())
        last = logits[-1]
        for _ in range(GREEDY):
            top = np.sort(last)[-2:]
            gap = min(gap, float(top[1] - top[0]))
            longer.append(int(last.argmax()))
            last = run(model, longer)[-1]
        if gap > 1e-3 * spread:
            return {"ids": ids, "rows": ROWS, "greedy": longer[TOKENS:], "spread": round(spread, 4)}, logits[ROWS]
    raise SystemExit("no prompt with greedy tokens far apart")


def write(path, c, tensors):
    w = gguf.GGUFWriter(path, c.model_type)
    for key, value in keys_of(c).items():
        (w.add_float32 if isinstance(value, float) else w.add_uint32)(f"{c.model_type}.{key}", value)
    for name, kind, rows, cols, _, data in tensors:
        if rows > 1:
            w.add_tensor(name, data, raw_dtype=KIND[kind])
        else:
            w.add_tensor(name, data.reshape(-1).view(np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def keys_of(c):
    return {"block_count": LAYERS, "context_length": c.max_position_embeddings, "embedding_length": c.hidden_size,
            "feed_forward_length": c.intermediate_size, "attention.head_count": c.num_attention_heads,
            "attention.head_count_kv": c.num_key_value_heads, "attention.key_length": c.head_dim,
            "attention.value_length": c.head_dim, "rope.dimension_count": c.head_dim, "vocab_size": c.vocab_size,
            "attention.layer_norm_rms_epsilon": c.rms_norm_eps, "rope.freq_base": 10000.0}


def main():
    os.makedirs(OUT, exist_ok=True)
    torch.set_num_threads(1)
    models, blob = [], []
    for number, (name, c, types) in enumerate(specs()):
        model = {"llama": LlamaForCausalLM, "qwen3": Qwen3ForCausalLM}[c.model_type](c).eval()
        with torch.no_grad():
            tensors, h = fill(model, c, types, number)
        want, logits = expected(model, c.vocab_size)
        assert np.isfinite(logits).all(), name
        blob.append(logits)
        models.append({"name": name, "arch": c.model_type, "keys": keys_of(c), "number": number, "crc32": h,
                       "tensors": [t[:5] for t in tensors], **want})
        print(f"{name:16s} spread {want['spread']:.1f} bytes {sum(t[5].size for t in tensors)}", flush=True)
        if len(sys.argv) > 1 and not any(t[1] in SIZES for t in tensors):
            os.makedirs(sys.argv[1], exist_ok=True)
            write(os.path.join(sys.argv[1], name + ".gguf"), c, tensors)
    np.concatenate(blob, axis=None).astype("<f4").tofile(os.path.join(OUT, "logits.bin"))
    with open(os.path.join(OUT, "models.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(m, separators=(",", ":")) for m in models) + "\n]\n")


if __name__ == "__main__":
    main()
