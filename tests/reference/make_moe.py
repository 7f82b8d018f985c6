#!/usr/bin/env python3
"""Tiny random checkpoints with mixtures of experts (Qwen3-MoE, Qwen2-MoE) and what transformers computes from them.

    python3 tests/reference/make_moe.py            writes tests/fixtures/models/{qwen3moe,qwen2moe,gguf-qwen3moe,gguf-qwen2moe}-*

As make_models.py, whose helpers it uses: f32, eager attention, no cache. Experts are tensors of their own, as
save_pretrained writes them, or stacks as transformers 5 has them in memory; a GGUF has stacks. Where two experts are
nearly equal at a border of the choice, the order of additions would decide: such prompts are replaced like those whose
greedy tokens are close.
"""
import os
import sys

import gguf
import numpy as np
import torch
from transformers import Qwen2MoeConfig, Qwen2MoeForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

import make_models as base

PROMPTS = [1, 7, 33, 150]
CLOSE = 1e-5
closest = [np.inf]


class CloseCall(Exception):
    pass


def spread(model, seed):
    """As base.spread; a stack's last dimension is its input."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn(p.shape, generator=g)
            if "norm" in name:
                p.copy_(1 + 0.3 * r)
            elif name.endswith("bias"):
                p.copy_(0.3 * r)
            elif "embed" in name or "lm_head" in name:
                p.copy_(0.6 * r)
            else:
                p.copy_(1.6 * r / p.shape[-1] ** 0.5)


def watch(model):
    """Keeps the smallest distance between the last chosen and the first other expert's logit."""
    def note(module, _, out):
        top = torch.sort(out[0], dim=-1, descending=True).values
        k = module.top_k
        if k < top.shape[-1]:
            closest[0] = min(closest[0], float((top[:, k - 1] - top[:, k]).min()))
    for layer in model.model.layers:
        if hasattr(layer.mlp, "experts"):
            layer.mlp.gate.register_forward_hook(note)


def run(model, ids):
    if not getattr(model, "watched", False):
        watch(model)
        model.watched = True
    return base.run_plain(model, ids)


def compute(model, ids, run_with):
    """A prompt with a close call has no gap: expect() takes another."""
    closest[0] = np.inf
    logits, greedy, gap = plain_compute(model, ids, run_with)
    return logits, greedy, gap if closest[0] > CLOSE else 0.0


plain_compute = base.compute
base.compute = compute
base.spread = spread


def expect(folder, model, lengths=PROMPTS):
    base.expect(folder, model, lengths=lengths, run=run)


def save(name, cls, config, seed, dtype, stacked):
    folder = base.fresh(name)
    model = cls(config)
    spread(model, seed)
    model.to(dtype).save_pretrained(folder, save_original_format=not stacked)
    os.path.exists(f := os.path.join(folder, "generation_config.json")) and os.remove(f)
    return folder, base.reload(cls, folder)


