#!/usr/bin/env python3
"""Tiny random MLX checkpoints as mlx-lm writes them, and what transformers computes from the dequantised weights.

    python3 tests/reference/make_mlx.py            writes tests/fixtures/models/mlx-*

Needs mlx (quantises and writes), torch, transformers, safetensors and numpy. A mixed model has a setting of its own for every
linear: all of 2, 3, 4, 5, 6 and 8 bits in groups of 32, 64 and 128, and a few that are not quantised. The dequantised weights are
scale * code + offset in f32; mlx's own, which rounds to the type of the scales, must agree to that type's precision.
"""
import json
import os

import mlx.core as mx
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from make_models import expect, fresh, spread

LENGTHS = [1, 7, 33]
BITS, GROUPS = (2, 3, 4, 5, 6, 8), (32, 64, 128)
PRECISION = {mx.float32: 1e-6, mx.float16: 2e-3, mx.bfloat16: 2e-2}
LEVELS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def as_f32(a):
    return np.array(a.astype(mx.float32))


def codes_of(packed, bits):
    data = np.array(packed).view(np.uint8)
    stream = np.unpackbits(data, axis=1, bitorder="little").reshape(len(data), -1, bits)
    return (stream.astype(np.int64) << np.arange(bits)).sum(-1)


def affine(weight, bits, group):
    q, scales, biases = mx.quantize(weight, group_size=group, bits=bits)
    value = codes_of(q, bits).astype(np.float32) * as_f32(scales).repeat(group, 1) + as_f32(biases).repeat(group, 1)
    theirs = as_f32(mx.dequantize(q, scales, biases, group_size=group, bits=bits))
    assert abs(value - theirs).max() <= PRECISION[weight.dtype] * abs(value).max(), (bits, group, weight.dtype)
    return value, {"weight": q, "scales": scales, "biases": biases}


def float4(weight, mode, group):
    q, scales = mx.quantize(weight, mode=mode, group_size=group, bits=4)[:2]
    value = LEVELS[codes_of(q, 4)] * decode_scale(np.array(scales), mode).repeat(group, 1)
    theirs = as_f32(mx.dequantize(q, scales, mode=mode, group_size=group, bits=4))
    assert abs(value - theirs).max() <= 2e-2 * abs(value).max(), mode
    return value, {"weight": q, "scales": scales}


def decode_scale(s, mode):
    s = s.astype(np.int32)
    if mode == "mxfp4":
        return np.exp2((s - 127).astype(np.float32))
    e, m = s >> 3 & 15, (s & 7).astype(np.float32)
    return np.where(e > 0, (8 + m) * np.exp2((e - 10).astype(np.float32)), m * np.float32(2) ** -9).astype(np.float32)


def save(name, cls, config, seed, dtype, default, setting_of):
    """setting_of(module name): None for the default, False, or its own settings."""
    folder = fresh(name)
    model = cls(config)
    spread(model, seed)
    settings, tensors, state = dict(default), {}, {}
    for key, p in model.state_dict().items():
        if key == "lm_head.weight" and config.tie_word_embeddings:
            continue
        weight, module = mx.array(p.numpy()).astype(dtype), key.rsplit(".", 1)[0]
        own = setting_of(module) if p.ndim == 2 else False
        if own is False:
            if p.ndim == 2:
                settings[module] = False
            tensors[key] = weight
            state[key] = torch.tensor(as_f32(weight))
            continue
        if own:
            settings[module] = own
        s = {**default, **(own or {})}
        mode = s.get("mode", "affine")
        value, parts = affine(weight, s["bits"], s["group_size"]) if mode == "affine" else float4(weight, mode, s["group_size"])
        state[key] = torch.tensor(value)
        tensors.update({f"{module}.{part}": a for part, a in parts.items()})
    mx.save_safetensors(os.path.join(folder, "model.safetensors"), tensors, metadata={"format": "mlx"})
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump({**json.loads(config.to_json_string()), "architectures": [cls.__name__], "quantization": settings,
                   "quantization_config": settings}, f, indent=1)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    expect(folder, model.eval(), LENGTHS, note=f"MLX, {dtype}".replace("mlx.core.", ""))


def config(cls, tied, **more):
    return cls(vocab_size=257, hidden_size=128, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
               num_key_value_heads=2, head_dim=32, max_position_embeddings=256, rms_norm_eps=1e-5, rope_theta=10000.0,
               tie_word_embeddings=tied, bos_token_id=1, eos_token_id=2, attn_implementation="eager", **more)


def mixed():
    turn = iter([(b, g) for b in BITS for g in GROUPS])

    def setting(module):
        if "embed_tokens" in module:
            return {"group_size": 32, "bits": 8}
        if module.endswith("2.self_attn.k_proj"):
            return False
        bits, group = next(turn, (4, 64))
        return {"group_size": group, "bits": bits}
    return setting


if __name__ == "__main__":
    plain = {"group_size": 64, "bits": 4}
    for i, (name, dtype) in enumerate((("f16", mx.float16), ("bf16", mx.bfloat16), ("f32", mx.float32))):
        save(f"mlx-llama-mixed-{name}", LlamaForCausalLM, config(LlamaConfig, True), 21 + i, dtype, plain, mixed())
    save("mlx-qwen3-4bit", Qwen3ForCausalLM, config(Qwen3Config, False), 31, mx.bfloat16, {**plain, "mode": "affine"}, lambda m: None)
    for mode, group in (("mxfp4", 32), ("nvfp4", 16)):
        save(f"mlx-qwen3-{mode}", Qwen3ForCausalLM, config(Qwen3Config, False), 41 + group, mx.bfloat16,
             {"group_size": group, "bits": 4, "mode": mode}, lambda m: False if "embed" in m else None)
