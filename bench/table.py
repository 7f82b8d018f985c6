#!/usr/bin/env python3
"""table.py [--last] FILE.jsonl... - results of compare.py and serve_compare.py as Markdown tables, one for each machine, instruction set and commit.

A cell has tokens a second here, at llama.cpp, the ratio, and the share of the machine's limit measured in the same run (read
bandwidth for decoding, integer products or FMA for prefill). Of several lines for one figure the last one counts. --last: of all
commits together.
"""

import json
import sys

COLUMNS = (("decode", "decode"), ("parallel", "8 together"), ("prefill", "prefill 512"), ("depth", "decode at 2048"))


def cell(line):
    if line is None:
        return ""
    if line.get("tok_s") is None:
        return "failed: " + (line.get("reason") or "?")
    share = f" ({100 * line['share']:.0f} %)"
    if line.get("llama") is None:
        return f"{line['tok_s']:.4g}{share}; peer: {line.get('llama_reason') or 'none'}"
    return f"{line['tok_s']:.4g} / {line['llama']['tok_s']:.4g} = **{line['ratio']:.2f}**{share}"


def number(threads):
    return f"{threads} thread" + ("" if threads == 1 else "s")


def show(lines, last=False, out=sys.stdout):
    tables = {}
    for line in lines:
        m = line["machine"]
        key = (m["cpu"], m["cores"], line.get("isa") or line["settings"].get("ISA", "auto"), "" if last else line["commit"])
        activations = line["settings"].get("ACTIVATIONS")
        file = line["model"].removesuffix(".gguf") + (f", activations {activations}" if activations else "")
        tables.setdefault(key, {}).setdefault((file, line["threads"]), {})[line["kind"]] = line
    for (cpu, cores, isa, commit), rows in tables.items():
        shown = [c for cells in rows.values() for c in cells.values()]
        loads = [c["load"] for c in shown]
        used = [(k, title) for k, title in COLUMNS if any(k in cells for cells in rows.values())]
        print(f"{cpu}, {cores} cores, {isa}{', commit ' + commit if commit else ''}, {min(c['date'] for c in shown)[:10]}, "
              f"load average {min(loads):.1f} to {max(loads):.1f}. Tokens/s here / llama.cpp = ratio (share of the limit).\n", file=out)
        print("| file | | " + " | ".join(title for _, title in used) + " |\n" + "|---" * (2 + len(used)) + "|", file=out)
        for (file, threads), cells in rows.items():
            print(f"| {file} | {number(threads)} | " + " | ".join(cell(cells.get(k)) for k, _ in used) + " |",
                  file=out)
        print(file=out)


def serving_cell(line, side):
    x = line[side]
    if x is None:
        return ""
    if "figure" not in x:
        return "failed: " + x.get("reason", "?")
    if line["test"].startswith("clients"):
        return f"{x['figure']:.4g} tok/s"
    if line["test"] != "stall":
        return f"{x['figure']:.4g} ms"
    long = x["runs"][-1]["long"]
    probes = max(p["p99"] for p in long["probes_ms"].values() if p)
    return (f"{x['figure']:.4g} ms longest, p99 {long['gap_ms']['p99']:.4g}; probes p99 {probes:.2g}; long prompt after "
            f"{long['ttft_s']:.3g} s")


def show_serving(lines, out=sys.stdout):
    """Results of serve_compare.py; of several lines for one figure the last one counts."""
    tables = {}
    for line in lines:
        m = line["machine"]
        tables.setdefault((m["cpu"], m["cores"], line["isa"], line["commit"]), {})[line["model"], line["test"]] = line
    for (cpu, cores, isa, commit), rows in tables.items():
        loads = [line["load"] for line in rows.values()]
        print(f"{cpu}, {cores} cores, {isa}, commit {commit}, load average {min(loads):.1f} to {max(loads):.1f}.\n\n"
              "| file | test | oxinferd | llama-server | times better |\n|---|---|---|---|---|", file=out)
        for (model, test), line in rows.items():
            print(f"| {model.removesuffix('.gguf')} | {test} | {serving_cell(line, 'oxinferd')} | {serving_cell(line, 'llama')} | "
                  f"{line.get('ratio', '')} |", file=out)
        print(file=out)


def main():
    files = [a for a in sys.argv[1:] if not a.startswith("--")]
    if not files:
        sys.exit(__doc__)
    lines = []
    for name in files:
        with open(name) as f:
            lines += map(json.loads, f)
    kinds = [[x for x in lines if (x.get("kind") == "serving") == serving] for serving in (False, True)]
    show(kinds[0], "--last" in sys.argv)
    show_serving(kinds[1])


if __name__ == "__main__":
    main()
