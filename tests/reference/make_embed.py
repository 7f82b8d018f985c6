"""Makes tests/fixtures/embed/: tiny random sentence-transformers folders and the vectors sentence-transformers gives.

Run from the repository root: python tests/reference/make_embed.py       (sentence-transformers 6.2, transformers 5.24, torch 2.15)

NAME/                   the folder
NAME/expected.json      {"cases": [{"texts", "options": {prompt_name, prompt, truncate, dimensions}, "tokens", "vectors"}]}
"""
import json
import os
import shutil

import gguf
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer, models
from transformers import BertConfig, BertModel

OUT = "tests/fixtures/embed"
TOKENIZERS = "tests/fixtures/tokenizer"
torch.set_num_threads(1)

WORDS = "the little server reads a question and answer it every word is made of piece don t can he hello world cafe un believ able".split()
TEXTS = ["hello", "The little server reads a question.", "Hello, World! don't", "", "  ", "ça va? naïve CAFÉ", "中国文学", "[MASK] and [SEP] it", "👨‍👩‍👧",
         "every word is made of piece " * 3, "a", "un believ able unbelievable", "Привет, мир! 12 2024"]


def long_text(n):
    return " ".join(WORDS[i % len(WORDS)] for i in range(n - 2))  # tokens with [CLS] and [SEP]


def encoder(seed, tokenizer, **dims):
    torch.manual_seed(seed)
    size = len(json.load(open(f"{TOKENIZERS}/{tokenizer}.json"))["files"]["tokenizer"]["model"]["vocab"])
    net = BertModel(BertConfig(vocab_size=size, initializer_range=0.35, **dims), add_pooling_layer=seed % 2 == 0).eval()
    with torch.no_grad():
        for name, p in net.named_parameters():
            if name.endswith("bias"):
                p.normal_(0, 0.2)
            elif "LayerNorm" in name:
                p.normal_(1, 0.2)
    return net


def base_folder(name, net, tokenizer, limit):
    path = f"{OUT}/{name}"
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    net.save_pretrained(path)
    fixture = json.load(open(f"{TOKENIZERS}/{tokenizer}.json"))["files"]["tokenizer"]
    with open(f"{path}/tokenizer.json", "w") as f:
        json.dump(fixture, f, separators=(",", ":"))
    with open(f"{path}/tokenizer_config.json", "w") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": limit, "cls_token": "[CLS]", "sep_token": "[SEP]",
                   "pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}, f)
    return path


def vectors(st, texts, **options):
    return st.encode(texts, convert_to_numpy=True, show_progress_bar=False, batch_size=4, **options)


def case(st, texts, limit, cut=None, **options):
    full = {k: v for k, v in options.items()}
    v = vectors(st, texts, **full)
    prompt = options.get("prompt") or (st.prompts or {}).get(options.get("prompt_name") or st.default_prompt_name or "", "")
    tokens = sum(min(limit, len(st.tokenizer(prompt + t)["input_ids"])) for t in texts)
    if cut:
        v = torch.nn.functional.normalize(torch.tensor(v)[:, :cut], dim=1).numpy()
        full["dimensions"] = cut
    full["truncate"] = any(len(st.tokenizer(prompt + t)["input_ids"]) > limit for t in texts)
    return {"texts": texts, "options": full, "tokens": tokens, "vectors": [[float("%.9g" % x) for x in row] for row in v]}


def finish(path, cases):
    for extra in ("README.md", ".gitattributes"):
        if os.path.exists(f"{path}/{extra}"):
            os.remove(f"{path}/{extra}")
    with open(f"{path}/expected.json", "w") as f:
        json.dump({"cases": cases}, f, separators=(",", ":"))


def assemble(path, parts, limit, **options):
    st = SentenceTransformer(modules=[models.Transformer(path, max_seq_length=limit)] + parts, device="cpu", **options)
    st.eval()
    return st


def save(st, path, keep=("tokenizer.json", "tokenizer_config.json")):
    held = {k: open(f"{path}/{k}").read() for k in keep}
    st.save(path, create_model_card=False)
    for k, text in held.items():
        with open(f"{path}/{k}", "w") as f:
            f.write(text)


def mean():
    limit = 24
    path = base_folder("mean", encoder(1, "wordpiece", hidden_size=36, num_hidden_layers=3, num_attention_heads=3, intermediate_size=52, max_position_embeddings=30), "wordpiece", 1000)
    st = assemble(path, [models.Pooling(36, "mean"), models.Normalize()], limit)
    save(st, path)
    with open(f"{path}/sentence_bert_config.json", "w") as f:
        json.dump({"max_seq_length": limit, "do_lower_case": False}, f)
    finish(path, [case(st, TEXTS, limit), case(st, [long_text(n) for n in (23, 24)], limit), case(st, [long_text(25), "a", long_text(60)], limit)])


def tiny():
    """What tests/api serves: long texts, vectors that may be cut to 16."""
    limit = 512
    path = base_folder("tiny", encoder(5, "wordpiece", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, max_position_embeddings=limit), "wordpiece", limit)
    st = assemble(path, [models.Pooling(32, "mean"), models.Normalize()], limit, prompts={"query": "question: ", "document": ""})
    save(st, path)
    config = json.load(open(f"{path}/config_sentence_transformers.json"))
    config["matryoshka_dimensions"] = [32, 16]
    json.dump(config, open(f"{path}/config_sentence_transformers.json", "w"), indent=1)
    texts = [t for t in TEXTS if t.strip()] + [long_text(512), long_text(300)]
    finish(path, [case(st, texts, limit), case(st, texts[:3], limit, prompt_name="query")])


