#!/usr/bin/env python3
"""make_weights.py - small models as other programs write them, for test_weights.c and the fuzzers.

Needs torch, transformers 5.24, safetensors and gguf 0.19. Writes below tests/:

    fixtures/weights/sharded/    a random Llama by save_pretrained in small shards: config, index, shards
    fixtures/weights/split/      the same tensors by gguf-py in two files, NAME-0000N-of-00002.gguf, Q8_0, F16 and F32
    fixtures/weights/*.json      {tensor: [shape, FNV-1a of its floats' bytes]} of each
    fuzz/seeds/{gguf,safetensors}/
"""
import json
import os
import shutil

import gguf
import numpy as np
import torch
from safetensors.torch import save
from transformers import LlamaConfig, LlamaForCausalLM


def fnv(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def expected(path, tensors):
    want = {n: [list(t.shape), fnv(np.ascontiguousarray(t, np.float32).tobytes())] for n, t in tensors.items()}
    with open(path, "w") as f:
        json.dump(want, f, separators=(",", ":"), sort_keys=True)
        f.write("\n")


def sharded(folder):
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(3)
    config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
                         num_key_value_heads=1, vocab_size=48, max_position_embeddings=64, bos_token_id=1,
                         eos_token_id=2, rope_parameters={"rope_type": "linear", "factor": 4.0,
                                                          "rope_theta": 10000.0})
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder, max_shard_size="12KB")
    tensors = {n: t.float().numpy() for n, t in model.state_dict().items()}
    expected(folder + ".json", tensors)
    return tensors


def split(folder, tensors):
    """Writes each part with its own writer: gguf-py names parts itself only for files of many tensors."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    names = sorted(tensors)
    half = len(names) // 2
    want = {}
    for part, mine in enumerate((names[:half], names[half:])):
        w = gguf.GGUFWriter(f"{folder}/tiny-{part + 1:05d}-of-00002.gguf", "llama")
        if part == 0:
            w.add_block_count(1)
            w.add_rope_freq_base(10000.0)
            w.add_array("tokenizer.ggml.tokens", ["a", "b", "\u00e9"])
            w.add_array("tokenizer.ggml.scores", [0.5, -1.0, 2.0])
            w.add_bool("tokenizer.ggml.add_bos_token", True)
        w.add_uint16("split.no", part)
        w.add_uint16("split.count", 2)
        w.add_int32("split.tensors.count", len(names))
        for i, n in enumerate(mine):
            t = tensors[n]
            kind = gguf.GGMLQuantizationType.F32 if t.ndim == 1 else (gguf.GGMLQuantizationType.Q8_0,
                                                                      gguf.GGMLQuantizationType.F16)[i % 2]
            q = gguf.quants.quantize(t, kind)
            w.add_tensor(n, q, raw_dtype=kind)
            want[n] = gguf.quants.dequantize(q, kind).reshape(t.shape)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
    expected(folder + ".json", want)


def seeds(root):
    os.makedirs(f"{root}/gguf", exist_ok=True)
    os.makedirs(f"{root}/safetensors", exist_ok=True)
    path = f"{root}/gguf/kinds.gguf"
    w = gguf.GGUFWriter(path, "llama")
    w.add_custom_alignment(64)
    for add, v in ((w.add_uint8, 1), (w.add_int8, -1), (w.add_uint16, 2), (w.add_int16, -2), (w.add_uint32, 3),
                   (w.add_int32, -3), (w.add_uint64, 4), (w.add_int64, -4), (w.add_float32, 0.5), (w.add_float64, 0.25),
                   (w.add_bool, True), (w.add_string, "text")):
        add("k." + add.__name__, v)
    w.add_array("k.ints", [1, 2, 3])
    w.add_array("k.floats", [1.5, 2.5])
    w.add_array("k.bools", [True, False])
    w.add_array("k.texts", ["one", "", "three"])
    w.add_tensor("f32", np.arange(6, dtype=np.float32).reshape(2, 3))
    w.add_tensor("i32", np.arange(4, dtype=np.int32))
    w.add_tensor("q4", gguf.quants.quantize(np.ones((2, 32), np.float32), gguf.GGMLQuantizationType.Q4_0),
                 raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    with open(f"{root}/gguf/header.gguf", "wb") as f:
        f.write(b"GGUF" + np.array([2], "<u4").tobytes() + bytes(16))
    with open(f"{root}/safetensors/kinds.safetensors", "wb") as f:
        f.write(save({"f32": torch.arange(6.).reshape(2, 3), "f16": torch.ones(3, dtype=torch.float16),
                      "bf16": torch.ones(2, 1, dtype=torch.bfloat16), "ids": torch.arange(3),
                      "u8": torch.zeros(2, dtype=torch.uint8), "none": torch.zeros(0, 4), "one": torch.tensor(1.)},
                     {"format": "pt"}))
    with open(f"{root}/safetensors/empty.safetensors", "wb") as f:
        f.write(np.array([2], "<u8").tobytes() + b"{}")


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    tensors = sharded(f"{root}/fixtures/weights/sharded")
    split(f"{root}/fixtures/weights/split", tensors)
    seeds(f"{root}/fuzz/seeds")


if __name__ == "__main__":
    main()
