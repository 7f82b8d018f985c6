#!/usr/bin/env python3
"""Tiny random checkpoints of Qwen3.5, LoRA adapters for them and for Llama, and what transformers and peft compute.

    python3 tests/reference/make_qwen35.py            writes tests/fixtures/models/{qwen35-*,gguf-qwen35-*,lora-*}

Needs what make_models.py needs (whose helpers it uses, and whose llama-f32 it reads), and peft. A lora-* folder holds an
adapter, and the logits of its base with the adapter on. The sizes are odd on purpose: heads of 24 of which 6 turn, value
heads of 36 in the delta net (two blocks of columns), three value heads for one key head.
"""
import copy
import json
import os
import sys

import gguf
import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3_5Config, Qwen3_5ForCausalLM, Qwen3_5ForConditionalGeneration, Qwen3_5TextConfig

import make_models
from make_models import OUT, expect, fresh, reload

LENGTHS = [1, 63, 64, 65, 130, 200]
TEXT = dict(vocab_size=509, hidden_size=40, intermediate_size=72, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=2,
            head_dim=24, max_position_embeddings=1024, linear_conv_kernel_dim=4, linear_key_head_dim=20, linear_value_head_dim=36,
            linear_num_key_heads=2, linear_num_value_heads=6, eos_token_id=3,
            rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25, "mrope_section": [1, 1, 1],
                             "mrope_interleaved": True})


