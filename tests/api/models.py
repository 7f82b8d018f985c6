"""models.py - one tiny model of each kind, from the fixtures, as arguments of `oxinferd serve`."""
import os

FIXTURES = os.path.join("tests", "fixtures")
MODELS = {
    "oxinfer-tiny": os.path.join("server", "demo", "oxinfer-tiny.gguf"),
    "minilm": os.path.join(FIXTURES, "embed", "tiny"),
    "whisper": os.path.join(FIXTURES, "whisper", "multi"),
    "orpheus": os.path.join(FIXTURES, "speech", "orpheus-tiny"),
    "sd": os.path.join(FIXTURES, "sd", "tiny-sd1"),
    "jev": os.path.join(FIXTURES, "decide", "judge"),
}


def tiny_models():
    args = []
    for name, path in MODELS.items():
        args += ["--model", f"{name}={path}"]
    return args
