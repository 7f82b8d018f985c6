#!/usr/bin/env python3
"""serve_compare.py BUILD FILE... - how models are served, beside llama-server with the same files under the same load.

Both servers run in turn, pinned to the same cores, which the load generator (build/bench/load) shares with them. A line of
JSON for every file and test goes to the output and is appended to bench/results; a table follows on the error output.

  clients   N clients that ask again when they have their answer (60-token prompts, 64 tokens out): tokens a second, all together
  ttft60    8 prompts of 60 tokens at once: time to the first token
  ttft400   8 prompts of 400 tokens at once
  stall     8 streams, then a prompt of 4,000 tokens beside them: gaps between a stream's tokens meanwhile, and health checks

From the environment:

  PEERS=DIR         DIR/llama/bin has llama-server; unset: oxinferd alone
  ISA=NAME          of oxinferd; with avx2 the peer is that of PEERS_AVX2, which must be built without AVX-512
  TESTS=...         of clients ttft60 ttft400 stall (default all)
  CLIENTS="1 4 8 16"
  ROUNDS=3          how often each is measured, in turn; figures are medians
  STALL_ROUNDS=1    the same for the stall test
  LONG=4000         tokens of its prompt
  COMPLETIONS=1     /v1/completions with token ids instead of chat, for files without a chat template
  TIME_LIMIT=300    seconds for one run of the load generator
  RESULTS=FILE      default bench/results/HOST_serving.jsonl
"""

import datetime
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import record
import table

ENV = os.environ.get
ISA = ENV("ISA") or "auto"
TESTS = (ENV("TESTS") or "clients ttft60 ttft400 stall").replace(",", " ").split()
CLIENTS = [int(n) for n in (ENV("CLIENTS") or "1 4 8 16").replace(",", " ").split()]
ROUNDS = max(1, int(ENV("ROUNDS") or 3))
STALL_ROUNDS = max(1, int(ENV("STALL_ROUNDS") or 1))
LONG = int(ENV("LONG") or 4000)
LIMIT = float(ENV("TIME_LIMIT") or 300)
STREAMS = 8  # of the tests that do not vary it


class Failed(Exception):
    pass


