#!/usr/bin/env python3
"""Tiny decision bundles and the probabilities that transformers and peft compute from them.

    python3 tests/reference/make_decide.py            writes tests/fixtures/decide

Needs torch, transformers, peft, tokenizers, safetensors and numpy. One tokenizer (byte-level BPE, in which only some pairs of
letters are tokens) for two bases: a Qwen3.5 and a Llama.

    judge/      Qwen3.5 with judge_config.json, head.safetensors, adapter/: a head of its own; past 16 options the output head
    lm/         adapter_vllm/ and calibration.json alone, to be put beside judge/'s base: LM-head readout, LoRA on the head too
    plain/      the same for merged/'s base, without calibration.json: all temperatures 1
    merged/     Llama with decision_head.json: more trained options than 16, no adapter; also what "labels" is tested with
    chat/       merged/'s weights with a chat template and without a bundle

expected.json: for each bundle the kept labels, and cases with prompt, ids and probabilities; json.dumps and float renderings
for the server's tests; numbers that follow from the definition alone (bias before temperature).
"""
import json
import os
import shutil

import jinja2
import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3_5ForCausalLM, Qwen3_5TextConfig

import make_models
import make_qwen35

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "decide")
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
KINDS = ["noul", "score", "choice"]
WORDS = ["false", "true", "0", "1", "2", "3", "4", "5"] + [chr(65 + i) for i in range(26)]
T = {"noul": 1.3, "choice": 0.7, "score": 1.1}
SEQUENCE = [chr(65 + i) for i in range(26)] + [chr(65 + i) + chr(65 + k) for i in range(26) for k in range(26)]
torch.set_num_threads(1)


TEMPLATE = ("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>"
            "{% if not enable_thinking | default(true) %}<think></think>{% endif %}{% endif %}")
HOW = {"noul": "Answer with one word, true or false.", "score": "Answer with one digit, 0 to 5.",
       "choice": "Answer with the label of one option and nothing else."}


def prompt(kind, state, question, options, last="[decision]:"):
    lines = {"noul": ["false", "true"], "score": [str(i) for i in range(6)]}.get(kind)
    if lines is None:
        lines = [f"{l}) {o}" for l, o in zip(LABELS, options)]
    return f"[kind] {kind}\n[state] {state}\n[question] {question}\n[options]\n" + "".join(x + "\n" for x in lines) + last


def message(kind, state, question, options):
    """What a chat model is asked, through its template."""
    content = prompt(kind, state, question, options, HOW[kind])
    return jinja2.Template(TEMPLATE).render(messages=[{"role": "user", "content": content}], add_generation_prompt=True, enable_thinking=False)


def forms(word):
    """The tokens that say it: with a space or without, with a capital letter or none."""
    ids = []
    for w in dict.fromkeys([word, " " + word, word.capitalize() if len(word) > 1 and word.islower() else word]):
        one = TOKENIZER.encode(w, add_special_tokens=False).ids
        ids += one if len(one) == 1 else []
    if word.islower():
        one = TOKENIZER.encode(" " + word.capitalize(), add_special_tokens=False).ids
        ids += one if len(one) == 1 else []
    return ids


