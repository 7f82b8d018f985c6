"""A Whisper model of CTranslate2 (model.bin, in one piece or several) as a transformers folder.

    python3 ct2_whisper.py OUT FOLDER [FOLDER]      the parts of one model, in order

Only the standard library: f16 tensors are cut and renamed, never computed with. The fused q, k, v become three (k's bias,
which is zero, is dropped); generation_config.json is made from config.json's lists.
"""
import json
import os
import shutil
import struct
import sys


def read(blob):
    """{name: (dims, bytes)} of the f16 variables."""
    at = 0

    def number(kind):
        nonlocal at
        value, = struct.unpack_from("<" + kind, blob, at)
        at += struct.calcsize("<" + kind)
        return value

    def text():
        nonlocal at
        n = number("H")
        at += n
        return blob[at - n:at - 1].decode()
    number("I"), text(), number("I")
    out = {}
    for _ in range(number("I")):
        name = text()
        dims = [number("I") for _ in range(number("B"))]
        kind, size = number("B"), number("I")
        if kind == 4:
            out[name] = (dims, blob[at:at + size])
        at += size
    return out


def split(tensor, n):
    dims, data = tensor
    size = len(data) // n
    return [([dims[0] // n, *dims[1:]], data[i * size:(i + 1) * size]) for i in range(n)]


def rename(t):
    out = {"model.decoder.embed_tokens.weight": t["decoder/embeddings/weight"],
           "model.decoder.embed_positions.weight": t["decoder/position_encodings/encodings"],
           "model.encoder.embed_positions.weight": t["encoder/position_encodings/encodings"]}

    def norm(a, b):
        out[b + ".weight"], out[b + ".bias"] = t[a + "/gamma"], t[a + "/beta"]

    def linear(a, names):
        for part in ("weight", "bias"):
            for name, piece in zip(names, split(t[f"{a}/{part}"], len(names))):
                if not (part == "bias" and name.endswith("k_proj")):
                    out[f"{name}.{part}"] = piece
    for conv in ("conv1", "conv2"):
        for part in ("weight", "bias"):
            out[f"model.encoder.{conv}.{part}"] = t[f"encoder/{conv}/{part}"]
    layers = {}
    for side in ("encoder", "decoder"):
        norm(side + "/layer_norm", f"model.{side}.layer_norm")
        layers[side] = 0
        while f"{side}/layer_{layers[side]}/ffn/linear_0/weight" in t:
            a, b = f"{side}/layer_{layers[side]}", f"model.{side}.layers.{layers[side]}"
            linear(a + "/self_attention/linear_0", [f"{b}.self_attn.{x}_proj" for x in "qkv"])
            linear(a + "/self_attention/linear_1", [b + ".self_attn.out_proj"])
            norm(a + "/self_attention/layer_norm", b + ".self_attn_layer_norm")
            linear(a + "/ffn/linear_0", [b + ".fc1"])
            linear(a + "/ffn/linear_1", [b + ".fc2"])
            norm(a + "/ffn/layer_norm", b + ".final_layer_norm")
            if side == "decoder":
                linear(a + "/attention/linear_0", [b + ".encoder_attn.q_proj"])
                linear(a + "/attention/linear_1", [f"{b}.encoder_attn.{x}_proj" for x in "kv"])
                linear(a + "/attention/linear_2", [b + ".encoder_attn.out_proj"])
                norm(a + "/attention/layer_norm", b + ".encoder_attn_layer_norm")
            layers[side] += 1
    return out, layers


def write_safetensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dims, data) in tensors.items():
        header[name] = {"dtype": "F16", "shape": dims, "data_offsets": [at, at + len(data)]}
        at += len(data)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        for _, data in tensors.values():
            f.write(data)


def convert(out, folders):
    blob = bytearray()
    for folder in folders:
        for name in sorted(os.listdir(folder)):
            if name.startswith("model.bin"):
                with open(os.path.join(folder, name), "rb") as f:
                    blob += f.read()
    tensors, layers = rename(read(bytes(blob)))
    vocab, d = tensors["model.decoder.embed_tokens.weight"][0]
    config = {"architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper", "vocab_size": vocab, "d_model": d,
              "num_mel_bins": tensors["model.encoder.conv1.weight"][0][1], "activation_function": "gelu", "torch_dtype": "float16",
              "max_source_positions": tensors["model.encoder.embed_positions.weight"][0][0],
              "max_target_positions": tensors["model.decoder.embed_positions.weight"][0][0]}
    for side in ("encoder", "decoder"):
        config[side + "_layers"] = layers[side]
        config[side + "_attention_heads"] = d // 64
        config[side + "_ffn_dim"] = tensors[f"model.{side}.layers.0.fc1.weight"][0][0]
    eot = vocab - 1608 if vocab == 51865 else 50256 if vocab == 51864 else 50257
    config.update(bos_token_id=eot, eos_token_id=eot, pad_token_id=eot, decoder_start_token_id=eot + 1)
    with open(os.path.join(folders[0], "config.json")) as f:
        given = json.load(f)
    generation = {"is_multilingual": vocab > 51864, "decoder_start_token_id": eot + 1, "eos_token_id": eot, "pad_token_id": eot,
                  "suppress_tokens": given["suppress_ids"], "begin_suppress_tokens": given["suppress_ids_begin"],
                  "max_initial_timestamp_index": 50, "no_timestamps_token_id": vocab - 1502, "max_length": 448}
    os.makedirs(out, exist_ok=True)
    for name, value in (("config.json", config), ("generation_config.json", generation)):
        with open(os.path.join(out, name), "w") as f:
            json.dump(value, f, indent=1)
    shutil.copy(os.path.join(folders[0], "tokenizer.json"), out)
    write_safetensors(os.path.join(out, "model.safetensors"), tensors)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    convert(sys.argv[1], sys.argv[2:])
