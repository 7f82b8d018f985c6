#!/usr/bin/env python3
"""Tiny random Stable Diffusion pipelines and what diffusers and transformers compute from them.

    python3 tests/reference/make_sdnet.py            writes tests/fixtures/sd/{tiny-sd1,tiny-sd2,tiny-odd,vae-legacy}

Needs torch, transformers, diffusers, safetensors and numpy. A pipeline folder is complete (model_index.json, tokenizer,
scheduler and the three networks); networks.json and networks.bin beside it hold inputs and outputs of each network, f32,
at the offsets the .json names. Weights of tiny-sd1 are f16, of tiny-sd2 f32 with a bf16 UNet; all sums are f32.
vae-legacy is tiny-sd1's decoder under the attention names older files have, as 1x1 convolutions.
"""
import json
import os
import shutil

import numpy as np
import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from safetensors.torch import load_file, save_file
from transformers import CLIPTextConfig, CLIPTextModel

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "sd")
torch.set_num_threads(1)
START, END = "<|startoftext|>", "<|endoftext|>"
TEXT = ("a photo of an astronaut riding a horse on the moon, a painting of the small red house by the sea at night, "
        "the cat and the dog in a green garden with flowers, oil painting, highly detailed, blurry, low quality, "
        "mountain landscape with a river and trees in the morning light").lower()


def byte_letters():
    """The printable stand-ins of the 256 bytes that byte-level BPE uses, in the order of CLIP's vocabulary."""
    kept = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    letters = {b: chr(b) for b in kept}
    spare = 0
    for b in range(256):
        if b not in letters:
            letters[b] = chr(256 + spare)
            spare += 1
    order = kept + [b for b in range(256) if b not in kept]
    return [letters[b] for b in order]


def learn(count):
    words = [list(w.strip(","))[:-1] + [w.strip(",")[-1] + "</w>"] for w in TEXT.split()]
    merges = []
    while len(merges) < count:
        pairs = {}
        for w in words:
            for p in zip(w, w[1:]):
                pairs[p] = pairs.get(p, 0) + 1
        best = max(pairs, key=lambda p: (pairs[p], p))
        merges.append(best)
        for k, w in enumerate(words):
            out = []
            for s in w:
                if out and (out[-1], s) == best:
                    out[-1] += s
                else:
                    out.append(s)
            words[k] = out
    return merges


def tokenizer(folder, pad):
    os.makedirs(folder)
    letters, merges = byte_letters(), learn(80)
    names = letters + [c + "</w>" for c in letters] + ["".join(m) for m in merges] + [START, END]
    vocab = {n: i for i, n in enumerate(names)}
    assert len(vocab) == len(names)
    with open(os.path.join(folder, "vocab.json"), "w", encoding="utf-8") as f:
        json.dump(vocab, f, ensure_ascii=False, separators=(",", ":"))
    with open(os.path.join(folder, "merges.txt"), "w", encoding="utf-8") as f:
        f.write("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges))
    special = {"bos_token": START, "eos_token": END, "unk_token": END, "pad_token": pad}
    write_json(os.path.join(folder, "special_tokens_map.json"), special)
    write_json(os.path.join(folder, "tokenizer_config.json"),
               {"tokenizer_class": "CLIPTokenizer", "model_max_length": 77, "do_lower_case": True,
                "add_prefix_space": False, "errors": "replace", **special})
    return vocab


def write_json(path, value):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=1)
        f.write("\n")


def spread(model, seed):
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            r = torch.randn(p.shape, generator=g)
            if "norm" in name and name.endswith("weight"):
                p.copy_(1 + 0.2 * r)
            elif p.ndim == 1:
                p.copy_(0.2 * r)
            elif "embedding" in name and "time" not in name:
                p.copy_(0.5 * r)
            else:
                p.copy_(1.2 * r / (p[0].numel() ** 0.5))
    return model.eval()


def save(model, folder, dtype):
    """Stores the weights as dtype, and makes the model compute with exactly those."""
    model.to(dtype).save_pretrained(folder, safe_serialization=True)
    model.to(torch.float32)


