#!/usr/bin/env python3
"""Tiny random SNAC decoders and a tiny random Orpheus, and what the snac package and transformers compute from them.

    python3 tests/reference/make_speech.py            writes tests/fixtures/speech

Needs torch, transformers, tokenizers, safetensors, gguf, snac and numpy. A SNAC folder has config.json, model.safetensors (its
decoder and codebooks), codes.json (a list a level) and two waveforms of those codes, f32: plain.f32 without noise, and
noisy.f32 with the noise in noise.f32 (every noise layer's rows, one layer after another). The Orpheus folder has a
tokenizer, a checkpoint (the same as a GGUF beside it), its snac/ and expected.json: texts with the prompt's ids, the tokens a greedy search with
repetition penalty gives when only the codes of a position and the end are allowed, and beside it their waveforms
(without noise), one after another, in expected.f32.
"""
import json
import os
import shutil

import gguf
import numpy as np
import snac
import torch
from make_models import gguf_name, permute
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, LogitsProcessor, LogitsProcessorList

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "speech")
torch.set_num_threads(1)


def fresh(name):
    folder = os.path.join(OUT, name)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    return folder


def dump(path, value, **kw):
    with open(path, "w") as f:
        json.dump(value, f, separators=(",", ":"), **kw)
        f.write("\n")


# ---- SNAC

class Noise:
    """torch.randn for the noise layers: none, or recorded draws."""

    def __init__(self, seed):
        self.g = None if seed is None else torch.Generator().manual_seed(seed)
        self.rows = []

    def __call__(self, shape, **kw):
        r = torch.zeros(shape) if self.g is None else torch.empty(shape).normal_(generator=self.g)
        self.rows.append(r.reshape(-1).numpy())
        return r


def decode(model, codes, seed=None):
    noise, real = Noise(seed), torch.randn
    snac.layers.torch.randn = noise
    try:
        with torch.no_grad():
            y = model.decode([torch.tensor([c], dtype=torch.long) for c in codes]) if codes[0] else torch.zeros(0)
    finally:
        snac.layers.torch.randn = real
    return y.reshape(-1).numpy().astype("<f4"), noise.rows


def random_snac(config, seed):
    torch.manual_seed(seed)
    model = snac.SNAC(**config).eval()
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("alpha"):
                p.copy_(0.3 + 2 * torch.rand(p.shape, generator=g))
            elif name.endswith("original0"):
                p.mul_(1 + 0.5 * torch.rand(p.shape, generator=g))
            elif name.endswith("bias"):
                p.copy_(0.1 * torch.randn(p.shape, generator=g))
    return model


def old_names(tensors):
    swap = {"parametrizations.weight.original0": "weight_g", "parametrizations.weight.original1": "weight_v"}
    return {n.replace(a, b) if a in n else n: t for n, t in tensors.items() for a, b in swap.items()
            if a in n or not any(k in n for k in swap)}


def save_snac(folder, config, model, names=None):
    os.makedirs(folder, exist_ok=True)
    dump(os.path.join(folder, "config.json"), config)
    tensors = {n: t.contiguous() for n, t in model.state_dict().items()
               if n.startswith("decoder.") or ("quantizer" in n and "in_proj" not in n)}
    save_file(names(tensors) if names else tensors, os.path.join(folder, "model.safetensors"))


