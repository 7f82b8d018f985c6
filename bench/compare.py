#!/usr/bin/env python3
"""compare.py OXINFERD MODEL [PEERS] - speed of a model, beside llama.cpp's on the same file where PEERS has it built.

Both run in turn, pinned to the same cores, REPS times (default 5); a JSON line a figure has both medians and their ratio.
PEERS is the folder whose llama/bin holds llama-bench. Only GGUF files can be compared. One and all usable cores are tried.
"""

import json
import os
import statistics
import subprocess
import sys

REPS = int(os.environ.get("REPS", "5"))


def pinned(cores, command):
    text = ",".join(map(str, cores))
    return subprocess.run(["taskset", "-c", text] + command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def ours(oxinferd, model, cores, pp, tg):
    out = pinned(cores, [oxinferd, "bench", "--model", model, "--threads", str(len(cores)), "--pp", str(pp), "--tg", str(tg), "--reps", "1"])
    return {line["test"]: line for line in map(json.loads, out.splitlines())}


def llama(bench, model, cores, pp, tg):
    out = pinned(cores, [bench, "-m", model, "-t", str(len(cores)), "-p", str(pp), "-n", str(tg), "-r", "1", "-o", "jsonl"])
    rows = map(json.loads, out.splitlines())
    return {("pp%d" % r["n_prompt"] if r["n_prompt"] else "tg%d" % r["n_gen"]): r["avg_ts"] for r in rows}


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    oxinferd, model = sys.argv[1:3]
    bench = os.path.join(sys.argv[3], "llama/bin/llama-bench") if len(sys.argv) > 3 and sys.argv[3] else None
    if bench and not os.path.exists(bench):
        sys.exit(f"there is no {bench}")
    usable = sorted(os.sched_getaffinity(0))
    for cores in ([usable[:1], usable] if len(usable) > 1 else [usable]):
        mine, theirs = [], []
        for _ in range(REPS):
            mine.append(ours(oxinferd, model, cores, 512, 64))
            if bench and model.endswith(".gguf"):
                theirs.append(llama(bench, model, cores, 512, 64))
        for test in mine[0]:
            line = dict(mine[0][test], model=os.path.basename(model), reps=REPS)
            line["tok_s"] = round(statistics.median(m[test]["tok_s"] for m in mine), 2)
            line["share"] = round(statistics.median(m[test]["share"] for m in mine), 3)
            line.pop("gb_s", None)
            if theirs and test in theirs[0]:
                line["llama_tok_s"] = round(statistics.median(t[test] for t in theirs), 2)
                line["ratio"] = round(line["tok_s"] / line["llama_tok_s"], 2)
            print(json.dumps(line), flush=True)


main()
