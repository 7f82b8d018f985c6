#!/usr/bin/env python3
"""compare.py OXINFERD FILE... - speed of models, beside llama.cpp's on the same files in the same run.

Both run in turn, pinned to the same cores. A line of JSON for every file, number of threads and test goes to the output and is
appended to bench/results; at the end the table of this run goes to the error output (bench/table.py makes others). Only GGUF
files can be compared. From the environment:

  PEERS=DIR         DIR/llama/bin has llama-bench and llama-batched-bench; unset: oxinferd alone
  ISA=NAME          of oxinferd (default auto); with avx2 the peer is that of PEERS_AVX2, which must be built without AVX-512
  ACTIVATIONS=NAME  of oxinferd (default int8)
  TESTS=...         of decode parallel prefill depth (default all)
  THREADS=...       numbers of threads; all (default "1 all")
  REPS=5            measurements of each figure, which is their median
  ROUNDS=2          in how many parts, in turn with llama.cpp's, they are made (at depth: oxinferd in two, llama.cpp in one)
  FA=auto           llama.cpp's flash attention at depth: auto tries both with all threads and takes the faster; on, off
  TIME_LIMIT=180    seconds for one run of a program
  DEPTH=2048        of the test depth
  RESULTS=FILE      default bench/results/HOST_ISA.jsonl
"""

import datetime
import json
import os
import re
import statistics
import subprocess
import sys

import record
import table

ENV = os.environ.get
REPS = max(1, int(ENV("REPS") or 5))
TESTS = (ENV("TESTS") or "decode parallel prefill depth").replace(",", " ").split()
THREADS = (ENV("THREADS") or "1 all").replace(",", " ").split()
ROUNDS = max(1, int(ENV("ROUNDS") or 2))
LIMIT = float(ENV("TIME_LIMIT") or 180)
DEPTH = int(ENV("DEPTH") or 2048)
ISA = ENV("ISA") or "auto"
FA = ENV("FA") or "auto"
ACTIVATIONS = ENV("ACTIVATIONS")
DECODE, PROMPT, PARALLEL, SHORT, DEEP = 64, 512, 8, 16, 12  # tokens; SHORT: of each of PARALLEL sequences; DEEP: at depth
TEST_NAMES = {"decode": f"tg{DECODE}", "parallel": f"tg{SHORT} x{PARALLEL}", "prefill": f"pp{PROMPT}", "depth": f"tg{DEEP} @{DEPTH}"}


def parts(n):
    """REPS in n parts."""
    return [len(range(i, REPS, n)) for i in range(min(n, REPS))] + [0] * (n - REPS)


class Failed(Exception):
    pass