SD1 = {
    "clip": dict(hidden_size=36, intermediate_size=100, num_hidden_layers=3, num_attention_heads=3,
                 hidden_act="quick_gelu"),
    "unet": dict(block_out_channels=(12, 20, 24, 24), layers_per_block=2, cross_attention_dim=36,
                 attention_head_dim=4, norm_num_groups=4, sample_size=8,
                 down_block_types=("CrossAttnDownBlock2D",) * 3 + ("DownBlock2D",),
                 up_block_types=("UpBlock2D",) + ("CrossAttnUpBlock2D",) * 3),
    "pad": END, "dtypes": (torch.float16, torch.float16, torch.float16), "index": "EulerAncestralDiscreteScheduler",
    "scheduler": {"prediction_type": "epsilon"},
}
SD2 = {
    "clip": dict(hidden_size=20, intermediate_size=60, num_hidden_layers=2, num_attention_heads=4, hidden_act="gelu"),
    "unet": dict(block_out_channels=(20, 24, 40), layers_per_block=1, cross_attention_dim=20,
                 attention_head_dim=[2, 3, 5], norm_num_groups=4, sample_size=12, use_linear_projection=True,
                 upcast_attention=True,
                 down_block_types=("CrossAttnDownBlock2D",) * 2 + ("DownBlock2D",),
                 up_block_types=("UpBlock2D",) + ("CrossAttnUpBlock2D",) * 2),
    "pad": "!", "dtypes": (torch.float32, torch.bfloat16, torch.float32), "index": "EulerDiscreteScheduler",
    "scheduler": {"prediction_type": "v_prediction"},
}
# Three numbers a latent and four pixels of its side; levels that attend on the way down are not those on the way up.
ODD = {
    "clip": dict(hidden_size=14, intermediate_size=33, num_hidden_layers=1, num_attention_heads=2, hidden_act="gelu"),
    "unet": dict(in_channels=3, out_channels=3, block_out_channels=(12, 6), layers_per_block=[2, 1], cross_attention_dim=14,
                 attention_head_dim=[3, 2], norm_num_groups=3, sample_size=9, transformer_layers_per_block=[1, 2],
                 down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D")),
    "vae": dict(block_out_channels=(4, 6, 8), layers_per_block=2, norm_num_groups=2, latent_channels=3, scaling_factor=0.3),
    "pad": END, "dtypes": (torch.bfloat16, torch.float16, torch.bfloat16), "index": "DDIMScheduler",
    "scheduler": {"prediction_type": "epsilon", "clip_sample": False},
}
SD_VAE = dict(block_out_channels=(8, 12, 16, 16), layers_per_block=1, norm_num_groups=4, latent_channels=4, scaling_factor=0.18215)


class Record:
    def __init__(self):
        self.items, self.data, self.at = [], [], 0

    def array(self, t):
        a = np.ascontiguousarray(t.detach().to(torch.float32).numpy())
        at = self.at
        self.data.append(a.reshape(-1))
        self.at += a.size
        return at

    def write(self, folder):
        with open(os.path.join(folder, "networks.json"), "w", encoding="utf-8") as f:
            f.write("[" + ",\n".join(json.dumps(i, separators=(",", ":")) for i in self.items) + "]\n")
        np.concatenate(self.data).astype("<f4").tofile(os.path.join(folder, "networks.bin"))


def run_clip(rec, model, vocab, seed):
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, len(vocab) - 2, (2, 77), generator=g)
    ids[:, 0] = vocab[START]
    ids[0, 9:] = vocab[END]
    ids[1, 76] = vocab[END]
    with torch.no_grad():
        out = model(ids).last_hidden_state
    rec.items.append({"net": "clip", "n": 2, "ids": ids.reshape(-1).tolist(), "out": rec.array(out)})
    return out


def run_unet(rec, model, states, seed):
    g = torch.Generator().manual_seed(seed)
    for h, w, n, t in [(8, 8, 2, 981), (8, 12, 1, 1), (5, 7, 2, 499.5), (9, 6, 1, 20), (1, 3, 1, 700), (20, 27, 1, 333),
                       (33, 18, 2, 801)]:
        x = torch.randn((n, 4, h, w), generator=g)
        with torch.no_grad():
            out = model(x, t, encoder_hidden_states=states[:n]).sample
        rec.items.append({"net": "unet", "n": n, "h": h, "w": w, "t": t, "x": rec.array(x),
                          "states": rec.array(states[:n]), "out": rec.array(out)})


