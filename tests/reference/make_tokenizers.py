"""Makes tests/fixtures/tokenizer/: tiny tokenizers of every style, hard texts, and what the `tokenizers` library says.

Run from the repository root: python tests/reference/make_tokenizers.py       (tokenizers 0.23, gguf 0.19)

texts.json        the texts
NAME.json         {"files": {"tokenizer", "config"}, "ids": [ids of each text], "special": [[text number, ids with BOS and
                  EOS]], "decoded": {text number: decoded, where it is not the text}, "decode": [[ids, kept, skipped]]}
NAME.gguf         the same vocabulary as GGUF metadata, for some; ids equal NAME.json's
"""
import json
import os
import random

import gguf
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Regex

OUT = "tests/fixtures/tokenizer"

CORPUS = """
The little server reads a question and answers it. Every word of the answer is made of pieces, and every piece has a number.
When the pieces are joined again, the text must be the same as before, with all of its spaces, tabs and line breaks.
It's not hard, but they're easily lost: don't drop them, we'll need them; I'm sure you've seen it, she'd say so, he's right.
IT'S LOUD HERE, DON'T SHOUT. WE'LL SEE. 1 22 333 4444 55555 1234567890 3.14159 2,718 0x1F 1e-9 2024-01-31 10:45
for (int i = 0; i < n; i++) {\n    total += values[i];\n    if (total > limit)\n        return -1;\n}\nreturn total;\n
def read(path):\n\twith open(path) as f:\n\t\treturn f.read()\n\nhttps://example.org/a/b?c=d&e=f#g user@example.org
Ein kleiner Bär fährt über die Brücke; größer wäre schöner. L'été, déjà vu, garçon, naïve. El niño mañana. Łódź, žluťoučký kůň.
Маленький сервер читает вопрос и отвечает на него. Каждое слово ответа состоит из частей. Нещо на български.
小さなサーバーが質問を読んで答えます。 这个小服务器阅读问题并回答。 我想在这里工作。 한국어 문장을 읽고 대답합니다.
ประโยคภาษาไทยไม่มีช่องว่าง ตัวอย่างข้อความ हिन्दी में एक छोटा वाक्य है। यह सर्वर प्रश्न पढ़ता है। خادم صغير يقرأ السؤال ثم يجيب عنه.
🙂 😀 👍🏽 👨‍👩‍👧 🇩🇪 ✅ 🚀  --  ...  !!!  ??  ((()))  [[x]]  {{y}}  <a href="x">y</a>  $10 €20 100% #tag @name ~/dir
getUserName parseHTTPResponse XMLHttpRequest snake_case_name CONSTANT_VALUE camelCase PascalCase
"""

L3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
Q2 = L3.replace(r"\p{N}{1,3}", r"\p{N}")
U, W, C = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O2 = (rf"[^\r\n\p{{L}}\p{{N}}]?{U}*{W}+{C}|[^\r\n\p{{L}}\p{{N}}]?{U}+{W}*{C}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*"
      r"|\s*[\r\n]+|\s+(?!\S)|\s+")
D3 = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
      r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
      r"|\s*[\r\n]+|\s+(?!\S)|\s+"]