def make_tokenizer():
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    spaced = " true True false A B C" * 40  # some words have several tokens that say them
    pairs = ["AB", "AD", "AE", "BA", "BC", "CE", "DA", "EE", "ZZ"]
    text = ("[kind] noul\n[kind] score\n[kind] choice\n[state] the customer\n[question] is it?\n[options]\nfalse\ntrue\n[decision]:" +
            "".join(f"\n{p}) {p}" for p in pairs)) * 50
    t.train_from_iterator([text, spaced] + ["[decision]:"] * 90, trainers.BpeTrainer(vocab_size=340, show_progress=False, special_tokens=["<|im_end|>", "<|end|>"],
                                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def keep_labels(t):
    """As decide.md has it: one token alone, and the same one where it stands in a prompt."""
    kept = []
    for c in SEQUENCE:
        ids = t.encode(c, add_special_tokens=False).ids
        if len(ids) == 1 and ids[0] in t.encode(f"x\n{c}) y", add_special_tokens=False).ids and len(kept) < 256:
            kept.append(c)
    return kept


def dump(path, value):
    with open(path, "w") as f:
        json.dump(value, f, indent=1)
        f.write("\n")


def folder(*parts):
    path = os.path.join(OUT, *parts)
    os.makedirs(path, exist_ok=True)
    return path


def save_base(name, cls, config, spread, seed):
    path = folder(name)
    config._attn_implementation = "eager"
    model = cls(config)
    spread(model, seed)
    model.save_pretrained(path)
    os.path.exists(f := os.path.join(path, "generation_config.json")) and os.remove(f)
    TOKENIZER.save(os.path.join(path, "tokenizer.json"))
    dump(os.path.join(path, "tokenizer_config.json"), {"tokenizer_class": "Qwen2TokenizerFast", "eos_token": "<|im_end|>"})
    return model


def load(name, cls):
    return cls.from_pretrained(os.path.join(OUT, name), dtype=torch.float32, attn_implementation="eager").eval()


def slots(ntrained):
    n = 8 + ntrained
    verbalizers = WORDS[:8] + LABELS[:ntrained]
    return {"num_slots": n, "ranges": {"noul": [0, 2], "score": [2, 8], "choice": [8, n]}, "verbalizers": verbalizers,
            "template_version": "bare-v1"}, [TOKENIZER.token_to_id(v) for v in verbalizers]


def adapter(base, cls, path, seed, **config):
    model = get_peft_model(load(base, cls), LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **config))
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, p in model.named_parameters():
            if "lora_" in key:
                p.copy_(torch.randn(p.shape, generator=g) / p.shape[1] ** 0.5)
    model.save_pretrained(path, save_embedding_layers=False)
    os.path.exists(f := os.path.join(path, "README.md")) and os.remove(f)
    with open(f := os.path.join(path, "adapter_config.json")) as j:
        saved = json.load(j)
    saved["base_model_name_or_path"] = base
    saved["target_modules"] = sorted(saved["target_modules"])
    dump(f, saved)
    return PeftModel.from_pretrained(load(base, cls), path).eval()


def hidden_of(model, ids):
    """The state after the final norm, and the next token's logits."""
    with torch.no_grad():
        out = model(torch.tensor([ids]), use_cache=False, output_hidden_states=True)
    return out.hidden_states[-1][0, -1].double().numpy(), out.logits[0, -1].double().numpy()


def softmax(z):
    e = np.exp(z - z.max())
    return e / e.sum()


def questions(limits):
    rng = np.random.default_rng(5)
    words = ["refund", "billing", "shipping", "tech support", "ünïcode 漢字", "", "a) b", "true"]
    out = [("noul", "Dialog: Update installed.", "Close it?", []), ("noul", "", "", []),
           ("noul", "two\nlines [options]\n", "Is it?", []), ("score", "The parcel arrived damaged.", "How bad?", []),
           ("score", "x" * 300, "How long?", [])]
    for n in limits:
        out.append(("choice", f"SKU AX-330 at 8% of level {n}.", "What now?", [str(rng.choice(words)) for _ in range(n)]))
    return out


def cases(limits, probabilities, prompt=prompt):
    out = []
    for kind, state, question, options in questions(limits):
        text = prompt(kind, state, question, options)
        ids = TOKENIZER.encode(text, add_special_tokens=False).ids
        p, mass = probabilities(kind, len(options), ids)
        out.append({"kind": kind, "state": state, "question": question, "options": options, "prompt": text, "ids": ids,
                    "p": [float(x) for x in p], "mass": mass})
    return out


def slot_range(kind, s):
    return s["ranges"][kind][0], s["ranges"][kind][1]


def judge():
    """A slot head."""
    config = Qwen3_5TextConfig(**{**make_qwen35.TEXT, "vocab_size": TOKENIZER.get_vocab_size(), "eos_token_id": 0}, tie_word_embeddings=False)
    save_base("judge", Qwen3_5ForCausalLM, config, make_qwen35.spread, 51)
    path = folder("judge")
    s, ids = slots(16)
    g = torch.Generator().manual_seed(6)
    w, b = 0.4 * torch.randn(24, config.hidden_size, generator=g), torch.randn(24, generator=g)
    save_file({"proj.weight": w, "proj.bias": b}, os.path.join(path, "head.safetensors"))
    dump(os.path.join(path, "judge_config.json"), {
        "base_model_path": "tiny", "hidden_size": config.hidden_size, "slots": s, "verbalizer_ids": ids, "kinds": KINDS,
        "model_name": "tiny", "lm_head_included": True, "weights_mode": "unmerged", "adapter_subfolder": "adapter",
        "lora": {"r": 4, "alpha": 8}, "softcap": None})
    dump(os.path.join(path, "calibration.json"), {"version": 1, "per_kind": T, "per_kind_family": {}})
    targets = ["in_proj_qkv", "in_proj_z", "out_proj", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = adapter("judge", Qwen3_5ForCausalLM, folder("judge", "adapter"), 7, r=4, lora_alpha=8, target_modules=targets)
    weight, bias = w.double().numpy(), b.double().numpy()

    def probabilities(kind, n, prompt_ids):
        h, logits = hidden_of(model, prompt_ids)
        lo, hi = slot_range(kind, s)
        n = n or hi - lo
        z = [(weight[lo + i] @ h + bias[lo + i]) if lo + i < hi else logits[TOKENIZER.token_to_id(LABELS[i])] for i in range(n)]
        return softmax(np.array(z) / T[kind]), None

    return cases([2, 3, 16, 17, len(LABELS)], probabilities)


def lm():
    """LM-head readout with a LoRA on the head, beside judge's base."""
    path = folder("lm")
    s, ids = slots(16)
    bias = [float(x) for x in np.random.default_rng(8).normal(size=24).round(3)]
    targets = ["in_proj_qkv", "q_proj", "v_proj", "down_proj", "lm_head"]
    inner = folder("lm", "adapter_vllm")
    model = adapter("judge", Qwen3_5ForCausalLM, inner, 9, r=5, lora_alpha=10, target_modules=targets)
    dump(os.path.join(inner, "decision_head.json"), {"bias": bias, "verbalizer_ids": ids, "slots": s, "note": "tiny"})
    dump(os.path.join(path, "calibration.json"), {"version": 1, "per_kind": {"noul": 0.6, "choice": 1.9}})

    def probabilities(kind, n, prompt_ids):
        _, logits = hidden_of(model, prompt_ids)
        lo, hi = slot_range(kind, s)
        n = n or hi - lo
        t = {"noul": 0.6, "choice": 1.9, "score": 1.0}[kind]
        tokens = [TOKENIZER.token_to_id(LABELS[i] if kind == "choice" else s["verbalizers"][lo + i]) for i in range(n)]
        b = np.array([bias[lo + i] if lo + i < hi else 0 for i in range(n)])
        return softmax((logits[tokens] + b) / t), None

    return cases([2, 16, 20], probabilities)


def chat():
    """merged's weights with a chat template, for label tokens."""
    path = folder("chat")
    for f in ("config.json", "model.safetensors", "tokenizer.json"):
        os.symlink(os.path.join("..", "merged", f), os.path.join(path, f))
    dump(os.path.join(path, "tokenizer_config.json"), {"tokenizer_class": "Qwen2TokenizerFast", "eos_token": "<|im_end|>", "chat_template": TEMPLATE})
    return cases([2, 16, len(LABELS)], by_labels, message)


def by_labels(kind, n, prompt_ids):
    _, logits = hidden_of(load("merged", LlamaForCausalLM), prompt_ids)
    words = LABELS[:n] if kind == "choice" else WORDS[:2] if kind == "noul" else WORDS[2:8]
    each = np.array([np.logaddexp.reduce(logits[forms(w)]) for w in words])
    return softmax(each), float(softmax(logits)[sum((forms(w) for w in words), [])].sum())


def merged():
    """More than 16 trained options, no adapter; and by label tokens alone."""
    config = LlamaConfig(vocab_size=TOKENIZER.get_vocab_size(), hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=6,
                         num_key_value_heads=3, max_position_embeddings=1024, tie_word_embeddings=True, eos_token_id=0)
    save_base("merged", LlamaForCausalLM, config, make_models.spread, 52)
    model = load("merged", LlamaForCausalLM)
    s, ids = slots(20)
    bias = [float(x) for x in np.random.default_rng(10).normal(size=28).round(3)]
    dump(os.path.join(folder("merged"), "decision_head.json"), {"bias": bias, "verbalizer_ids": ids, "slots": s})
    dump(os.path.join(folder("merged"), "calibration.json"), {"per_kind": {"noul": 2.5, "score": 0.4, "choice": 1.5}})

    def read(kind, n, prompt_ids):
        _, logits = hidden_of(model, prompt_ids)
        lo, hi = slot_range(kind, s)
        n = n or hi - lo
        tokens = [TOKENIZER.token_to_id(LABELS[i] if kind == "choice" else s["verbalizers"][lo + i]) for i in range(n)]
        b = np.array([bias[lo + i] if lo + i < hi else 0 for i in range(n)])
        t = {"noul": 2.5, "score": 0.4, "choice": 1.5}[kind]
        return softmax((logits[tokens] + b) / t), None

    return cases([3, 20, 22], read), cases([2, 16, len(LABELS)], by_labels)


def plain():
    """LM-head readout of merged's base with a LoRA that leaves the head alone: a base whose states can be cached by pages."""
    s, ids = slots(16)
    bias = [float(x) for x in np.random.default_rng(12).normal(size=24).round(3)]
    inner = folder("plain", "adapter_vllm")
    model = adapter("merged", LlamaForCausalLM, inner, 13, r=3, lora_alpha=9, target_modules=["q_proj", "v_proj", "up_proj"])
    dump(os.path.join(inner, "decision_head.json"), {"bias": bias, "verbalizer_ids": ids, "slots": s})

    def probabilities(kind, n, prompt_ids):
        _, logits = hidden_of(model, prompt_ids)
        lo, hi = slot_range(kind, s)
        n = n or hi - lo
        tokens = [TOKENIZER.token_to_id(LABELS[i] if kind == "choice" else s["verbalizers"][lo + i]) for i in range(n)]
        return softmax(logits[tokens] + np.array([bias[lo + i] if lo + i < hi else 0 for i in range(n)])), None

    return cases([4, 17, len(LABELS)], probabilities)


def renderings():
    floats = [1.0, 0.1, 1e-5, 1e16, 1e5, 0.0, -0.0, 123456789012345.6, 1e15, 9007199254740993.0, 1e-4, 1.5e300, 5e-324, 2.5, -1e22, 0.30000000000000004,
              1 / 3, 1e23, 12345.678e-10]
    values = [{"b": 1, "a": "x"}, {}, [], [1, 2.0, None, True, False], {"k": {"n": [{"é": "ü\u2028\u0085\x7f"}]}}, "q\"b\\/\n\r\t\b\f\x01\x1f",
              {"big": 9223372036854775807, "neg": -0.0}]
    return {"floats": [[repr(x), x.hex()] for x in floats],
            "json": [[json.dumps(v, separators=(",", ":")), json.dumps(v, ensure_ascii=False)] for v in values]}


def maths():
    """bias +0.2 and -0.2, T = 2, logits 0 and 2: the bias comes first, then the temperature."""
    return {"bias": [0.2, -0.2], "temperature": 2, "logits": [0, 2], "p_true": float(1 / (1 + np.exp(-0.8)))}


shutil.rmtree(OUT, ignore_errors=True)
os.makedirs(OUT)
TOKENIZER = make_tokenizer()
LABELS = keep_labels(TOKENIZER)
assert len(LABELS) > 28 and all(len(TOKENIZER.encode(w).ids) == 1 for w in WORDS)
assert TOKENIZER.encode("x\n[decision]:", add_special_tokens=False).tokens[-1] == "]:"
trained, labels = merged()
expected = {"labels": LABELS, "label_ids": [TOKENIZER.token_to_id(x) for x in LABELS], "judge": judge(), "lm": lm(), "merged": trained, "by_labels": labels, "chat": chat(), "plain": plain(),
            "renderings": renderings(), "maths": maths()}
with open(os.path.join(OUT, "expected.json"), "w") as f:
    json.dump(expected, f, separators=(",", ":"), ensure_ascii=True)
    f.write("\n")
print(len(LABELS), "labels:", " ".join(LABELS))
for name in ("judge", "lm", "merged", "by_labels", "chat", "plain"):
    print(name, [max(c["p"]) for c in expected[name]])
