#!/usr/bin/env python3
"""make_scripted.py - writes tests/fixtures/scripted/scripted.gguf: a llama whose next token depends on nothing but the
current one, so that tests can say what a model answers, token by token.

The one layer adds nothing (its output projections are zero). Every state (a token that has a successor) is a random
direction in the embedding; the row of its successor in the output matrix points the same way, so that the successor's
logit is LOGIT and all others are well below. Tokens without a successor share one direction, which leads to <|im_end|>.
The last component of an embedding is the same for all: by it tokens of WISHES are likelier than the rest where a form forbids
what the script says, so that a call that is asked for comes, and ends.

A prompt chooses its script by its last character. The chat template writes all messages in ChatML and then, as the
start of the answer, the last message once more; so the last character of the last message chooses. The templates beside the
model (hermes.jinja, xml.jinja) know tools and thoughts and choose in the same way. No package is needed.
"""
import math
import pathlib
import random
import struct

WIDTH, HEADS, KV_HEADS, FFN, CONTEXT = 32, 2, 1, 32, 131072
LOGIT = 40.0

# last character of the prompt -> tokens that follow, then <|im_end|>
SCRIPTS = {
    "1": [b"KL", b"MN", b"O", b"P", b"Q", b"R"],
    "2": [b"KLM", b"NO", b"X"],
    "3": [b" river", b" stone"],
    "4": [b" stone!"],
    "5": [b"\xf0", b"\x9f", b"\xa6", b"\x99", b"\xe7", b"\x99\xba", b"\xe9", b"\xa0", b"\x81", b" word"],
    "6": [b"ok ", b"\xff", b" end"],
    "7": [b"lead", b"\xe2"],
    "0": [b" one", b" two", b" three", b" four", b" five", b" six", b" seven", b" eight", b" nine", b" ten"],
    "#": [b'"\\', b"\n\t", b"\xe2\x80\xa8"],

    # hermes.jinja. A token of MARKERS is one token for the whole marker; elsewhere markers are letters like others.
    "A": [b"Let me ", b"look.\n", "<tool_call>", b'\n{"name": "get_', b'weather", "arg', b'uments": {"ci', b'ty": "Pa', b'ris"}}\n',
          "</tool_call>"],
    "B": [b"Two:\n", b"<tool_ca", b'll>\n{"name": "get_time", ', b'"arguments": {}}', b"\n</to", b"ol_c",
          b'all>\n<tool_call>\n{"name": "get_w', b'eather", "arguments": {"ci', b'ty": "Rome"}}\n</tool_', b"call>"],
    "C": [b'<tool_call>\n{"name": "get_weather", "arguments": {"city": "', b"a1", b"b2", b"c3", b"d4", b"e5", b"f6", b"g7", b"h8",
          b"i9", b'j0"}}\n</tool_call>'],
    "D": ["<think>", b"\nI th", b"ink.\n", "</think>", b"\n\ndo", b"ne"],
    "E": [b"<thi", b"nk>\nhm", b"m\n</th", b"inki", b"ng", b"\n</thin", b"k>", b"\n\ny", b"es"],
    "G": [b"<think>\nuse it\n</think>\n\n<tool_call>\n", b'{"name": "get_time", "argu', b'ments": {}}\n</tool_call>'],
    "H": [b"<tool_cal and ", b"no call</tool_", b"call> after"],
    "J": [b"I would say ", b"that it is", b" sunny."],
    # xml.jinja
    "S": [b"<tool_call>\n<function=book>\n<parameter=day>\n3\n</par", b"ameter>\n<parameter=ok>\ntrue\n</parameter>\n",
          b"<parameter=name>\n007\n</parameter>\n</function>\n</tool_call>"],
    "T": [b"<tool_call>\n<function=book>\n<parameter=day>\n2027-", b"03-09\n</parameter>\n</func", b"tion>\n</tool_call>"],
}
ENDLESS = {"8": [b" la"], "W": [b"\n<think>\nso", b" mull"]}  # the last one follows itself for ever
MARKERS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
RANDOM = {"9": (b" x", 0.1)}      # follows itself, or ends with this probability
WISHES = {"<tool_call>": 8.0, "</think>": 7.0, b'"': 6.0, b"}": 6.0}  # logits everywhere
SHARE = 0.3                       # of an embedding: its last component
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] }}"
            "{% if not loop.last or add_generation_prompt %}{{ '<|im_end|>\n' }}{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' + messages[-1]['content'] }}{% endif %}")