def run(cores, command):
    """The JSON lines that a program prints, pinned to cores."""
    command = ["taskset", "-c", ",".join(map(str, cores))] + command
    try:
        done = subprocess.run(command, timeout=LIMIT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
    except subprocess.TimeoutExpired:
        raise Failed(f"no end after {LIMIT:g} s") from None
    except OSError as why:
        raise Failed(str(why)) from None
    lines = [json.loads(x) for x in done.stdout.splitlines() if x.startswith("{")]
    if done.returncode or not lines:
        said = [x for x in done.stderr.splitlines() if re.search("error|fail|unsupported|unknown|oxinferd:", x, re.I)]
        text = (said or done.stderr.splitlines() or ["no figures"])[0]
        raise Failed(f"status {done.returncode}: {re.sub(r'/[^ :]*/', '', text)[:200]}")
    return lines


class Side:
    """What one of the programs measured of one figure; samples of a run before one that failed do not count."""

    def __init__(self):
        self.samples, self.lines, self.command, self.failure = [], [], None, None


class Bench:
    """One file on some cores."""

    def __init__(self, oxinferd, peer, model, cores):
        self.oxinferd, self.peer, self.model, self.cores = oxinferd, peer, model, cores
        self.ours, self.theirs = {}, {}
        self.fa = {}

    def keep(self, sides, figures, command, kind_of, samples_of):
        """Runs it and adds what it prints to the sides. figures: the test that each kind of line is a figure of."""
        mine = [sides.setdefault(test, Side()) for test in figures.values()]
        failed = next((side.failure for side in mine if side.failure), None)
        if not failed:
            try:
                for line in run(self.cores, command):
                    side = sides[figures[kind_of(line)]]
                    side.samples += samples_of(line)
                    side.lines.append(line)
            except Failed as why:
                failed = str(why)
        for side in mine:
            side.command, side.failure = record.shown(command), failed

    def mine(self, figures, reps, *args):
        command = [self.oxinferd, "bench", "--model", self.model, "--threads", str(len(self.cores)), "--reps", str(reps)]
        command += ["--isa", ISA, *(["--activations", ACTIVATIONS] if ACTIVATIONS else []), *map(str, args)]
        self.keep(self.ours, figures, command, lambda line: line["test"][:2], lambda line: line["samples"])

    def llama_bench(self, figures, reps, *args):
        if self.peer:
            command = [os.path.join(self.peer, "llama-bench"), "-m", self.model, "-t", str(len(self.cores)), "-r", str(reps)]
            command += ["-o", "jsonl", *map(str, args)]
            self.keep(self.theirs, figures, command, lambda line: "pp" if line["n_prompt"] else "tg", lambda line: line["samples_ts"])

    def llama_batched(self, test, reps):
        if self.peer:
            command = [os.path.join(self.peer, "llama-batched-bench"), "-m", self.model, "-t", str(len(self.cores)), "-npp",
                       str(SHORT), "-ntg", str(SHORT), "-npl", ",".join([str(PARALLEL)] * reps), "-c", "2048", "--output-format", "jsonl"]
            self.keep(self.theirs, {"tg": test}, command, lambda line: "tg", lambda line: [line["speed_tg"]])

    # ---- the tests. A run of a program loads the file and warms up, so a few runs with a part of the measurements each,
    # in turn with the other program's, cost less than one for each measurement.

    def single(self, tests):
        figures, args, llama_args = {}, [], []
        for kind, test, ours, theirs, count in (("pp", "prefill", "--pp", "-p", PROMPT), ("tg", "decode", "--tg", "-n", DECODE)):
            count = count if test in tests else 0
            args += [ours, count]
            llama_args += [theirs, count]
            if count:
                figures[kind] = test
        for reps in filter(None, parts(ROUNDS)):
            self.mine(figures, reps, *args)
            self.llama_bench(figures, reps, *llama_args)

    def parallel(self):
        for reps in filter(None, parts(ROUNDS)):
            self.mine({"tg": "parallel"}, reps, "--pp", 0, "--tg", SHORT, "--depth", SHORT, "--parallel", PARALLEL)
            self.llama_batched("parallel", reps)

    def depth(self, fa):
        """Filling the cache takes longest: one run of llama.cpp between two of ours. Of two ways of flash attention the second
        has two measurements, and the rest when it is faster. Returns the way that counts."""
        first, second = parts(2)
        args = ["--pp", 0, "--tg", DEEP, "--depth", DEPTH]
        self.mine({"tg": "depth"}, first, *args)
        speed = {}
        for i, way in enumerate(fa):
            self.at_depth(way, min(REPS, 2) if i else REPS)
            side = self.theirs.get("depth " + way)
            speed[way] = statistics.median(side.samples) if side and side.samples else 0
            if i and speed[way] > speed[fa[0]] and REPS > 2:
                self.at_depth(way, REPS - 2)
        if second:
            self.mine({"tg": "depth"}, second, *args)
        best = max(speed, key=speed.get)
        if "depth " + best in self.theirs:
            self.theirs["depth"] = self.theirs["depth " + best]
        self.fa = {way: round(x, 2) for way, x in speed.items()}
        return best

    def at_depth(self, way, reps):
        self.llama_bench({"tg": "depth " + way}, reps, "-p", 0, "-n", DEEP, "-d", DEPTH, "-fa", {"on": 1, "off": 0}[way])


def result(bench, test, base):
    ours, theirs = bench.ours.get(test, Side()), bench.theirs.get(test)
    line = dict(base, test=TEST_NAMES[test], kind=test, threads=len(bench.cores), reps=len(ours.samples), command=ours.command)
    if ours.failure or not ours.samples:
        line.update(tok_s=None, reason=ours.failure)
    else:
        speed = statistics.median(ours.samples)
        last = ours.lines[-1]
        rate = last["rate"] / last["tok_s"] * speed
        line.update(tok_s=round(speed, 2), limit=statistics.median(x["limit"] for x in ours.lines), limit_unit=last["limit_unit"],
                    rate=round(rate, 2), share=round(statistics.median(x["share"] for x in ours.lines), 3),
                    bytes_token=last["bytes_token"], isa=last["isa"], samples=ours.samples)
    line["llama"] = None
    if theirs is None:
        line["llama_reason"] = "not run"
    elif theirs.failure or not theirs.samples:
        line["llama_reason"] = theirs.failure
    else:
        speed = statistics.median(theirs.samples)
        line["llama"] = {"tok_s": round(speed, 2), "samples": [round(s, 2) for s in theirs.samples], "command": theirs.command}
        if test == "depth":
            line["llama"]["flash_attn"] = bench.fa
        if line["tok_s"]:
            line["ratio"] = round(line["tok_s"] / speed, 2)
    return line


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    for t in TESTS:
        if t not in TEST_NAMES:
            sys.exit(f"TESTS: '{t}' is no test, expected {' '.join(TEST_NAMES)}")
    peer, version = record.peer(ISA, "llama-bench")
    usable = sorted(os.sched_getaffinity(0))
    counts = sorted({len(usable) if t == "all" else min(int(t), len(usable)) for t in THREADS}, reverse=True)
    here, commit = record.machine(), record.commit()
    path = ENV("RESULTS") or record.path(f"{record.host(here)}_{ISA}")
    settings = {k: ENV(k) for k in ("ISA", "ACTIVATIONS", "TESTS", "THREADS", "REPS", "ROUNDS", "FA", "DEPTH") if ENV(k)}
    done = []
    for model in sys.argv[2:]:
        fa = ("on", "off") if FA == "auto" else (FA,)
        for n in counts:  # all threads come first: they find the better flash attention in less time
            shared = {"commit": commit, "machine": here, "settings": settings, "model": os.path.basename(model),
                      "file_bytes": os.path.getsize(model), "llama_version": version}
            bench = Bench(sys.argv[1], peer if model.endswith(".gguf") else None, model, usable[:n])
            for tests in (("prefill", "decode"), ("parallel",), ("depth",)):
                tests = [t for t in tests if t in TESTS]
                began = datetime.datetime.now(datetime.timezone.utc)
                base = dict(shared, date=began.isoformat(timespec="seconds"), load=os.getloadavg()[0])
                if tests == ["parallel"]:
                    bench.parallel()
                elif tests == ["depth"]:
                    fa = (bench.depth(fa),)
                elif tests:
                    bench.single(tests)
                took = (datetime.datetime.now(datetime.timezone.utc) - began).total_seconds()
                lines = [dict(result(bench, t, base), took_s=round(took / len(tests), 1)) for t in tests]
                record.add(path, lines)
                done += lines
    table.show(done, out=sys.stderr)


main()