def run_vae(rec, model, seed):
    g = torch.Generator().manual_seed(seed)
    for h, w in [(3, 5), (8, 4), (1, 1)]:
        z = torch.randn((1, 4, h, w), generator=g) * model.config.scaling_factor * 2
        with torch.no_grad():
            out = model.decode(z / model.config.scaling_factor).sample * 0.5 + 0.5
        rec.items.append({"net": "vae", "h": h, "w": w, "x": rec.array(z), "out": rec.array(out)})


def pipeline(name, spec, seed):
    folder = os.path.join(OUT, name)
    shutil.rmtree(folder, ignore_errors=True)
    vocab = tokenizer(os.path.join(folder, "tokenizer"), spec["pad"])
    pad = vocab["!" if spec["pad"] == "!" else END]
    clip = spread(CLIPTextModel(CLIPTextConfig(
        vocab_size=len(vocab), max_position_embeddings=77, bos_token_id=vocab[START], eos_token_id=vocab[END],
        pad_token_id=pad, projection_dim=16, **spec["clip"])), seed)
    unet = spread(UNet2DConditionModel(**spec["unet"]), seed + 1)
    dims = spec.get("vae", SD_VAE)
    levels = len(dims["block_out_channels"])
    vae = spread(AutoencoderKL(sample_size=64, down_block_types=("DownEncoderBlock2D",) * levels,
                               up_block_types=("UpDecoderBlock2D",) * levels, **dims), seed + 2)
    for part, model, dtype in zip(("text_encoder", "unet", "vae"), (clip, unet, vae), spec["dtypes"]):
        save(model, os.path.join(folder, part), dtype)
    write_json(os.path.join(folder, "scheduler", "scheduler_config.json"),
               {"_class_name": spec["index"], "_diffusers_version": "0.42.0", "beta_end": 0.012,
                "beta_schedule": "scaled_linear", "beta_start": 0.00085, "num_train_timesteps": 1000,
                "steps_offset": 1, "timestep_spacing": "leading", "trained_betas": None, **spec["scheduler"]})
    write_json(os.path.join(folder, "model_index.json"),
               {"_class_name": "StableDiffusionPipeline", "_diffusers_version": "0.42.0",
                "feature_extractor": [None, None], "image_encoder": [None, None], "requires_safety_checker": False,
                "safety_checker": [None, None], "scheduler": ["diffusers", spec["index"]],
                "text_encoder": ["transformers", "CLIPTextModel"], "tokenizer": ["transformers", "CLIPTokenizer"],
                "unet": ["diffusers", "UNet2DConditionModel"], "vae": ["diffusers", "AutoencoderKL"]})
    if spec is ODD:
        return  # as a whole only (make_sdpipe.py)
    rec = Record()
    states = run_clip(rec, clip, vocab, seed + 3)
    run_unet(rec, unet, states, seed + 4)
    run_vae(rec, vae, seed + 5)
    rec.write(folder)


def legacy():
    source, folder = os.path.join(OUT, "tiny-sd1", "vae"), os.path.join(OUT, "vae-legacy")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    shutil.copy(os.path.join(source, "config.json"), folder)
    names = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}
    out = {}
    for k, v in load_file(os.path.join(source, "diffusion_pytorch_model.safetensors")).items():
        if k.startswith("encoder") or k.startswith("quant_conv"):
            continue
        if ".attentions.0." in k:
            for new, old in names.items():
                k = k.replace(f".{new}.", f".{old}.")
            v = v[:, :, None, None].contiguous() if v.ndim == 2 else v
        out[k] = v
    save_file(out, os.path.join(folder, "diffusion_pytorch_model.safetensors"), {"format": "pt"})


pipeline("tiny-sd1", SD1, 10)
pipeline("tiny-sd2", SD2, 20)
pipeline("tiny-odd", ODD, 30)
legacy()
