"""Makes tests/fixtures/tokenizer/wordpiece*.json: tiny WordPiece tokenizers, nasty texts, and what `tokenizers` says.

Run from the repository root: python tests/reference/make_wordpiece.py       (tokenizers 0.23)

NAME.json   {"files": {"tokenizer", "config"}, "texts": [..], "ids": [ids of each text], "special": [ids with [CLS] and [SEP]],
            "decoded": [decoded ids]}
wordpiece_folder/   vocab.txt and tokenizer_config.json of wordpiece_cased, for a folder without tokenizer.json
"""
import json
import os

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

OUT = "tests/fixtures/tokenizer"

WORDS = """the little server reads a question and answer it every word is made of piece don t can not he s they re we ve i m hello world
cafe naive uber strasse größer straße Hello World Café resume ing ed s er est un believ able embed token ize r 1 2 3 12 2024 x y a b c d e f
ein i İ ss ß σ ς οδος ος привет мир ии й 한국어 ᄒ ᅡ ᆫ ᄀ ᅮ ᆨ 中 国 文 学 𠀀 か が カ ガ ｶ क ह न हिन्दी ก า € © → ½ ﬁ fi ǆ ø ł n o p q z g h j k l u v w t""".split()


def vocab():
    tokens = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens += list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + list("。，！？「」—–’“”…٪।᙭\u2030\u00a7\u00b6\u00a1\u00bf")
    tokens += WORDS + [f"##{w}" for w in WORDS if len(w) <= 5] + ["##\u0301", "\u0301", "e\u0301", "##u\u0308", "##i\u0307", "\u0307"]
    return list(dict.fromkeys(tokens))


TEXTS = [
    "", " ", "\t\n\r ", "hello", "Hello World", "hello world.", "HELLO, WORLD!", "the server's unbelievable tokenizers", "don't can't he's they're we've I'm",
    "Café naïve Über RÉSUMÉ", "cafe\u0301 nai\u0308ve", "straße STRASSE ẞ größer", "İstanbul İ ıi", "ΟΔΟΣ οδος ς Σ", "ǅ Ǆ ǆ", "ø Ø ł Ł ﬁ ½",
    "Привет, мир! Йй ё", "한국어", "\u1112\u1161\u11ab\u1100\u116e\u11a8", "中国文学", "a中b国c", "𠀀𠀁", "\U0002b820 \U0002b91f \U0002b920 \U0002b81f \U0002ceaf \U0002ceb0",
    "かがカガｶﾞ", "हिन्दी कि", "กา กำ", "€ © → ₿ ☃", "a€b a©b a→b", "x+y=z <a> ^b `c` |d| ~e $1", "«a» “b” ‘c’ —d– …", "a\u166db", "٪ । ‰ § ¶ ¡a! ¿b?",
    "a\u00adb", "a\u200bb\u200cc\u200dd", "\ufeffhello", "a\u202ab\u202cc", "a\u0000b", "a\x01b\x7fc\x85d\x0be\x0cf", "a\ufffdb", "a\ue000b\U000f0000c", "a\U000e0041b",
    "a\u00a0b\u1680c\u2003d\u2028e\u2029f\u202fg\u205fh\u3000i", "a\u180eb", "\u0301", "\u0301a", "e\u0301\u0323", "a\u20ddb", "\u0345", "a\u0903b",
    "👨‍👩‍👧 🇩🇪 👍🏽 ❤️", "1️⃣", "a" * 100, "a" * 101, "é" * 100, "é" * 101, "中" * 50, "ab" * 60, "hello" * 20, "hello" * 21, "##s", "# # s ##", "hello##ing",
    "[MASK]", "a [MASK] b", "[mask]", "[CLS] hello [SEP]", "x[SEP]y", "[UNK] [PAD]", "[unused0]", "[ MASK ]", "[[MASK]]", "hello zzqq world", "qqzz", "é", "É",
    "embedding embeds embedded embedder", "2024-01-31 12:3", "user.name@example.org", "a.b,c;d:e!f?g", "...", "hello...world", "a--b", "(a) [b] {c}", "a_b",
    "  leading and trailing  ", "line one\nline two\r\nline three", "\u1e9e \u0130 \u0131 \u017f", "\u0041\u030a \u212b \u00c5", "ＡＢＣ １２３", "٣٤٥", "\u2160 \u2170", "\ud7a3 \uac00",
    "\u0378 \u0379", "\U0010ffff", "a\u034fb", "\u115f\u1160", "ﷺ", "ﬀ ﬃ", "\u1100\u1161", "i\u0307", "I\u0307", "\u0344", "\u0958", "\u0f43",
]


def make(lower, strip=None, chinese=True):
    tok = Tokenizer(models.WordPiece({t: i for i, t in enumerate(vocab())}, unk_token="[UNK]"))
    tok.normalizer = normalizers.BertNormalizer(lowercase=lower, strip_accents=strip, handle_chinese_chars=chinese)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.decoder = decoders.WordPiece()
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")])
    return tok


def write(name, tok, files=None):
    files = files or {"tokenizer": json.loads(tok.to_str()), "config": {}}
    ids = [tok.encode(t, add_special_tokens=False).ids for t in TEXTS]
    out = {"files": files, "texts": TEXTS, "ids": ids, "special": [tok.encode(t).ids for t in TEXTS],
           "decoded": [tok.decode(i, skip_special_tokens=False) for i in ids]}
    with open(f"{OUT}/{name}.json", "w") as f:
        json.dump(out, f, ensure_ascii=True, separators=(",", ":"))


def main():
    tok = make(True)
    cls, sep = tok.token_to_id("[CLS]"), tok.token_to_id("[SEP]")
    tok.post_processor = processors.TemplateProcessing(single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
                                                       special_tokens=[("[CLS]", cls), ("[SEP]", sep)])
    write("wordpiece", tok)
    tok = make(False)
    tok.post_processor = processors.BertProcessing(("[SEP]", sep), ("[CLS]", cls))
    write("wordpiece_cased", tok)
    os.makedirs(f"{OUT}/wordpiece_folder", exist_ok=True)
    with open(f"{OUT}/wordpiece_folder/vocab.txt", "w") as f:
        f.write("".join(t + "\n" for t in vocab()))
    with open(f"{OUT}/wordpiece_folder/tokenizer_config.json", "w") as f:
        json.dump({"do_lower_case": False, "tokenizer_class": "BertTokenizer", "mask_token": {"content": "[MASK]"}}, f)
    tok = make(True, strip=False, chinese=False)
    tok.post_processor = processors.BertProcessing(("[SEP]", sep), ("[CLS]", cls))
    write("wordpiece_accents", tok)


main()
