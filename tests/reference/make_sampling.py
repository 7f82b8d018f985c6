#!/usr/bin/env python3
"""make_sampling.py - writes tests/fixtures/sampling/transformers.json: what transformers' logits processors and warpers make
of random logits. Needs torch and transformers (5.24 was used)."""
import json
import pathlib

import torch
from transformers import (MinPLogitsWarper, RepetitionPenaltyLogitsProcessor, TopKLogitsWarper, TopPLogitsWarper,
                          TypicalLogitsWarper)

VOCAB = 40


def main():
    gen = torch.Generator().manual_seed(5)
    cases = []
    for i in range(24):
        logits = (torch.randn(VOCAB, generator=gen) * 2.5).float()
        prompt = torch.randint(0, VOCAB, (9,), generator=gen)
        kept = {}
        for name, value, warper in [("typical_p", p, TypicalLogitsWarper(p)) for p in (0.2, 0.5, 0.9)] + \
                [("top_p", p, TopPLogitsWarper(p)) for p in (0.3, 0.9)] + \
                [("min_p", p, MinPLogitsWarper(p)) for p in (0.05, 0.3)] + [("top_k", 7, TopKLogitsWarper(7))]:
            out = warper(prompt[None], logits[None].clone())[0]
            kept[f"{name}={value}"] = [int(t) for t in torch.nonzero(out > -float("inf"))[:, 0]]
        penalty = [1.1, 1.3, 2.0, 0.8][i % 4]
        punished = RepetitionPenaltyLogitsProcessor(penalty)(prompt[None], logits[None].clone())[0]
        cases.append({"logits": [round(float(x), 6) for x in logits], "prompt": prompt.tolist(), "penalty": penalty,
                      "punished": [round(float(x), 5) for x in punished], "greedy": int(punished.argmax()),
                      "kept": kept})
    folder = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "sampling"
    folder.mkdir(exist_ok=True)
    (folder / "transformers.json").write_text(json.dumps(cases, separators=(",", ":")))


if __name__ == "__main__":
    main()