def make_snac(name, config, frames, seed, names=None):
    folder = fresh(name)
    model = random_snac(config, seed)
    save_snac(folder, config, model, names)
    rng = np.random.default_rng(seed)
    strides = config["vq_strides"]
    codes = [rng.integers(0, config["codebook_size"], frames * strides[0] // s).tolist() for s in strides]
    dump(os.path.join(folder, "codes.json"), codes)
    plain, _ = decode(model, codes)
    plain.tofile(os.path.join(folder, "plain.f32"))
    if config["noise"]:
        noisy, rows = decode(model, codes, 5)
        noisy.tofile(os.path.join(folder, "noisy.f32"))
        np.concatenate(rows).astype("<f4").tofile(os.path.join(folder, "noise.f32"))
    print(f"{name}: {len(plain)} samples, deviation {plain.std():.3f}, largest {np.abs(plain).max():.3f}")


BASE = {"sampling_rate": 24000, "encoder_dim": 5, "encoder_rates": [2, 2], "decoder_dim": 36, "decoder_rates": [4, 3, 2],
        "attn_window_size": None, "codebook_size": 24, "codebook_dim": 3, "vq_strides": [4, 2, 1], "noise": True,
        "depthwise": True}
DENSE = {**BASE, "decoder_dim": 10, "decoder_rates": [3, 2], "vq_strides": [2, 1], "depthwise": False}
BARE = {**BASE, "decoder_dim": 22, "decoder_rates": [5], "vq_strides": [1], "noise": False, "latent_dim": 9}


# ---- Orpheus

SPECIALS = ["<|begin_of_text|>", "<|eot_id|>"]
CODES = 24


def make_tokenizer(folder):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {c: i for i, c in enumerate(alphabet)}
    merges = []
    for a, b in [("t", "h"), ("th", "e"), ("i", "n"), ("a", "r"), ("Ġ", "the"), ("o", "u"), ("e", "r"), ("t", "ar"), ("tar", "a")]:
        merges.append((a, b))
        vocab[a + b] = len(vocab)
    tok = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens([AddedToken(s, special=True) for s in SPECIALS])
    tok.add_special_tokens([AddedToken(f"<custom_token_{i}>", special=True) for i in range(10 + 7 * CODES)])
    bos = tok.token_to_id(SPECIALS[0])
    tok.post_processor = processors.TemplateProcessing(single=f"{SPECIALS[0]} $A", special_tokens=[(SPECIALS[0], bos)])
    tok.save(os.path.join(folder, "tokenizer.json"))
    dump(os.path.join(folder, "tokenizer_config.json"),
         {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": SPECIALS[0], "eos_token": SPECIALS[1]})
    return tok


class Legal(LogitsProcessor):
    """Only the codes of the position, and after the first frame the end."""

    def __init__(self, base, prompt):
        self.base, self.prompt, self.gap = base, prompt, np.inf

    def __call__(self, ids, scores):
        p = (ids.shape[1] - self.prompt) % 7
        low = self.base + 10 + CODES * p
        keep = torch.full_like(scores, -float("inf"))
        keep[:, low:low + CODES] = scores[:, low:low + CODES]
        if ids.shape[1] - self.prompt >= 7:
            keep[:, self.base + 2] = scores[:, self.base + 2]
        top = keep[0].sort().values[-2:]
        self.gap = min(self.gap, float(top[1] - top[0]))
        return keep


def levels(tokens, base):
    """Codes of whole frames, a list a level."""
    c = [t - base - 10 - CODES * (i % 7) for i, t in enumerate(tokens)]
    frames = [c[i:i + 7] for i in range(0, len(c) - 6, 7)]
    return [[f[0] for f in frames], [f[k] for f in frames for k in (1, 4)], [f[k] for f in frames for k in (2, 3, 5, 6)]]


def make_orpheus():
    folder = fresh("orpheus-tiny")
    tok = make_tokenizer(folder)
    vocab, base = tok.get_vocab_size(), tok.token_to_id("<custom_token_0>")
    config = LlamaConfig(vocab_size=vocab + 2, hidden_size=40, intermediate_size=72, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, head_dim=12, max_position_embeddings=512, tie_word_embeddings=True,
                         rms_norm_eps=1e-5, rope_theta=10000.0,
                         rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                       "original_max_position_embeddings": 64})
    model = LlamaForCausalLM(config).eval()
    g = torch.Generator().manual_seed(6)
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn(p.shape, generator=g)
            p.copy_(1 + 0.3 * r if "norm" in name else 0.6 * r if "embed" in name else 1.6 * r / p.shape[1] ** 0.5)
    model.save_pretrained(folder)
    for f in ("generation_config.json",):
        os.path.exists(os.path.join(folder, f)) and os.remove(os.path.join(folder, f))
    voice = random_snac(BASE, 31)
    save_snac(os.path.join(folder, "snac"), BASE, voice)
    cases, sound = [], []
    for who, text in [("tara", "Hi."), ("leo", "The quick brown fox. <laugh> Out there!"), ("tara", "<|eot_id|> is not obeyed"),
                      ("zoe", "Ünïcödé, 你好。"), ("jess", "one"), ("dan", "two words"), ("mia", "three")]:
        # A marker in a text is ordinary characters: encoded without the added tokens.
        plain = Tokenizer(tok.model)
        plain.pre_tokenizer = tok.pre_tokenizer
        said = [tok.token_to_id(SPECIALS[0])] + plain.encode(f"{who}: {text}").ids
        ids = [base + 3] + said + [tok.token_to_id(SPECIALS[1]), base + 4, base + 5, base + 1]
        legal = Legal(base, len(ids))
        with torch.no_grad():
            out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                                 logits_processor=LogitsProcessorList([legal]), repetition_penalty=1.1, do_sample=False,
                                 max_new_tokens=90, eos_token_id=base + 2, pad_token_id=base + 7)
        tokens = out[0, len(ids):].tolist()
        ended = tokens[-1] == base + 2
        wave, _ = decode(voice, levels(tokens[:-1] if ended else tokens, base))
        print(f"orpheus {who}: {len(ids)} ids, {len(tokens)} tokens, {'ended' if ended else 'cut'}, {len(wave)} samples, "
              f"smallest gap {legal.gap:.4f}, loudest {np.abs(wave).max(initial=0):.2f}")
        assert legal.gap > 1e-4
        cases.append({"voice": who, "text": text, "prompt": ids, "tokens": tokens, "samples": len(wave)})
        sound.append(wave)
    dump(os.path.join(folder, "expected.json"), {"max_tokens": 90, "base": base, "cases": cases})
    np.concatenate(sound).tofile(os.path.join(folder, "expected.f32"))
    make_gguf(model, tok)


def make_gguf(model, tok):
    """The same checkpoint and tokenizer as a GGUF of f32, whose vocoder is given by a setting."""
    c, base = model.config, tok.token_to_id("<custom_token_0>")
    w = gguf.GGUFWriter(os.path.join(fresh("orpheus-gguf"), "model.gguf"), "llama")
    w.add_block_count(c.num_hidden_layers)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_key_length(c.head_dim)
    w.add_value_length(c.head_dim)
    w.add_rope_dimension_count(c.head_dim)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    w.add_vocab_size(c.vocab_size)
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    rope = c.rope_parameters
    plain = 1.0 / rope["rope_theta"] ** (torch.arange(0, c.head_dim, 2).float() / c.head_dim)
    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](c)
    w.add_tensor("rope_freqs.weight", (plain / scaled).numpy().astype("<f4"))
    tokens = [tok.id_to_token(i) for i in range(tok.get_vocab_size())]
    spare = [f"[unused{i}]" for i in range(c.vocab_size - len(tokens))]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(tokens + spare)
    first = tok.token_to_id(SPECIALS[0])
    w.add_token_types([gguf.TokenType.NORMAL if i < first else gguf.TokenType.CONTROL for i in range(len(tokens))] +
                      [gguf.TokenType.UNUSED] * len(spare))
    w.add_token_merges([" ".join(m) for m in json.loads(tok.to_str())["model"]["merges"]])
    w.add_bos_token_id(first)
    w.add_eos_token_id(base - 1)
    w.add_add_bos_token(True)
    for key, value in model.state_dict().items():
        if key == "lm_head.weight":
            continue
        heads = {"q_proj": c.num_attention_heads, "k_proj": c.num_key_value_heads}.get(key.split(".")[-2])
        array = value.numpy()
        w.add_tensor(gguf_name(key), np.ascontiguousarray(permute(array, heads) if heads else array))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    make_snac("snac-tiny", BASE, 9, 21)
    make_snac("snac-dense", DENSE, 11, 22, old_names)
    make_snac("snac-bare", BARE, 13, 23)
    make_orpheus()