def cls_dense():
    limit = 20
    path = base_folder("cls_dense", encoder(2, "wordpiece_cased", hidden_size=40, num_hidden_layers=2, num_attention_heads=5, intermediate_size=44, max_position_embeddings=20,
                                            hidden_act="gelu_new", layer_norm_eps=1e-5), "wordpiece_cased", 1000)
    torch.manual_seed(7)
    st = assemble(path, [models.Pooling(40, "cls"), models.Dense(40, 19, activation_function=torch.nn.Tanh()), models.Normalize()], limit)
    save(st, path)
    cases = [case(st, TEXTS, limit)]
    # The spelling of old checkpoints.
    old = {}
    for k, v in load_file(f"{path}/model.safetensors").items():
        k = k.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        old["bert." + k] = v
    old["bert.embeddings.position_ids"] = torch.arange(20)[None]
    save_file(old, f"{path}/model.safetensors", metadata={"format": "pt"})
    finish(path, cases)


def many():
    limit = 32
    path = base_folder("many", encoder(3, "wordpiece_accents", hidden_size=28, num_hidden_layers=2, num_attention_heads=2, intermediate_size=33, max_position_embeddings=32), "wordpiece_accents", 1000)
    prompts = {"query": "question: ", "doc": "a [SEP] "}
    st = assemble(path, [models.Pooling(28, ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"], include_prompt=False), models.LayerNorm(168)], limit,
                  prompts=prompts, default_prompt_name="query")
    with torch.no_grad():
        st[2].norm.weight.normal_(1, 0.3)
        st[2].norm.bias.normal_(0, 0.3)
    save(st, path)
    config = json.load(open(f"{path}/config.json"))
    config["matryoshka_dimensions"] = [64, 168]
    json.dump(config, open(f"{path}/config.json", "w"), indent=1)
    texts = [t for t in TEXTS if t.strip()]
    finish(path, [case(st, texts, limit), case(st, texts, limit, prompt_name="doc"), case(st, texts, limit, prompt="it is "), case(st, texts, limit, cut=64, prompt_name="doc")])


def order():
    """Several ways of pooling in an order of their own; an old switch beside the new list does not count."""
    limit = 16
    path = base_folder("order", encoder(6, "wordpiece_cased", hidden_size=18, num_hidden_layers=1, num_attention_heads=2, intermediate_size=21, max_position_embeddings=16), "wordpiece_cased", 1000)
    st = assemble(path, [models.Pooling(18, ["lasttoken", "weightedmean", "max", "lasttoken"])], limit)
    save(st, path)
    config = json.load(open(f"{path}/1_Pooling/config.json"))
    config["pooling_mode_mean_tokens"] = True
    json.dump(config, open(f"{path}/1_Pooling/config.json", "w"), indent=1)
    assert st.encode("a").shape == SentenceTransformer(path, device="cpu").encode("a").shape == (72,)
    finish(path, [case(st, [t for t in TEXTS if t.strip()], limit)])


def plain():
    """No modules.json, no tokenizer.json, f16 weights, relu: mean pooling of what BertModel gives."""
    limit = 40
    net = encoder(4, "wordpiece_cased", hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40, max_position_embeddings=40, hidden_act="relu").half()
    path = base_folder("plain", net, "wordpiece_cased", 1000)
    st = SentenceTransformer(modules=[models.Transformer(path, max_seq_length=limit), models.Pooling(24, "mean")], device="cpu").float()
    cases = [case(st, TEXTS, limit)]
    os.remove(f"{path}/tokenizer.json")
    shutil.copy(f"{TOKENIZERS}/wordpiece_folder/vocab.txt", path)
    shutil.copy(f"{TOKENIZERS}/wordpiece_folder/tokenizer_config.json", path)
    finish(path, cases)


NAMES = {"embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd", "embeddings.token_type_embeddings": "token_types",
         "embeddings.LayerNorm": "token_embd_norm", "attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
         "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm", "intermediate.dense": "ffn_up", "output.dense": "ffn_down",
         "output.LayerNorm": "layer_output_norm"}


def to_gguf():
    """The folder "mean" as a GGUF file; its expected.json holds for it once vectors have unit length."""
    path, out = f"{OUT}/mean", f"{OUT}/mean.gguf"
    c = json.load(open(f"{path}/config.json"))
    w = gguf.GGUFWriter(out, "bert")
    w.add_context_length(24)
    w.add_embedding_length(c["hidden_size"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_head_count(c["num_attention_heads"])
    w.add_layer_norm_eps(c["layer_norm_eps"])
    w.add_causal_attention(False)
    w.add_pooling_type(gguf.PoolingType.MEAN)
    vocab = json.load(open(f"{path}/tokenizer.json"))["model"]["vocab"]
    special = {"[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
    tokens = sorted(vocab, key=vocab.get)
    w.add_tokenizer_model("bert")
    w.add_token_list([t if t in special else t[2:] if t.startswith("##") and t != "##" else "\u2581" + t for t in tokens])
    w.add_token_types([3 if t in special and t != "[unused0]" else 1 for t in tokens])
    w.add_unk_token_id(vocab["[UNK]"])
    w.add_bos_token_id(vocab["[CLS]"])
    w.add_sep_token_id(vocab["[SEP]"])
    for name, t in load_file(f"{path}/model.safetensors").items():
        if name.startswith("pooler"):
            continue
        part, kind = name.rsplit(".", 1)
        layer = ""
        if part.startswith("encoder.layer."):
            _, _, i, part = part.split(".", 3)
            layer = f"blk.{i}."
        if part.endswith("position_embeddings"):
            t = t[:24]
        w.add_tensor(f"{layer}{NAMES[part]}.{kind}", t.contiguous().numpy())
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    mean()
    to_gguf()
    cls_dense()
    many()
    order()
    plain()
    tiny()