def texts():
    t = ["", " ", "  ", "   ", "\t", "\n", "\n\n", "\n\n\n", "\t\n", "\r\n", "\r\n\r\n  x", " \n", "\n ", "a", " a", "a ", "  a", "a  b",
         "Hello world", " Hello world", "Hello World!", " Hello, world!", "Hello, y'all! How are you 😁 ?我想在apple工作1314151天～",
         "it's IT'S It's don't DON'T we'll WE'LL I'm I'M you've YOU'VE he'd HE'D they're THEY'RE 'tis", "it'ſ 'ſ 'S 's ' s '",
         "'era", "' era", "''s", "x's's", "naïve café déjà vu", "nai\u0308ve cafe\u0301 de\u0301ja\u0300 vu",
         "a\u0301\u0323 a\u0323\u0301 \u1e69 s\u0323\u0307 s\u0307\u0323", "\u0301start", ">\u0338 =\u0338 <\u0338", "A\u030a \u212b \u00c5",
         "\uac00\uac01 \u1100\u1161 \u1100\u1161\u11a8 \u1112\u1161\u11ab\u1100\u1173\u11af", "한국어 문장 ㅎㅏㄴ", "ｱｲｳ ＡＢＣ １２３ ﬁ ﬂ ²³ ½",
         "ประโยคภาษาไทย ไม่มีช่องว่าง กำ ที่นี่", "हिन्दी में क्षत्रिय ज़ ज़ ड़", "বাংলা কো কৌ", "தமிழ் கொ", "العربية مُحَمَّد لا إله", "עברית שָׁלוֹם",
         "កាន់តែពិសេសអាចខលចេញ", "Русский текст, нещо на Български", "Ελληνικά ΣΊΣΥΦΟΣ ςσ", "Đặng Việt Nam Cửa", "İstanbul ISPARTA ıi", "ǅ ǆ Ǆ ŉ",
         "小さなサーバー ｶﾞ がが", "中文，标点。「引号」！？", "𠀀𠀁 𝒜𝓑 𝟘𝟙𝟚", "🙂", "😀👍🏽", "👨‍👩‍👧‍👦 family", "🇩🇪🇫🇷 flags 🏴󠁧󠁢󠁥󠁮󠁧󠁿", "❤️ ☎️ 1️⃣ #️⃣", "🚀 (normal) 😶‍🌫️ (joined) ✅",
         "\x00", "a\x00b", "\x01\x02\x1f\x7f", "\x1b[31mred\x1b[0m", "a\u00a0b", "a\u200bb\u200dc", "\ufeffbom", "a\u2028b\u2029c", "a\u0085b", "a\u3000b c",
         "a\u180eb", "\u2003x\u2002y", "\ufffd\ufffe", "\U0010ffff", "\ue000\uf8ff", "a\u00adb", "\u202eabc\u202c",
         "1", "12", "123", "1234", "12345", "123456", "1234567", "ab 123", "3.14 1,000,000 -5 +7 1e10 0xFF", "٣٤٥ १२३ ৪৫৬", "Ⅷ ① ¾ 10²", "x1y22z333",
         "hello1world 2nd 3rd", "v1.2.3-rc4+build.5", "192.168.0.1:8080", "2024-02-29T23:59:60Z",
         "for (int i = 0; i < n; i++) {\n\tsum += a[i];\n}\n", "def f(x):\n    return x\n\n\nclass A:\n    pass\n", "\t\t\tdeep\n\t\t\t\tdeeper", "if(x){\r\n  y();\r\n}\r\n",
         "<a href=\"https://example.org/?q=1&r=2#z\">x</a>", "https://example.org/path/to/file.html?x=1&y=%20", "user.name+tag@example.co.uk", "C:\\path\\to\\file", "~/x/../y",
         "$x = \"$y\" . '$z';", "SELECT * FROM t WHERE a='b' -- c", "{\"k\": [1, 2.5, null, true]}", "```python\nprint('hi')\n```", "**bold** _it_ `code` ~~no~~", "a_b__c___d",
         "camelCase PascalCase XMLHttpRequest parseHTTPResponse2 SCREAMING_CASE iPhone McDonald's", "ABCdefGHIjkl", "aB Cd EF'S gh'T", "don't/can't\n//x", "///\n/\n",
         "!!!!!!", "?!?!", "......", "-----", "=====\n", " !", " !!", "  !!", "(((", ")))", "[[[]]]", "«quoted»", "“curly” ‘single’", "a—b–c", "€5 £6 ¥7 ₹8",
         "word " * 20, "ab" * 60, "a" * 100, "0" * 50, "." * 40, "ha" * 33 + "!", "\u00e9" * 30, "🙂" * 12, "中" * 20, "e\u0301" * 20, "a" + "\u0301\u0323" * 20,
         "line one\nline two\r\nline three\rline four", "trailing spaces   \n", "   leading", "\n\n\n   mixed \t \n  x", " \t \t x", "x \t\n \t y", "x\n", "\nx", "x\n\ny", "x \n\n y", "x\n \ny",
         "The quick brown fox jumps over the lazy dog.", "Ein größerer Bär fährt über die Brücke.", "L'été dernier, à la plage", "mañana por la mañana", "žluťoučký kůň úpěl",
         "ⱥⱦ ꜱ ᴀʙᴄ ƛ ʰʱʲ", "a\u0363b\u20dd", "\u0e01\u0e49\u0e33", "\U0001F469\u200D\U0001F4BB", "\u2581a \u2581 b", "▁▁ ▁x", "Ġhello Ċ", "<0x41> <0x0A>", "<unk> <s> </s>"]
    t += [" " * n for n in range(1, 41)] + [" " * n + "x" for n in range(1, 21)] + ["\n" * n for n in range(1, 21)]
    t += ["\t" * n + "return" for n in range(1, 9)] + ["\r\n" * n + "x" for n in range(1, 5)]
    t += ["<|endoftext|>", "a<|endoftext|>b", "a <|endoftext|> b", "<|endoftext|><|endoftext|>", "<|im_start|>user\nHi<|im_end|>\n", "<|im_start|>system\n  two spaces<|im_end|>\n<|im_start|>",
          "<think>\nhm\n</think>\n\nyes", "a<think>b", "<tool_call>\n{\"name\": \"f\"}\n</tool_call>", "<|begin_of_text|>x", "<s>hello", "hello<s> world", "hello<s>  world", "</s> a", "a </s>", "<s> <s>",
          "<bos>x<eos>", "<start_of_turn>user\nhi<end_of_turn>\n", "<|im_end", "|im_end|>", "<|im_end|", "<<|im_end|>>", "<|IM_END|>",
          "aaba", "aab", "xaabay", "a<x>b", "a <x> b", "<x>", "<x>y", "é<x>é", "left  <L>  right", "left  <R>  right", "<L><R> <L>", "  <B>  ", "one<B>two", "<N>café", "cafe\u0301<N>", "Café CAFE\u0301", "café caf", "cat\u030ce ca\u0165e xcat\u030ce\u0301", "<R>\n\n<R>x",
          "  word  ", "the word.", "swords word words", "word", "_word_", "x word-word"]
    rng = random.Random(5)
    pool = list("abcdeXYZ 019 \n\t'.,-_/éñßбгж中日한글ไท्हि🙂\u0301\u200d<|>[]") + ["'s", "  ", "\r\n", "12", " the", "ing", "<|im_end|>", "</s>", "<x>"]
    t += ["".join(rng.choice(pool) for _ in range(rng.randint(3, 40))) for _ in range(60)]
    t += [a + m + b for m in ("<s>", "</s>", "<end_of_turn>", "<x>") for a in ("hello", "hello ", " ")
          for b in (" world", "  world", "world ", " 1", "\nworld", "\tworld", "é", " é", " \u4e2d", " .", "\n\n x", " <s>")]
    return list(dict.fromkeys(t))


