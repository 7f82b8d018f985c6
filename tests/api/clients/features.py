"""features.py - what the Python clients of this folder share: the daemon's address, and a line of output for each feature.

    @feature("chat")
    def _(): ...
    main("openai", openai.__version__)

Lines: "client NAME VERSION", then "ok FEATURE", "differs FEATURE: how" (the client cannot, or does it its own way), "not ok
FEATURE: why".
"""
import os
import traceback

URL = os.environ["OXINFERD_URL"]
FEATURES = []
WAV = os.environ["OXINFERD_WAV"]
USER1 = [{"role": "user", "content": "1"}]
RED = {"type": "object", "properties": {"color": {"type": "string", "enum": ["red"]}}, "required": ["color"], "additionalProperties": False}
WEATHER = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}}, "required": ["city"], "additionalProperties": False}


class Differs(Exception):
    """The client's own doing: what it does instead."""


def user(text):
    return [{"role": "user", "content": text}]


def feature(name):
    def add(f):
        FEATURES.append((name, f))
        return f
    return add


def main(name, version):
    print(f"client {name} {version}", flush=True)
    for what, f in FEATURES:
        try:
            f()
            print(f"ok {what}", flush=True)
        except Differs as e:
            print(f"differs {what}: {e}", flush=True)
        except Exception as e:
            where = [x for x in traceback.extract_tb(e.__traceback__) if x.filename.endswith((f"{name}.py", "features.py"))]
            text = f"{type(e).__name__} in line {where[-1].lineno if where else '?'}: {e}".replace("\n", " | ")
            print(f"not ok {what}: {text[:500]}", flush=True)
