"""Trains the bundled model from nothing and writes it as GGUF.

    pip install torch transformers tokenizers gguf
    python server/demo/train/train.py --work DIR [--minutes 60] [--out server/demo/oxinfer-tiny.gguf]

The model has the Qwen3 architecture (8 layers, width 192, 6 query and 2 key/value heads of 32, tied embedding), its own
byte-level BPE of 1024 tokens trained on the same text, and its own chat template. Work is saved in DIR every few
minutes and taken up again; the learning rate falls to zero over --steps. Weights are written as Q8_0.
"""

import argparse
import os
import random
import time

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers, Regex
from transformers import Qwen3Config, Qwen3ForCausalLM

import corpus

SPECIAL = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
VOCAB, LENGTH, BATCH = 1024, 256, 16
# The published pattern of Qwen2; GGUF files name it "qwen2".
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

TEMPLATE = """\
{%- for message in messages %}
    {%- if message.role == 'system' or message.role == 'developer' %}
        {{- '<|system|>' + message.content + '<|end|>' }}
    {%- elif message.role == 'user' %}
        {{- '<|user|>' + message.content + '<|end|>' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|assistant|>' + (message.content or '') + '<|end|>' }}
    {%- else %}
        {{- raise_exception('This model knows the roles system, user and assistant, not ' + message.role) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>' }}
{%- endif %}
"""


def train_tokenizer():
    rng = random.Random(1)
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tok.train_from_iterator((text for _ in range(20000) for _, text in corpus.conversation(rng)), trainer)
    return tok


def sample(rng, tok):
    """One conversation as ids, and the weight of predicting each of them."""
    ids, weight = [], []
    for role, text in corpus.conversation(rng):
        body = tok.encode(text, add_special_tokens=False).ids
        ids += [tok.token_to_id(f"<|{role}|>")] + body + [tok.token_to_id("<|end|>")]
        weight += [0.0] + [1.0 if role == "assistant" else 0.1] * (len(body) + 1)
    return ids, weight


def batch(rng, tok):
    """BATCH rows of whole conversations, one or several to a row; what is left over is padding of weight 0."""
    x = torch.zeros(BATCH, LENGTH + 1, dtype=torch.long)
    w = torch.zeros(BATCH, LENGTH + 1)
    for row in range(BATCH):
        at = 0
        while at < LENGTH - 40:
            ids, weight = sample(rng, tok)
            n = min(len(ids), LENGTH + 1 - at)
            if at and n < len(ids):
                break
            x[row, at:at + n] = torch.tensor(ids[:n])
            w[row, at:at + n] = torch.tensor(weight[:n])
            at += n
    return x, w


def make_model():
    torch.manual_seed(1)
    return Qwen3ForCausalLM(Qwen3Config(
        vocab_size=VOCAB, hidden_size=192, intermediate_size=512, num_hidden_layers=8, num_attention_heads=6, num_key_value_heads=2,
        head_dim=32, max_position_embeddings=1024, rope_theta=10000.0, rms_norm_eps=1e-6, tie_word_embeddings=True,
        initializer_range=0.05))


def train(work, minutes, steps, tok):
    model = make_model()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.02)
    path, step = os.path.join(work, "state.pt"), 0
    if os.path.exists(path):
        state = torch.load(path)
        model.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
        step = state["step"]
    end = time.time() + 60 * minutes
    saved = shown = time.time()
    while step < steps and time.time() < end:
        x, w = batch(random.Random(step), tok)
        for g in opt.param_groups:
            g["lr"] = 2e-3 * min(1, (step + 1) / 100) * max(0.01, 1 - step / steps)
        logits = model(x[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten(), reduction="none")
        weight = w[:, 1:].flatten()
        loss = (loss * weight).sum() / weight.sum()
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        step += 1
        if time.time() - shown > 20:
            shown = time.time()
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if time.time() - saved > 180 or step == steps:
            saved = time.time()
            torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "step": step}, path + ".part")
            os.replace(path + ".part", path)
    return model


def export(model, tok, out):
    w = gguf.GGUFWriter(out, "qwen3")
    c = model.config
    w.add_name("oxinfer-tiny")
    w.add_description("Answers questions about the oxinferd server. Trained by server/demo/train.")
    w.add_block_count(c.num_hidden_layers)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_key_length(c.head_dim)
    w.add_value_length(c.head_dim)
    w.add_rope_freq_base(10000.0)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    w.add_vocab_size(VOCAB)
    w.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    tokens = [tok.id_to_token(i) for i in range(VOCAB)]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tokens)
    w.add_token_types([gguf.TokenType.CONTROL if t in SPECIAL else gguf.TokenType.NORMAL for t in tokens])
    import json
    w.add_token_merges([" ".join(m) if isinstance(m, list) else m for m in json.loads(tok.to_str())["model"]["merges"]])
    w.add_eos_token_id(tok.token_to_id("<|end|>"))
    w.add_add_bos_token(False)
    w.add_chat_template(TEMPLATE)
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}
    for i in range(c.num_hidden_layers):
        for hf, gg in [("input_layernorm", "attn_norm"), ("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k"),
                       ("self_attn.v_proj", "attn_v"), ("self_attn.o_proj", "attn_output"), ("self_attn.q_norm", "attn_q_norm"),
                       ("self_attn.k_norm", "attn_k_norm"), ("post_attention_layernorm", "ffn_norm"), ("mlp.gate_proj", "ffn_gate"),
                       ("mlp.up_proj", "ffn_up"), ("mlp.down_proj", "ffn_down")]:
            names[f"model.layers.{i}.{hf}"] = f"blk.{i}.{gg}"
    for name, value in model.state_dict().items():
        stem = name.removesuffix(".weight")
        if stem not in names:
            continue
        a = value.numpy().astype(np.float32)
        if a.ndim == 2:
            q = gguf.quants.quantize(a, gguf.GGMLQuantizationType.Q8_0)
            w.add_tensor(names[stem] + ".weight", q, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        else:
            w.add_tensor(names[stem] + ".weight", a)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


@torch.no_grad()
def answer(model, tok, question, most=90):
    ids = [tok.token_to_id("<|user|>")] + tok.encode(question).ids + [tok.token_to_id("<|end|>"), tok.token_to_id("<|assistant|>")]
    start = len(ids)
    while len(ids) < start + most:
        nxt = int(model(torch.tensor([ids])).logits[0, -1].argmax())
        if nxt == tok.token_to_id("<|end|>"):
            break
        ids.append(nxt)
    return tok.decode(ids[start:])


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--work", required=True)
    p.add_argument("--minutes", type=float, default=60)
    p.add_argument("--steps", type=int, default=3000)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--out", default="server/demo/oxinfer-tiny.gguf")
    a = p.parse_args()
    os.makedirs(a.work, exist_ok=True)
    torch.set_num_threads(a.threads)
    path = os.path.join(a.work, "tokenizer.json")
    if os.path.exists(path):
        tok = Tokenizer.from_file(path)
    else:
        tok = train_tokenizer()
        tok.save(path)
    model = train(a.work, a.minutes, a.steps, tok)
    model.eval()
    for q in ["How do I load a model?", "which endpoints are there", "Hello", "What is the capital of France?", "how can i set an api key?", "who are you?"]:
        print(f"{q}\n  {answer(model, tok, q)}", flush=True)
    export(model, tok, a.out)
    print("written", a.out, os.path.getsize(a.out))


if __name__ == "__main__":
    main()
