#!/usr/bin/env python3
"""quality.py BUILD FILE [--tokens N] [--kinds] [--layers] - what the default arithmetic and each KV type cost on bench/quality.txt.

Runs BUILD/bench/quality (its head says what the figures are), appends its lines with commit and command to
bench/results/quality.jsonl (RESULTS=FILE: elsewhere) and prints them as a Markdown table. The figures do not depend on the
machine. TEXT=FILE: another text.
"""

import datetime
import json
import os
import subprocess
import sys

import record


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    text = os.environ.get("TEXT") or os.path.join(record.ROOT, "bench", "quality.txt")
    command = [os.path.join(sys.argv[1], "bench", "quality"), "--text", text, "--model", *sys.argv[2:]]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    stamp = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "commit": record.commit(),
             "command": record.shown(command)}
    lines = [dict(json.loads(line), **stamp) for line in done.stdout.splitlines()]
    record.add(os.environ.get("RESULTS") or record.path("quality"), lines)
    if done.returncode:
        sys.exit(done.returncode)
    print(f"\n{lines[0]['model']}, {lines[0]['tokens']} tokens, commit {lines[0]['commit']}; reference: f32 activations and KV.\n")
    print("| | KL mean, nats | median | p99 | max | top-1 same | perplexity | of f32 |\n" + "|---" * 8 + "|")
    for q in lines:
        print(f"| {q['what']} | {q['kl_mean']:.1e} | {q['kl_median']:.1e} | {q['kl_p99']:.1e} | {q['kl_max']:.1e} | "
              f"{100 * q['top1']:.2f} % | {q['perplexity']:.3f} | {q['perplexity_f32']:.3f} |")


main()