class Server:
    """One of the programs, while it serves one file; a subclass says how it is started."""

    health, probes = "/health", "/health,/v1/models"
    asks = []  # llama-server tells no ids in a stream: there a token is seen by its text

    def __init__(self, command, cores, port_file=None, port=0):
        self.command = ["taskset", "-c", ",".join(map(str, cores))] + command
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=subprocess.STDOUT)
        try:
            self.port = port or self.until(lambda: self.read_port(port_file))
            self.until(self.ready)
        except Exception:
            self.stop()
            raise

    def until(self, found):
        end = time.monotonic() + 120
        while time.monotonic() < end:
            if self.process.poll() is not None:
                self.log.seek(0)
                raise Failed(f"status {self.process.returncode}: {self.log.read()[-300:]}")
            got = found()
            if got:
                return got
            time.sleep(0.05)
        raise Failed("not ready after 120 s")

    @staticmethod
    def read_port(path):
        try:
            with open(path) as f:
                return int(f.read())
        except (OSError, ValueError):
            return 0

    def ready(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{self.health}", timeout=5) as r:
                return r.status == 200
        except (OSError, urllib.error.URLError):
            return False

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()


class Oxinferd(Server):
    health, probes, asks = "/readyz", "/livez,/metrics,/v1/models", ["--token-ids"]

    def __init__(self, build, model, cores, clients, context):
        self.folder = tempfile.TemporaryDirectory()
        port_file = os.path.join(self.folder.name, "port")
        super().__init__([os.path.join(build, "oxinferd"), "serve", "--listen", "127.0.0.1:0", "--port-file", port_file, "--model",
                          f"m={model}", "--isa", ISA, "--max-connections-per-address", "1000"], cores, port_file)


class Llama(Server):
    health, probes = "/health", "/health,/metrics,/v1/models"

    def __init__(self, folder, model, cores, clients, context):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        super().__init__([os.path.join(folder, "llama-server"), "-m", model, "--host", "127.0.0.1", "--port", str(port), "-t", str(len(cores)),
                          "-np", str(clients), "-c", str(clients * context), "--no-webui", "--metrics"], cores, port=port)


def load(server, build, cores, *args):
    """The JSON line of the load generator."""
    command = ["taskset", "-c", ",".join(map(str, cores)), os.path.join(build, "bench", "load"), f"http://127.0.0.1:{server.port}",
               "--model", "m", *server.asks, *(["--completions", "--ids", "1000"] if ENV("COMPLETIONS") else []), *map(str, args)]
    before = server.cpu_s()
    try:
        done = subprocess.run(command, timeout=LIMIT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except subprocess.TimeoutExpired:
        raise Failed(f"no end after {LIMIT:g} s") from None
    lines = [json.loads(x) for x in done.stdout.splitlines() if x.startswith("{")]
    if not lines or lines[-1]["failures"]:
        raise Failed((done.stderr.strip().splitlines() or [str(lines[-1]["failures"] if lines else "no figures")])[0][:300])
    line = lines[-1]
    line["server_cpu"] = round((server.cpu_s() - before) / line["seconds"], 2)
    return line


# Of each test: how many sequences, positions of each, the load's arguments, the figure that counts, and whether it is a speed.
def tests():
    for n in CLIENTS if "clients" in TESTS else []:
        yield (f"clients{n}", n, 1024, ["--clients", n, "--requests", max(4, 2 * n if n < 8 else n), "--prompt", 60, "--output", 64],
               lambda x: x["tok_s"], True)
    for n in (60, 400):
        if f"ttft{n}" in TESTS:
            yield (f"ttft{n}", STREAMS, 1024, ["--clients", STREAMS, "--requests", STREAMS, "--prompt", n, "--output", 16],
                   lambda x: x["ttft_ms"]["p50"], False)
    if "stall" in TESTS:
        yield ("stall", STREAMS + 1, LONG + 600, ["--clients", STREAMS, "--prompt", 20, "--output", 500, "--long", LONG, "--probe", 20],
               lambda x: x["long"]["gap_ms"]["max"], False)


def measure(start, build, model, cores, test, seed, side):
    """One run of a test on a fresh server, after a short one that warms it up; what it gives is added to side."""
    name, clients, context, args, figure, _ = test
    server = None
    if side.get("reason"):
        return
    try:
        server = start(model, cores, clients, context)
        load(server, build, cores, "--clients", 2, "--requests", 4, "--prompt", 30, "--output", 8, "--seed", 1000 + seed)
        line = load(server, build, cores, *args, "--seed", seed, "--probes", server.probes)
        side.setdefault("runs", []).append(line)
        side["command"] = record.shown(server.command)
        try:
            side["figure"] = round(statistics.median(map(figure, side["runs"])), 2)
        except TypeError:  # random weights and ids can give tokens without text
            raise Failed("no answer had any text, so its first token was not seen") from None
    except Failed as why:
        side["reason"] = str(why)
    finally:
        if server:
            server.stop()


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    build = sys.argv[1]
    peer, version = record.peer(ISA, "llama-server")
    cores, here, commit = sorted(os.sched_getaffinity(0)), record.machine(), record.commit()
    path = ENV("RESULTS") or record.path(f"{record.host(here)}_serving")
    done = []
    for model in sys.argv[2:]:
        for test in tests():
            name, clients, _, args, _, speed = test
            began = datetime.datetime.now(datetime.timezone.utc)
            line = {"kind": "serving", "test": name, "commit": commit, "machine": here, "model": os.path.basename(model), "isa": ISA,
                    "threads": len(cores), "date": began.isoformat(timespec="seconds"), "load": os.getloadavg()[0],
                    "load_args": " ".join(map(str, args)), "llama_version": version, "oxinferd": {}, "llama": {} if peer else None}
            for i in range(STALL_ROUNDS if name == "stall" else ROUNDS):
                measure(lambda *a: Oxinferd(build, *a), build, model, cores, test, i, line["oxinferd"])
                if peer:
                    measure(lambda *a: Llama(peer, *a), build, model, cores, test, i, line["llama"])
            ours, theirs = line["oxinferd"].get("figure"), (line["llama"] or {}).get("figure")
            if ours and theirs:
                line["ratio"] = round(ours / theirs if speed else theirs / ours, 2)
            record.add(path, [line])
            done.append(line)
    table.show_serving(done, out=sys.stderr)


main()