def train(pre, normal=None, alphabet=(), size=900):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre
    if normal:
        tok.normalizer = normal
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=list(alphabet), show_progress=False, min_frequency=2)
    tok.train_from_iterator([CORPUS.replace("\\n", "\n").replace("\\t", "\t")] * 2, trainer)
    model = json.loads(tok.to_str())["model"]
    return model["vocab"], model["merges"]


def byte_level(pre, normal=None, **options):
    vocab, merges = train(pre, normal, sorted(pre_tokenizers.ByteLevel.alphabet()))
    return Tokenizer(models.BPE(vocab=vocab, merges=[tuple(m) for m in merges], **options))


def all_merges(pieces):
    """Every pair of pieces that joins to a piece, by the piece's place: what scores mean."""
    index = {p: i for i, p in enumerate(pieces)}
    out = []
    for p in pieces:
        out += [(p[:k], p[k:]) for k in range(1, len(p)) if p[:k] in index and p[k:] in index]
    return out


def sentencepiece(fallback=True, fuse=True, extra=()):
    mark = pre_tokenizers.Metaspace(prepend_scheme="always")
    vocab, merges = train(mark)
    order = [a + b for a, b in merges]
    seen = dict.fromkeys(order)
    chars = [c for c in sorted(vocab, key=vocab.get) if c not in seen]
    keep = [c for c in chars if ord(c) < 0x400 or c == "▁" or ord(c) in range(0x4e00, 0x4e40)]
    order = [p for p in seen if all(c in keep for c in p)]
    runs = ["▁" * n for n in (2, 4, 8)]
    head = ["<unk>", "<s>", "</s>"] + list(extra) + ([f"<0x{b:02X}>" for b in range(256)] if fallback else [])
    pieces = order + [r for r in runs if r not in order] + keep
    tokens = head + pieces
    model = models.BPE(vocab={p: i for i, p in enumerate(tokens)}, merges=all_merges(pieces), unk_token="<unk>", fuse_unk=fuse,
                       byte_fallback=fallback)
    tok = Tokenizer(model)
    tok.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in ("<unk>", "<s>", "</s>")])
    return tok, tokens, len(head)


