"""record.py - what the scripts of this folder share: where results go and what is noted with them."""

import json
import os
import platform
import re
import shlex
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def shown(command):
    """The command without where its files lie."""
    return shlex.join(os.path.basename(w) if os.sep in w else w for w in command)


def said(command):
    try:
        return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()
    except OSError:
        return ""


def commit():
    """The commit's short name, with + when files differ from it; "unknown" without git or its folder."""
    name = said(["git", "rev-parse", "--short", "HEAD"])
    return name + ("+" if said(["git", "status", "--porcelain", "-uno"]) else "") if name else "unknown"


def machine():
    with open("/proc/cpuinfo") as f:
        info = f.read()
    model = re.search(r"^model name\s*: (.*)$", info, re.M)
    flags = (re.search(r"^(?:flags|Features)\s*: (.*)$", info, re.M) or [None, ""])[1].split()
    wanted = ("avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "asimd", "asimddp", "i8mm")
    return {"cpu": model[1] if model else platform.machine(), "cores": len(os.sched_getaffinity(0)),
            "features": [w for w in wanted if w in flags]}


def host(here):
    """A machine() as a part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", here["cpu"].lower()).strip("-")


def peer(isa, program):
    """The folder of the peer's programs and its version; None where there is none."""
    base = os.environ.get("PEERS_AVX2" if isa == "avx2" else "PEERS")
    if not base:
        if isa == "avx2" and os.environ.get("PEERS"):
            sys.exit("ISA=avx2 compares with a peer without AVX-512: PEERS_AVX2=DIR")
        return None, None
    folder = os.path.join(base, "llama", "bin")
    if not os.path.exists(os.path.join(folder, program)):
        sys.exit(f"there is no {folder}/{program}")
    version = ""
    if os.path.exists(os.path.join(folder, "VERSION")):
        with open(os.path.join(folder, "VERSION")) as f:
            version = "; ".join(f.read().split("\n")[:2])
    return folder, version


def path(name):
    folder = os.path.join(ROOT, "bench", "results")
    os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, name + ".jsonl")


def add(where, lines):
    """Appends the lines to a file and prints them."""
    with open(where, "a") as out:
        for line in map(json.dumps, lines):
            print(line, flush=True)
            out.write(line + "\n")
