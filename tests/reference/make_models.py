#!/usr/bin/env python3
"""Tiny random checkpoints of the text families and what transformers computes from them.

    python3 tests/reference/make_models.py            writes tests/fixtures/models

Needs torch, transformers, safetensors, gguf and numpy. Every model folder gets a checkpoint, and expected.json with
expected.bin beside it: for each prompt its ids, the rows whose logits are in the .bin (f32, in order), and 32 greedy
tokens. Everything is computed in f32 with eager attention and no cache, except dynamic RoPE (see run_cached).
The weights have a wide spread, so that the greedy tokens are far apart: the smallest gap is in expected.json.
"""
import json
import os
import shutil
import sys

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "models")
VOCAB = 509
PROMPTS = [1, 7, 33, 150, 600]
GREEDY = 32
torch.manual_seed(1)
torch.set_num_threads(1)


def spread(model, seed):
    """Random weights whose logits differ by several units and whose attention is not flat."""
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
                p.copy_(1.6 * r / p.shape[1] ** 0.5)


def run_plain(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].numpy()


def run_cached(model, ids):
    """One token at a time. Dynamic RoPE takes its frequencies from the length so far, and cached keys keep the ones they
    were stored with; only this order of work gives every position a result that its own prefix determines."""
    rows, past = [], None
    with torch.no_grad():
        for i, t in enumerate(ids):
            out = model(torch.tensor([[t]]), past_key_values=past, use_cache=True,
                        position_ids=torch.tensor([[i]]))
            past = out.past_key_values
            rows.append(out.logits[0, 0].numpy())
    return np.stack(rows)


def compute(model, ids, run):
    """Logits of every row, the greedy continuation, and the smallest distance between its two best tokens."""
    logits = run(model, ids)
    longer, greedy, gap, last = list(ids), [], np.inf, logits[-1]
    for _ in range(GREEDY):
        top = np.sort(last)[-2:]
        gap = min(gap, float(top[1] - top[0]))
        greedy.append(int(last.argmax()))
        longer.append(greedy[-1])
        last = run(model, longer)[-1]
    return logits, greedy, gap