def bos(tok, token):
    return processors.TemplateProcessing(single=f"{token} $A", pair=f"{token} $A {token} $B", special_tokens=[(token, tok.token_to_id(token))])


def special(*names):
    return [AddedToken(n, normalized=False, special=True) for n in names]


def build():
    bl = lambda regex: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)
    split = lambda p, how="isolated", **kw: pre_tokenizers.Split(Regex(p), how, **kw)
    made = {}

    t = byte_level(bl(True))
    t.pre_tokenizer, t.decoder, t.post_processor = bl(True), decoders.ByteLevel(), processors.ByteLevel(trim_offsets=False)
    t.add_special_tokens(special("<|endoftext|>"))
    made["gpt2"] = t, {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}

    pre = pre_tokenizers.Sequence([split(L3), bl(False)])
    t = byte_level(pre, ignore_merges=True)
    model = json.loads(t.to_str())
    for w in ["Ġbrown", "lazy", "McDonald", "XYZ", "Ġworld", "777", "abc", "Ã©Ã©", "hello"]:  # in the vocabulary, out of the merges' reach
        model["model"]["vocab"].setdefault(w, len(model["model"]["vocab"]))
    t = Tokenizer.from_str(json.dumps(model))
    t.pre_tokenizer, t.decoder = pre, decoders.ByteLevel()
    t.add_special_tokens(special("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>"))
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), bos(t, "<|begin_of_text|>")])
    made["llama3"] = t, {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}

    pre = pre_tokenizers.Sequence([split(Q2), bl(False)])
    t = byte_level(pre, normalizers.NFC())
    t.normalizer, t.pre_tokenizer, t.decoder, t.post_processor = normalizers.NFC(), pre, decoders.ByteLevel(), processors.ByteLevel(trim_offsets=False)
    t.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    t.add_tokens([AddedToken(n, normalized=False, special=False) for n in ("<think>", "</think>", "<tool_call>", "</tool_call>")])
    made["qwen2"] = t, {"bos_token": None, "eos_token": "<|im_end|>", "add_bos_token": False}

    pre = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), bl(True)])
    t = byte_level(pre)
    t.pre_tokenizer, t.decoder = pre, decoders.ByteLevel()
    t.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    made["smollm"] = t, {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}

    pre = pre_tokenizers.Sequence([split(p) for p in D3] + [bl(False)])
    t = byte_level(pre)
    t.pre_tokenizer, t.decoder = pre, decoders.ByteLevel()
    t.add_special_tokens(special("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"))
    t.add_tokens([AddedToken(n, normalized=True, special=False) for n in ("<think>", "</think>")])
    t.post_processor = bos(t, "<｜begin▁of▁sentence｜>")
    made["deepseek3"] = t, {"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>", "add_bos_token": True, "add_eos_token": False}

    pre = pre_tokenizers.Sequence([split(O2), bl(False)])
    t = byte_level(pre)
    t.pre_tokenizer, t.decoder = pre, decoders.ByteLevel()
    t.add_special_tokens(special("<|endoftext|>", "<|return|>", "<|call|>", "<|end|>"))
    made["o200k"] = t, {"bos_token": None, "eos_token": "<|return|>"}

    sp = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t, tokens, head = sentencepiece()
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder, t.post_processor = sp, bos(t, "<s>")
    made["spm_legacy"] = t, {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True, "add_eos_token": False}
    gguf_spm = tokens, head

    t, _, _ = sentencepiece()
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t.decoder, t.post_processor = sp, bos(t, "<s>")
    made["spm_first"] = t, {"bos_token": {"content": "<s>"}, "eos_token": {"content": "</s>"}}

    t, _, _ = sentencepiece(fallback=False)
    t.pre_tokenizer, t.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    made["metaspace"] = t, {"eos_token": "</s>"}

    t, _, _ = sentencepiece(fuse=False, fallback=False)
    t.normalizer = normalizers.Sequence([normalizers.Strip(), normalizers.Lowercase(), normalizers.NFD(), normalizers.Replace(Regex(r"\d+"), "0"), normalizers.Prepend("▁")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_next")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    t.add_tokens([AddedToken("<N>", normalized=True), AddedToken("CAFÉ", normalized=True)])
    made["mixed"] = t, {"eos_token": "</s>"}

    turn = ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>")
    t, tokens, head = sentencepiece(extra=turn)
    t.normalizer, t.pre_tokenizer = normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    t.add_special_tokens(special(*turn))
    t.add_tokens([AddedToken(n, normalized=False) for n in ("\n\n", "\n\n\n", "▁▁", "▁▁▁▁", "\t\t", "<b>", "</b>")])
    t.post_processor = bos(t, "<bos>")
    made["gemma"] = t, {"bos_token": "<bos>", "eos_token": "<eos>", "add_bos_token": True, "add_eos_token": False}

    t = byte_level(bl(True))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizers.NFKC(), pre_tokenizers.ByteLevel(add_prefix_space=True), decoders.ByteLevel()
    t.add_tokens([AddedToken("aa", normalized=False), AddedToken("aab", normalized=False), AddedToken("ba", normalized=False),
                  AddedToken("<x>", single_word=True, normalized=False), AddedToken("<L>", lstrip=True, normalized=False),
                  AddedToken("<R>", rstrip=True, normalized=False), AddedToken("<B>", lstrip=True, rstrip=True, normalized=True),
                  AddedToken("word", single_word=True, normalized=True), AddedToken("cat\u030ce", normalized=True), AddedToken("   ", normalized=False)])
    t.add_special_tokens(special("</s>"))
    t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("aa", t.token_to_id("aa")), trim_offsets=False, add_prefix_space=False)
    made["added"] = t, {"eos_token": "</s>"}
    return made, gguf_spm


def strings_form(files):
    """The older spelling of merges."""
    files["tokenizer"]["model"]["merges"] = [" ".join(m) for m in files["tokenizer"]["model"]["merges"]]


def write(name, tok, config, texts):
    files = {"tokenizer": json.loads(tok.to_str()), "config": config}
    if name in ("gpt2", "qwen2", "spm_legacy"):
        strings_form(files)
    ids = [tok.encode(t, add_special_tokens=False).ids for t in texts]
    decoded = {}
    for i, t in enumerate(texts):
        d = tok.decode(ids[i], skip_special_tokens=False)
        if d != t:
            decoded[i] = d
    rng = random.Random(len(name))
    size = tok.get_vocab_size()
    byte_ids = [tok.token_to_id(f"<0x{b:02X}>") for b in range(256)]
    odd = []
    for k in range(120):
        n = rng.randint(1, 24)
        seq = [rng.randrange(size) for _ in range(n)]
        if byte_ids[0] is not None and k % 2:
            utf8 = "é中🙂a".encode()
            seq = [byte_ids[rng.choice([utf8[rng.randrange(len(utf8))], rng.randrange(256)])] if rng.random() < .7 else s for s in seq]
            if k % 4 == 1:
                seq = [byte_ids[b] for b in "é中🙂".encode()][: rng.randint(1, 9)] + seq[:rng.randint(0, 3)]
        odd.append([seq, tok.decode(seq, skip_special_tokens=False), tok.decode(seq, skip_special_tokens=True)])
    around = [[i, tok.encode(texts[i]).ids] for i in (0, 1, 18, 22) ]
    out = {"files": files, "ids": ids, "special": around, "decoded": decoded, "decode": odd}
    with open(f"{OUT}/{name}.json", "w") as f:
        json.dump(out, f, ensure_ascii=False, separators=(",", ":"))


def write_gguf(name, model, pre, tok, head=0, **options):
    w = gguf.GGUFWriter(f"{OUT}/{name}.gguf", "llama")
    j = json.loads(tok.to_str())
    vocab = dict(j["model"]["vocab"])
    added = {a["content"]: a for a in j["added_tokens"]}
    for a in j["added_tokens"]:
        vocab[a["content"]] = a["id"]
    tokens = sorted(vocab, key=vocab.get)
    kind = lambda t: (2 if t == "<unk>" else 3 if added[t]["special"] else 4) if t in added else 6 if t.startswith("<0x") else 1
    w.add_tokenizer_model(model)
    w.add_tokenizer_pre(pre)
    w.add_token_list([t.replace("▁", " ") if kind(t) == 4 else t for t in tokens])
    w.add_token_types([kind(t) for t in tokens])
    if model == "llama":
        w.add_token_scores([0.0 if i < head else -float(i - head) for i in range(len(tokens))])
    else:
        w.add_token_merges([" ".join(m) if isinstance(m, list) else m for m in j["model"]["merges"]])
    for key, value in options.items():
        getattr(w, key)(value)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()


def main():
    os.makedirs(OUT, exist_ok=True)
    all_texts = texts()
    with open(f"{OUT}/texts.json", "w") as f:
        json.dump(all_texts, f, ensure_ascii=False, separators=(",", ":"))
    made, (_, head) = build()
    for name, (tok, config) in made.items():
        write(name, tok, config, all_texts)
    get = lambda n, t: made[n][0].token_to_id(t)
    write_gguf("gpt2", "gpt2", "gpt-2", made["gpt2"][0], add_bos_token_id=get("gpt2", "<|endoftext|>"), add_eos_token_id=get("gpt2", "<|endoftext|>"))
    write_gguf("llama3", "gpt2", "llama-bpe", made["llama3"][0], add_bos_token_id=get("llama3", "<|begin_of_text|>"), add_eos_token_id=get("llama3", "<|eot_id|>"))
    write_gguf("qwen2", "gpt2", "qwen2", made["qwen2"][0], add_eos_token_id=get("qwen2", "<|im_end|>"), add_add_bos_token=False)
    write_gguf("smollm", "gpt2", "smollm", made["smollm"][0], add_bos_token_id=get("smollm", "<|im_start|>"), add_eos_token_id=get("smollm", "<|im_end|>"), add_add_bos_token=False)
    write_gguf("deepseek3", "gpt2", "deepseek-v3", made["deepseek3"][0], add_bos_token_id=get("deepseek3", "<｜begin▁of▁sentence｜>"), add_eos_token_id=get("deepseek3", "<｜end▁of▁sentence｜>"), add_add_bos_token=True)
    write_gguf("o200k", "gpt2", "gpt-4o", made["o200k"][0], add_eos_token_id=get("o200k", "<|return|>"))
    write_gguf("spm_legacy", "llama", "default", made["spm_legacy"][0], head, add_bos_token_id=1, add_eos_token_id=2, add_unk_token_id=0)


main()