def byte_letters():
    """GPT-2's printable stand-in for each byte."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, extra = {}, 0
    for b in range(256):
        table[b] = chr(b) if b in kept else chr(256 + extra)
        extra += b not in kept
    return table


LETTERS = byte_letters()


def spelling(token):
    return "".join(LETTERS[b] for b in token)


def vocabulary():
    texts = [bytes([b]) for b in range(256)]
    for script in SCRIPTS.values():
        texts += [t for t in script if isinstance(t, bytes) and len(t) > 1]
    texts += [t for script in ENDLESS.values() for t in script] + [t for t, _ in RANDOM.values()] + MARKERS
    assert len(set(texts)) == len(texts), "a token stands in two scripts"
    return texts


def transitions(ids):
    """token id -> [(next id, logit)]; each token has one successor, wherever it stands."""
    end = SPECIALS.index("<|im_end|>") + len(ids)
    after = {}
    chains = [[start.encode(), *script] for start, script in SCRIPTS.items()]
    chains += [[start.encode(), *script, script[-1]] for start, script in ENDLESS.items()]
    for chain in chains:
        for a, b in zip(chain, chain[1:]):
            assert ids[a] not in after, f"{a} has two successors"
            after[ids[a]] = [(ids[b], LOGIT)]
    for start, (token, p) in RANDOM.items():
        after[ids[start.encode()]] = [(ids[token], LOGIT)]
        after[ids[token]] = [(ids[token], LOGIT), (end, LOGIT + math.log(p / (1 - p)))]
    return after, end


def directions(n):
    """n unit vectors, no two closer than a cosine of 0.4."""
    rng, found = random.Random(7), []
    while len(found) < n:
        v = [rng.gauss(0, 1) for _ in range(WIDTH - 1)]
        length = math.sqrt(sum(x * x for x in v))
        v = [x / length for x in v]  # without the last component
        if all(abs(sum(a * b for a, b in zip(v, w))) < 0.4 for w in found):
            found.append(v)
    return found


def embedding(direction):
    rest = math.sqrt(1 - SHARE * SHARE)
    return [x * rest * math.sqrt(WIDTH) for x in direction] + [SHARE * math.sqrt(WIDTH)]


def matrices(vocab, after, end, wishes=()):
    dirs = directions(len(after) + 1)
    state = {t: d for t, d in zip(after, dirs)}
    embd = [embedding(state.get(t, dirs[-1])) for t in range(vocab)]
    out = [[0.0] * WIDTH for _ in range(vocab)]
    steps = [(d, after[t]) for t, d in state.items()] + [(dirs[-1], [(end, LOGIT)])]
    merged = {}
    for d, nexts in steps:  # a successor of itself has two predecessors: its start and itself
        for t, logit in nexts:
            merged.setdefault(t, []).append((d, logit))
    for t, rows in merged.items():
        out[t] = solve(rows)
    for t, logit in wishes:
        out[t] = solve([(d, x - logit) for d, x in merged[t]]) if t in merged else out[t]
        out[t][-1] = logit / (SHARE * math.sqrt(WIDTH))
    check(steps, out)
    return embd, out


def solve(rows):
    """The shortest w with <w, d> = logit for each (d, logit): w = sum x_i d_i, Gram matrix x = logits."""
    n = len(rows)
    a = [[sum(p * q for p, q in zip(rows[i][0], rows[j][0])) for j in range(n)] + [rows[i][1]] for i in range(n)]
    for i in range(n):
        for k in range(n):
            if k != i:
                f = a[k][i] / a[i][i]
                a[k] = [x - f * y for x, y in zip(a[k], a[i])]
    xs = [a[i][n] / a[i][i] for i in range(n)]
    # rms(embedding) is 1, so that norming leaves it as it is
    scale = math.sqrt(WIDTH) * math.sqrt(1 - SHARE * SHARE)
    return [sum(x * r[0][k] for x, r in zip(xs, rows)) / scale for k in range(WIDTH - 1)] + [0.0]


def check(steps, out):
    for d, nexts in steps:
        logits = [sum(w * x for w, x in zip(row, embedding(d))) for row in out]
        wanted = {t for t, _ in nexts}
        rival = max(v for t, v in enumerate(logits) if t not in wanted)
        for t, logit in nexts:
            assert abs(logits[t] - logit) < 1e-6 and logits[t] - rival > 8, (t, logits[t], rival)


# ---- GGUF

U32, F32, BOOL, STR, ARR, I32 = 4, 6, 7, 8, 9, 5


def text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(kind, v):
    if kind == STR:
        return text(v)
    if kind == ARR:
        inner, items = v
        return struct.pack("<IQ", inner, len(items)) + b"".join(value(inner, x) for x in items)
    return struct.pack({U32: "<I", F32: "<f", BOOL: "<?", I32: "<i"}[kind], v)


def metadata(texts):
    tokens = [t if t in MARKERS else spelling(t) for t in texts] + SPECIALS
    types = [4 if t in MARKERS else 1 for t in texts] + [3] * len(SPECIALS)
    special = {s: len(texts) + i for i, s in enumerate(SPECIALS)}
    return [
        ("general.architecture", STR, "llama"),
        ("general.name", STR, "scripted"),
        ("llama.context_length", U32, CONTEXT),
        ("llama.embedding_length", U32, WIDTH),
        ("llama.block_count", U32, 1),
        ("llama.feed_forward_length", U32, FFN),
        ("llama.attention.head_count", U32, HEADS),
        ("llama.attention.head_count_kv", U32, KV_HEADS),
        ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        ("llama.rope.dimension_count", U32, WIDTH // HEADS),
        ("llama.rope.freq_base", F32, 10000.0),
        ("llama.vocab_size", U32, len(tokens)),
        ("tokenizer.ggml.model", STR, "gpt2"),
        ("tokenizer.ggml.pre", STR, "gpt-2"),
        ("tokenizer.ggml.tokens", ARR, (STR, tokens)),
        ("tokenizer.ggml.token_type", ARR, (I32, types)),
        ("tokenizer.ggml.merges", ARR, (STR, ["K L", "M N"])),
        ("tokenizer.ggml.bos_token_id", U32, special["<|endoftext|>"]),
        ("tokenizer.ggml.eos_token_id", U32, special["<|im_end|>"]),
        ("tokenizer.ggml.add_bos_token", BOOL, False),
        ("tokenizer.chat_template", STR, TEMPLATE),
    ]


def tensors(embd, out):
    head, kv = WIDTH, WIDTH // HEADS * KV_HEADS

    def zeros(rows, cols):
        return [[0.0] * cols for _ in range(rows)]

    ones = [[1.0] * WIDTH]
    return [
        ("token_embd.weight", embd), ("output_norm.weight", ones), ("output.weight", out),
        ("blk.0.attn_norm.weight", ones), ("blk.0.attn_q.weight", zeros(head, WIDTH)),
        ("blk.0.attn_k.weight", zeros(kv, WIDTH)), ("blk.0.attn_v.weight", zeros(kv, WIDTH)),
        ("blk.0.attn_output.weight", zeros(WIDTH, head)), ("blk.0.ffn_norm.weight", ones),
        ("blk.0.ffn_gate.weight", zeros(FFN, WIDTH)), ("blk.0.ffn_up.weight", zeros(FFN, WIDTH)),
        ("blk.0.ffn_down.weight", zeros(WIDTH, FFN)),
    ]


def write(path, meta, tens):
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tens), len(meta))
    head += b"".join(text(k) + struct.pack("<I", kind) + value(kind, v) for k, kind, v in meta)
    data = b""
    for name, rows in tens:
        dims = [len(rows[0])] + ([len(rows)] if not name.endswith("norm.weight") else [])
        head += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        head += struct.pack("<IQ", 0, len(data))  # F32
        data += b"".join(struct.pack(f"<{len(r)}f", *r) for r in rows)
        data += b"\0" * (-len(data) % 32)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)


def main():
    texts = vocabulary()
    ids = {t: i for i, t in enumerate(texts)}
    after, end = transitions(ids)
    embd, out = matrices(len(texts) + len(SPECIALS), after, end, [(ids[t], logit) for t, logit in WISHES.items()])
    path = pathlib.Path(__file__).parent.parent / "fixtures" / "scripted" / "scripted.gguf"
    write(path, metadata(texts), tensors(embd, out))
    print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
