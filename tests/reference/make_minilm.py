"""Makes tests/fixtures/real/minilm.json: what sentence-transformers gives for all-MiniLM-L6-v2.

Run from the repository root: python tests/reference/make_minilm.py FOLDER      (sentence-transformers 6.2, torch 2.15)
"""
import json
import sys

import torch
from sentence_transformers import SentenceTransformer

torch.set_num_threads(1)
TEXTS = ["A cat sits on the mat.", "A feline is resting on a rug.", "Interest rates were raised by a quarter point.", "x", "  ", "Ünïcödé 中文 🙂 [MASK] don't",
         "The quick brown fox jumps over the lazy dog. " * 9, "word " * 254, "def f(x):\n    return x ** 2 + 1\n"]


def main():
    st = SentenceTransformer(sys.argv[1], device="cpu")
    vectors = st.encode(TEXTS, convert_to_numpy=True, show_progress_bar=False)
    tokens = sum(len(st.tokenizer(t)["input_ids"]) for t in TEXTS)
    with open("tests/fixtures/real/minilm.json", "w") as f:
        json.dump({"texts": TEXTS, "tokens": tokens, "limit": st.max_seq_length, "vectors": [[float("%.7g" % x) for x in v] for v in vectors]}, f, separators=(",", ":"))


main()