def qwen3(**more):
    args = dict(vocab_size=307, hidden_size=52, intermediate_size=88, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                head_dim=16, max_position_embeddings=1024, moe_intermediate_size=24, num_experts=5, num_experts_per_tok=2,
                rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    return Qwen3MoeConfig(**{**args, **more})


def qwen2(**more):
    args = dict(vocab_size=307, hidden_size=48, intermediate_size=88, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                max_position_embeddings=1024, moe_intermediate_size=24, num_experts=6, num_experts_per_tok=3,
                shared_expert_intermediate_size=40, rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    config = Qwen2MoeConfig(**{**args, **more})
    return config


def checkpoints():
    expect(*save("qwen3moe-f32", Qwen3MoeForCausalLM, qwen3(tie_word_embeddings=True), 41, torch.float32, False))
    # Dense layers by step and by list, and a window; the weights of a token's experts sum to 1.
    expect(*save("qwen3moe-dense-bf16", Qwen3MoeForCausalLM, qwen3(
        num_hidden_layers=4, decoder_sparse_step=2, mlp_only_layers=[1], num_experts=7, num_experts_per_tok=3, moe_intermediate_size=40,
        norm_topk_prob=True, use_sliding_window=True, sliding_window=40), 42, torch.bfloat16, False), lengths=[33, 150])
    expect(*save("qwen3moe-stack-f16", Qwen3MoeForCausalLM, qwen3(
        hidden_size=44, num_experts=7, num_experts_per_tok=3, norm_topk_prob=True), 43, torch.float16, True), lengths=[33, 150])
    expect(*save("qwen2moe-f32", Qwen2MoeForCausalLM, qwen2(decoder_sparse_step=2, num_hidden_layers=3), 44, torch.float32, False),
           lengths=[33, 150])
    expect(*save("qwen2moe-stack-bf16", Qwen2MoeForCausalLM, qwen2(norm_topk_prob=True, qkv_bias=False), 45, torch.bfloat16, True),
           lengths=[33])


PARTS = {**base.PARTS, "mlp.gate": "ffn_gate_inp", "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
         "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp",
         "mlp.shared_expert_gate": "ffn_gate_inp_shexp"}


def tensors(state, tied, fused):
    """The checkpoint's tensors as a GGUF has them: (name, name in GGUF, view into the model's memory)."""
    for key, value in state.items():
        if key == "lm_head.weight" and tied:
            continue
        if key in base.NAMES:
            yield base.NAMES[key], value
            continue
        _, _, layer, rest = key.split(".", 3)
        if rest == "mlp.experts.gate_up_proj" and not fused:
            half = value.shape[1] // 2
            yield f"blk.{layer}.ffn_gate_exps.weight", value[:, :half]
            yield f"blk.{layer}.ffn_up_exps.weight", value[:, half:]
        elif rest.startswith("mlp.experts."):
            yield f"blk.{layer}.ffn_{'gate_up' if 'gate_up' in rest else 'down'}_exps.weight", value
        else:
            part, kind = rest.rsplit(".", 1)
            yield f"blk.{layer}.{PARTS[part]}.{kind}", value[0] if part == "mlp.shared_expert_gate" else value


def write_gguf(name, model, arch, types, fused=False, ffn_key=True):
    """types(GGUF name, shape) gives the storage type; returns the model with what was stored, dequantised."""
    folder, c, rng = base.fresh(name), model.config, np.random.default_rng(6)
    w = gguf.GGUFWriter(os.path.join(folder, "model.gguf"), arch)
    w.add_block_count(c.num_hidden_layers)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    w.add_rope_freq_base(c.rope_parameters["rope_theta"])
    w.add_key_length(head_dim := getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads)
    w.add_value_length(head_dim)
    w.add_expert_count(c.num_experts)
    w.add_expert_used_count(c.num_experts_per_tok)
    if ffn_key:
        w.add_expert_feed_forward_length(c.moe_intermediate_size)
    if arch == "qwen2moe":
        w.add_expert_shared_feed_forward_length(c.shared_expert_intermediate_size)
    for key, value in tensors(model.state_dict(), c.tie_word_embeddings, fused):
        array, kind = value.contiguous().numpy(), types(key, value.shape)
        rows = array.reshape(-1, array.shape[-1])
        if kind in (gguf.GGMLQuantizationType.Q4_K, gguf.GGMLQuantizationType.Q6_K):
            data = base.random_k_blocks(rng, kind, rows.shape, float(array.std()))
        else:
            data = gguf.quants.quantize(np.ascontiguousarray(rows), kind)
        w.add_tensor(key, data.reshape(*array.shape[:-1], -1), raw_dtype=kind)
        back = gguf.quants.dequantize(data, kind).astype(np.float32).reshape(array.shape)
        with torch.no_grad():
            value.copy_(torch.from_numpy(back.copy()))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    model.tie_weights()
    return folder, model


def ggufs():
    t = gguf.GGMLQuantizationType

    def make(cls, config, seed):
        config._attn_implementation = "eager"
        model = cls(config).eval()
        spread(model, seed)
        return model
    f32 = lambda key, shape: t.F32
    expect(*write_gguf("gguf-qwen3moe-f32", make(Qwen3MoeForCausalLM, qwen3(norm_topk_prob=True, tie_word_embeddings=True), 51),
                       "qwen3moe", f32), lengths=[33, 150])

    # A type for each stack; what a quantiser leaves alone is f32.
    def mixed(key, shape):
        kinds = {"ffn_gate_exps": t.Q4_0, "ffn_up_exps": t.Q8_0, "ffn_down_exps": t.Q5_1, "attn_q": t.Q8_0, "attn_output": t.F16}
        return kinds.get(key.split(".")[-2], t.F32)
    expect(*write_gguf("gguf-qwen3moe-q4_0", make(Qwen3MoeForCausalLM, qwen3(
        hidden_size=64, moe_intermediate_size=32, intermediate_size=96, num_experts=7, num_experts_per_tok=3, norm_topk_prob=True), 52),
        "qwen3moe", mixed, ffn_key=False), lengths=[33, 150])

    # K blocks, gate and up in one stack; down by layer in another type.
    def k_types(key, shape):
        if "gate_up_exps" in key:
            return t.Q4_K
        if "down_exps" in key:
            return t.Q6_K if key.startswith("blk.0") else t.Q8_0
        return t.F16 if len(shape) == 2 and "inp" not in key else t.F32
    expect(*write_gguf("gguf-qwen3moe-q4_k", make(Qwen3MoeForCausalLM, qwen3(
        hidden_size=256, vocab_size=97, moe_intermediate_size=256, num_experts=3, num_experts_per_tok=1, num_attention_heads=2,
        num_key_value_heads=1, norm_topk_prob=True, tie_word_embeddings=True), 53), "qwen3moe", k_types, fused=True), lengths=[33])

    def q8(key, shape):
        return t.Q8_0 if len(shape) > 1 and shape[-1] % 32 == 0 and "inp" not in key else t.F32
    expect(*write_gguf("gguf-qwen2moe-q8_0", make(Qwen2MoeForCausalLM, qwen2(
        hidden_size=64, moe_intermediate_size=32, shared_expert_intermediate_size=96), 54), "qwen2moe", q8), lengths=[33, 150])


if __name__ == "__main__":
    only = sys.argv[1:]
    for part in (checkpoints, ggufs):
        if not only or part.__name__ in only:
            part()