def expect(folder, model, lengths=PROMPTS, run=run_plain, note=""):
    """Prompts whose greedy tokens are too close to call are replaced."""
    vocab = model.config.get_text_config().vocab_size
    cases, blob, smallest, low, high = [], [], np.inf, np.inf, -np.inf
    for n in lengths:
        for seed in range(7, 60):
            ids = np.random.default_rng(seed * 1000 + n).integers(0, vocab, n).tolist()
            logits, greedy, gap = compute(model, ids, run)
            if gap > 5e-3:
                break
        assert gap > 5e-3, f"{folder}: no prompt of {n} tokens with greedy tokens far apart"
        rows = sorted({len(ids) - 1, len(ids) // 2}) if len(ids) > 33 else [len(ids) - 1]
        blob += [logits[r] for r in rows]
        low, high, smallest = min(low, logits.min()), max(high, logits.max()), min(smallest, gap)
        cases.append({"ids": ids, "rows": rows, "greedy": greedy})
    np.concatenate(blob).astype("<f4").tofile(os.path.join(folder, "expected.bin"))
    info = {"note": note, "vocab": vocab, "smallest_gap": round(smallest, 4), "spread": round(float(high - low), 3), "cases": cases}
    with open(os.path.join(folder, "expected.json"), "w") as f:
        json.dump(info, f, separators=(",", ":"))
        f.write("\n")
    print(f"{os.path.basename(folder):24s} gap {smallest:.4f} spread {high - low:.1f}", flush=True)


def fresh(name):
    folder = os.path.join(OUT, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    return folder


def reload(cls, folder):
    return cls.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def save(name, cls, config, seed, dtype, shard=None):
    folder = fresh(name)
    model = cls(config)
    spread(model, seed)
    model = model.to(dtype)
    model.save_pretrained(folder, **({"max_shard_size": shard} if shard else {}))
    os.path.exists(f := os.path.join(folder, "generation_config.json")) and os.remove(f)
    return folder, reload(cls, folder)


def variant(name, base, cls, change):
    """The weights of another folder under a changed config.json."""
    folder = fresh(name)
    for f in os.listdir(os.path.join(OUT, base)):
        if f.startswith("model"):
            os.symlink(os.path.join("..", base, f), os.path.join(folder, f))
    with open(os.path.join(OUT, base, "config.json")) as f:
        config = json.load(f)
    for key, value in change.items():
        config.pop(key, None) if value is None else config.__setitem__(key, value)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
        f.write("\n")
    return folder, reload(cls, folder)


def llamas():
    config = LlamaConfig(vocab_size=VOCAB, hidden_size=72, intermediate_size=176, num_hidden_layers=2, num_attention_heads=9,
                         num_key_value_heads=3, head_dim=16, max_position_embeddings=1024, tie_word_embeddings=True,
                         rms_norm_eps=1e-5)
    folder, model = save("llama-f32", LlamaForCausalLM, config, 11, torch.float32, shard="200KB")
    expect(folder, model)

    config = LlamaConfig(vocab_size=VOCAB, hidden_size=48, intermediate_size=176, num_hidden_layers=2, num_attention_heads=6,
                         num_key_value_heads=3, max_position_embeddings=1024, attention_bias=True, mlp_bias=True)
    folder, model = save("llama-bias-f16", LlamaForCausalLM, config, 12, torch.float16)
    expect(folder, model)

    base = "llama-f32"
    ropes = {
        "linear": ({"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}, 1024),
        "yarn": ({"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0, "original_max_position_embeddings": 256}, 1024),
        "yarn-mscale": ({"rope_type": "yarn", "factor": 8.0, "rope_theta": 5000.0, "original_max_position_embeddings": 128,
                         "mscale": 0.7, "mscale_all_dim": 1.2, "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False}, 1024),
        "llama3": ({"rope_type": "llama3", "factor": 8.0, "rope_theta": 500.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 128}, 1024),
    }
    for name, (rope, positions) in ropes.items():
        folder, model = variant(f"llama-rope-{name}", base, LlamaForCausalLM,
                                {"rope_parameters": rope, "max_position_embeddings": positions})
        expect(folder, model, lengths=[33, 600])
    # The keys as older files write them: rope_theta outside, rope_scaling with "type".
    folder, model = variant("llama-rope-dynamic", base, LlamaForCausalLM,
                            {"rope_parameters": None, "rope_theta": 10000.0, "rope_scaling": {"type": "dynamic", "factor": 4.0},
                             "max_position_embeddings": 64})
    expect(folder, model, lengths=[33, 150], run=run_cached, note="fed one token at a time")


def others():
    config = MistralConfig(vocab_size=VOCAB, hidden_size=64, intermediate_size=176, num_hidden_layers=2, num_attention_heads=6,
                           num_key_value_heads=3, head_dim=16, max_position_embeddings=1024, sliding_window=20,
                           rms_norm_eps=1e-5)
    folder, model = save("mistral-bf16", MistralForCausalLM, config, 13, torch.bfloat16)
    expect(folder, model)

    config = Qwen2Config(vocab_size=VOCAB, hidden_size=48, intermediate_size=176, num_hidden_layers=2, num_attention_heads=6,
                         num_key_value_heads=3, max_position_embeddings=1024, tie_word_embeddings=True,
                         rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    folder, model = save("qwen2-bf16", Qwen2ForCausalLM, config, 14, torch.bfloat16)
    expect(folder, model)
    folder, model = variant("qwen2-window", "qwen2-bf16", Qwen2ForCausalLM,
                            {"use_sliding_window": True, "sliding_window": 40, "max_window_layers": 1, "layer_types": None})
    expect(folder, model, lengths=[33, 150])

    config = Qwen3Config(vocab_size=VOCAB, hidden_size=56, intermediate_size=176, num_hidden_layers=2, num_attention_heads=6,
                         num_key_value_heads=2, head_dim=32, max_position_embeddings=1024, tie_word_embeddings=True,
                         rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    folder, model = save("qwen3-f16", Qwen3ForCausalLM, config, 15, torch.float16)
    expect(folder, model)


def keys():
    """What config.json leaves out, says in another place, or says against the tensors."""
    yarn = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0}
    expect(*variant("keys-llama", "llama-bias-f16", LlamaForCausalLM, {
        "attention_bias": False, "sliding_window": 9, "layer_types": ["sliding_attention"] * 2, "hidden_act": "swish"}), lengths=[33])
    expect(*variant("keys-mistral", "mistral-bf16", MistralForCausalLM, {
        "max_position_embeddings": None, "sliding_window": None, "rope_parameters": yarn, "tie_word_embeddings": True}), lengths=[33])
    expect(*variant("keys-qwen2", "qwen2-bf16", Qwen2ForCausalLM, {
        "max_position_embeddings": None, "rope_parameters": yarn}), lengths=[33])
    expect(*variant("keys-rope", "llama-f32", LlamaForCausalLM, {
        "rope_scaling": {"type": "yarn", "factor": None}, "rope_theta": 500.0, "original_max_position_embeddings": 100,
        "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}}), lengths=[33])

    config = Qwen3Config(vocab_size=97, hidden_size=24, intermediate_size=33, num_hidden_layers=1, num_attention_heads=3,
                         num_key_value_heads=1, head_dim=128, max_position_embeddings=1024, tie_word_embeddings=True)
    folder, _ = save("keys-bare", Qwen3ForCausalLM, config, 16, torch.bfloat16)
    tensors = load_file(f := os.path.join(folder, "model.safetensors"))
    save_file({k.removeprefix("model."): v for k, v in tensors.items()}, f, metadata={"format": "pt"})
    with open(f := os.path.join(folder, "config.json")) as j:
        config = json.load(j)
    with open(f, "w") as j:
        json.dump({k: v for k, v in config.items() if k not in ("head_dim", "architectures")}, j, indent=2)
        j.write("\n")
    expect(folder, reload(Qwen3ForCausalLM, folder), lengths=[33])


NAMES = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
PARTS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def gguf_name(name):
    if name in NAMES:
        return NAMES[name]
    _, _, layer, rest = name.split(".", 3)
    part, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{PARTS[part]}.{kind}"


def permute(w, heads):
    """Hugging Face pairs (i, i + d/2) of a head, llama.cpp's "llama" pairs (2i, 2i + 1): rows change places."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def random_k_blocks(rng, kind, shape, scale):
    """Random blocks of a K type: gguf has no quantiser for them. Scales are finite and give weights of about `scale`."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    raw = rng.integers(0, 256, (shape[0], shape[1] // block, size), dtype=np.uint8)

    def put(at, value):
        raw[:, :, at:at + 2] = np.full(raw.shape[:2] + (1,), value, "<f2").view(np.uint8).reshape(raw.shape[:2] + (2,))
    if kind == gguf.GGMLQuantizationType.Q4_K:
        put(0, scale / 150), put(2, scale / 20)
    elif kind == gguf.GGMLQuantizationType.Q6_K:
        raw[:, :, 192:208] = rng.integers(1, 40, raw.shape[:2] + (16,), dtype=np.uint8)
        put(208, scale / 400)
    return raw.reshape(shape[0], -1)


def write_gguf(name, model, arch, types):
    """types(name, shape) gives the storage type; returns the model with what was stored, dequantised."""
    folder = fresh(name)
    c, rng = model.config, np.random.default_rng(5)
    w = gguf.GGUFWriter(os.path.join(folder, "model.gguf"), arch)
    w.add_block_count(c.num_hidden_layers)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    w.add_rope_freq_base(c.rope_parameters["rope_theta"])
    head_dim = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    w.add_key_length(head_dim)
    w.add_value_length(head_dim)
    w.add_rope_dimension_count(head_dim)
    rope = c.rope_parameters
    if rope["rope_type"] == "linear":
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(rope["factor"])
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope["rope_type"] == "llama3":
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
        plain = 1.0 / rope["rope_theta"] ** (torch.arange(0, head_dim, 2).float() / head_dim)
        scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](c)
        w.add_tensor("rope_freqs.weight", (plain / scaled).numpy().astype("<f4"))
    state = model.state_dict()
    for key, value in list(state.items()):
        if key == "lm_head.weight" and c.tie_word_embeddings:
            continue
        array, kind = value.numpy(), types(key, value.shape)
        heads = {"q_proj": c.num_attention_heads, "k_proj": c.num_key_value_heads}.get(key.split(".")[-2])
        turn = arch == "llama" and heads
        if turn:
            array = permute(array, heads)
        if kind in (gguf.GGMLQuantizationType.Q4_K, gguf.GGMLQuantizationType.Q6_K):
            data = random_k_blocks(rng, kind, array.shape, float(array.std()))
        else:
            data = gguf.quants.quantize(np.ascontiguousarray(array), kind)
        w.add_tensor(gguf_name(key), data, raw_dtype=kind)
        back = gguf.quants.dequantize(data, kind).astype(np.float32).reshape(array.shape)
        if turn:
            half = back.shape[0] // heads // 2
            back = back.reshape(heads, half, 2, *back.shape[1:]).swapaxes(1, 2).reshape(back.shape)
        state[key].copy_(torch.from_numpy(back.copy()))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    model.tie_weights()
    return folder, model


def ggufs():
    t = gguf.GGMLQuantizationType
    plain = lambda base, wide: lambda key, shape: base if len(shape) == 2 and shape[1] % wide == 0 else t.F32

    def small(**more):
        args = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=192, num_hidden_layers=2, num_attention_heads=6,
                    num_key_value_heads=3, head_dim=16, max_position_embeddings=1024, tie_word_embeddings=True, rms_norm_eps=1e-5)
        return {**args, **more}

    def make(cls, config, seed):
        config._attn_implementation = "eager"
        model = cls(config).eval()
        spread(model, seed)
        return model
    expect(*write_gguf("gguf-llama-f16", make(LlamaForCausalLM, LlamaConfig(**small(tie_word_embeddings=False, hidden_size=48)), 21), "llama", plain(t.F16, 1)))
    expect(*write_gguf("gguf-llama-q8_0", make(LlamaForCausalLM, LlamaConfig(**small(hidden_size=96, head_dim=32,
        rope_parameters={"rope_type": "llama3", "factor": 8.0, "rope_theta": 500.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 128})), 22), "llama", plain(t.Q8_0, 32)), lengths=[33, 600])
    expect(*write_gguf("gguf-qwen2-q4_0", make(Qwen2ForCausalLM, Qwen2Config(**{k: v for k, v in small(
        hidden_size=96, rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}).items() if k != "head_dim"}), 23),
        "qwen2", plain(t.Q4_0, 32)), lengths=[33, 600])
    expect(*write_gguf("gguf-qwen3-f32", make(Qwen3ForCausalLM, Qwen3Config(**small(hidden_size=32, rope_parameters={
        "rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0, "original_max_position_embeddings": 256})), 24),
        "qwen3", plain(t.F32, 1)), lengths=[33, 600])
    kinds = lambda key, shape: t.F32 if len(shape) == 1 else t.Q6_K if "down" in key or "embed" in key else t.Q4_K
    expect(*write_gguf("gguf-llama-q4_k", make(LlamaForCausalLM, LlamaConfig(**small(
        vocab_size=307, hidden_size=256, intermediate_size=256, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
        num_hidden_layers=1)), 25), "llama", kinds), lengths=[33, 150])


if __name__ == "__main__":
    only = sys.argv[1:]
    for part in (llamas, others, keys, ggufs):
        if not only or part.__name__ in only:
            part()