def spread(model, seed):
    """As in make_models, for norms around zero and the delta net's own numbers."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn(p.shape, generator=g)
            if "linear_attn.norm" in name:
                p.copy_(1 + 0.3 * r)
            elif "norm" in name or "bias" in name:
                p.copy_(0.3 * r)
            elif "A_log" in name:
                p.copy_(torch.log(torch.rand(p.shape, generator=g) * 1.5 + 0.02))
            elif "conv1d" in name:
                p.copy_(0.6 * r)
            elif "embed" in name or "lm_head" in name:
                p.copy_(0.6 * r)
            else:
                p.copy_(1.6 * r / p.shape[1] ** 0.5)


def save(name, cls, config, seed, dtype):
    folder = fresh(name)
    config._attn_implementation = "eager"
    model = cls(config)
    spread(model, seed)
    model.to(dtype).save_pretrained(folder)
    os.path.exists(f := os.path.join(folder, "generation_config.json")) and os.remove(f)
    return folder


def checkpoints():
    folder = save("qwen35-f32", Qwen3_5ForCausalLM, Qwen3_5TextConfig(**TEXT, tie_word_embeddings=True), 31, torch.float32)
    expect(folder, reload(Qwen3_5ForCausalLM, folder), lengths=LENGTHS)

    # With a vision tower beside it, and the head that predicts a second token: neither is used for text.
    text = {**TEXT, "num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "linear_conv_kernel_dim": 3, "linear_num_key_heads": 3, "linear_num_value_heads": 3, "linear_value_head_dim": 32}
    vision = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, out_hidden_size=40, patch_size=2, num_position_embeddings=16)
    config = Qwen3_5Config(text_config=text, vision_config=vision, image_token_id=500, video_token_id=501, vision_start_token_id=502,
                           vision_end_token_id=503, tie_word_embeddings=False)
    folder = save("qwen35-vl-bf16", Qwen3_5ForConditionalGeneration, config, 32, torch.bfloat16)
    tensors = load_file(f := os.path.join(folder, "model.safetensors"))
    tensors["mtp.fc.weight"] = torch.zeros(40, 80, dtype=torch.bfloat16)
    save_file(tensors, f, metadata={"format": "pt"})
    expect(folder, reload(Qwen3_5ForConditionalGeneration, folder), lengths=[33, 130])


def adapter(name, base, cls, seed, lengths, **config):
    """A random adapter whose B is not zero, saved as peft saves it."""
    load = lambda: cls.from_pretrained(os.path.join(OUT, base), dtype=torch.float32, attn_implementation="eager")
    adapt(name, base, load, seed, lengths, **config)


def adapt(name, base, load, seed, lengths, **config):
    folder = fresh(name)
    model = get_peft_model(load(), LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **config))
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "lora_" in key:
                p.copy_(torch.randn(p.shape, generator=g) / p.shape[1] ** 0.5)
    model.save_pretrained(folder)
    os.path.exists(f := os.path.join(folder, "README.md")) and os.remove(f)
    with open(f := os.path.join(folder, "adapter_config.json")) as j:
        saved = json.load(j)
    saved["base_model_name_or_path"] = base
    if not isinstance(saved["target_modules"], str):
        saved["target_modules"].sort()
    with open(f, "w") as j:
        json.dump(saved, j, indent=2)
        j.write("\n")
    loaded = PeftModel.from_pretrained(load(), folder).eval()
    expect(folder, loaded, lengths=lengths)


def adapters():
    everywhere = ["in_proj_qkv", "in_proj_z", "out_proj", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    adapter("lora-qwen35", "qwen35-f32", Qwen3_5ForCausalLM, 41, [33, 130], r=4, lora_alpha=8, target_modules=everywhere)
    adapter("lora-qwen35-vl", "qwen35-vl-bf16", Qwen3_5ForConditionalGeneration, 42, [65], r=3, lora_alpha=5, use_rslora=True,
            target_modules=r".*language_model.*\.(in_proj_qkv|out_proj|v_proj|down_proj)|lm_head")
    adapter("lora-llama", "llama-f32", LlamaForCausalLM, 43, [33, 150], r=5, lora_alpha=7, target_modules=["q_proj", "o_proj", "up_proj"],
            rank_pattern={"layers.1.mlp.up_proj": 9}, alpha_pattern={"o_proj": 3})


def fold(x, heads, size, groups):
    """Value heads in GGUF's order: head r * groups + k holds head k * (heads / groups) + r."""
    return x.reshape(groups, heads // groups, size, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)


NAMES = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
PARTS = {"input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "post_attention_norm.weight",
         "self_attn.q_proj.weight": "attn_q.weight", "self_attn.k_proj.weight": "attn_k.weight", "self_attn.v_proj.weight": "attn_v.weight",
         "self_attn.o_proj.weight": "attn_output.weight", "self_attn.q_norm.weight": "attn_q_norm.weight",
         "self_attn.k_norm.weight": "attn_k_norm.weight", "mlp.gate_proj.weight": "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight",
         "mlp.down_proj.weight": "ffn_down.weight", "linear_attn.in_proj_qkv.weight": "attn_qkv.weight",
         "linear_attn.in_proj_z.weight": "attn_gate.weight", "linear_attn.in_proj_b.weight": "ssm_beta.weight",
         "linear_attn.in_proj_a.weight": "ssm_alpha.weight", "linear_attn.conv1d.weight": "ssm_conv1d.weight", "linear_attn.A_log": "ssm_a",
         "linear_attn.dt_bias": "ssm_dt.bias", "linear_attn.norm.weight": "ssm_norm.weight", "linear_attn.out_proj.weight": "ssm_out.weight"}


def gguf_tensor(part, x, c):
    keys, heads, groups, size = c.linear_num_key_heads * c.linear_key_head_dim, c.linear_num_value_heads, c.linear_num_key_heads, c.linear_value_head_dim
    turn = lambda y, n: fold(y, heads, n, groups)
    if part in ("linear_attn.in_proj_qkv.weight", "linear_attn.conv1d.weight"):
        x = x.reshape(x.shape[0], x.shape[-1])
        return np.concatenate([x[:2 * keys], turn(x[2 * keys:], size)])
    if part == "linear_attn.in_proj_z.weight":
        return turn(x, size)
    if part in ("linear_attn.in_proj_b.weight", "linear_attn.in_proj_a.weight", "linear_attn.dt_bias"):
        return turn(x, 1)
    if part == "linear_attn.A_log":
        return turn(-np.exp(x), 1)
    if part == "linear_attn.out_proj.weight":
        return np.ascontiguousarray(turn(np.ascontiguousarray(x.T), size).T)
    return x + 1 if part.endswith("norm.weight") and part != "linear_attn.norm.weight" else x


def ggufs():
    config = Qwen3_5TextConfig(**{**TEXT, "hidden_size": 64, "intermediate_size": 96, "linear_value_head_dim": 32, "linear_key_head_dim": 16,
                                  "num_attention_heads": 4, "head_dim": 32}, tie_word_embeddings=False)
    config._attn_implementation = "eager"
    model = Qwen3_5ForCausalLM(config).eval()
    spread(model, 33)
    folder, c = fresh("gguf-qwen35-q8_0"), config
    w = gguf.GGUFWriter(os.path.join(folder, "model.gguf"), "qwen35")
    w.add_block_count(c.num_hidden_layers)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_key_length(c.head_dim)
    w.add_value_length(c.head_dim)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    w.add_rope_freq_base(c.rope_parameters["rope_theta"])
    w.add_rope_dimension_count(int(c.head_dim * 0.25))
    w.add_rope_dimension_sections([2, 1, 1, 0])
    w.add_ssm_conv_kernel(c.linear_conv_kernel_dim)
    w.add_ssm_state_size(c.linear_key_head_dim)
    w.add_ssm_group_count(c.linear_num_key_heads)
    w.add_ssm_time_step_rank(c.linear_num_value_heads)
    w.add_ssm_inner_size(c.linear_num_value_heads * c.linear_value_head_dim)
    t, state = gguf.GGMLQuantizationType, model.state_dict()
    for key, value in list(state.items()):
        part = key.split(".", 3)[3] if key.startswith("model.layers.") else key
        name = NAMES.get(key) or f"blk.{key.split('.')[2]}.{PARTS[part]}"
        x = value.numpy()
        kind = t.Q8_0 if x.ndim == 2 and x.shape[1] % 32 == 0 and "out_proj" not in part else t.F32
        if kind == t.Q8_0:  # whole rows change places, so what is stored is what the model computes with
            x = gguf.quants.dequantize(gguf.quants.quantize(x, kind), kind).reshape(x.shape)
            state[key].copy_(torch.from_numpy(x.copy()))
        data = gguf.quants.quantize(np.ascontiguousarray(gguf_tensor(part if key not in NAMES else "x." + key, x, c).astype(np.float32)), kind)
        w.add_tensor(name, data, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    expect(folder, model, lengths=[33, 130])
    # Every matrix of the delta net, so that each of its orders is seen.
    adapt("lora-gguf-qwen35", "gguf-qwen35-q8_0", lambda: copy.deepcopy(model), 44, [33, 130], r=4, lora_alpha=8, target_modules=[
        "in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj", "q_proj", "o_proj", "up_proj"])

    # The model behind gguf-llama-f16 (make_models.py).
    config = LlamaConfig(vocab_size=make_models.VOCAB, hidden_size=48, intermediate_size=192, num_hidden_layers=2, num_attention_heads=6,
                         num_key_value_heads=3, head_dim=16, max_position_embeddings=1024, tie_word_embeddings=False, rms_norm_eps=1e-5)
    config._attn_implementation = "eager"
    llama = LlamaForCausalLM(config).eval()
    make_models.spread(llama, 21)
    with torch.no_grad():
        for p in llama.parameters():
            if p.ndim == 2:
                p.copy_(p.half().float())
    adapt("lora-gguf-llama", "gguf-llama-f16", lambda: copy.deepcopy(llama), 45, [33], r=4, lora_alpha=8,
          target_modules=["q_proj", "k_proj", "v_proj", "down_proj"])


TEMPLATE = """{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% else %}{{ '<think>\\n' }}{% endif %}{% endif -%}
"""


def chat():
    """qwen35-f32 with a tokenizer of bytes and a template that opens a thought; config.json names another end than chats have."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    alphabet = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    t = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(x, special=True, normalized=False) for x in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    t.add_tokens([AddedToken(x, normalized=False) for x in ("<think>", "</think>")])
    folder = fresh("qwen35-chat")
    t.save(os.path.join(folder, "tokenizer.json"), pretty=False)
    os.symlink(os.path.join("..", "qwen35-f32", "model.safetensors"), os.path.join(folder, "model.safetensors"))
    with open(os.path.join(OUT, "qwen35-f32", "config.json")) as f:
        config = json.load(f)
    config["eos_token_id"] = t.token_to_id("<|endoftext|>")
    config["max_position_embeddings"] = 4096
    for name, content in (("config.json", config), ("tokenizer_config.json", {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>",
                          "pad_token": "<|endoftext|>", "add_bos_token": False, "chat_template": TEMPLATE})):
        with open(os.path.join(folder, name), "w") as f:
            json.dump(content, f, indent=2)
            f.write("\n")


if __name__ == "__main__":
    only = sys.argv[1:]
    for part in (checkpoints, adapters, ggufs, chat):
        if not only or part.__name__ in only:
            part()
