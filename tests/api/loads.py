"""loads.py - bench/load from a test, and what it leaves behind in the daemon."""
import json
import os
import subprocess
import time

from daemon import ROOT, SLOW

SANITIZER = os.environ.get("SANITIZER")
LOAD = os.path.join(os.path.dirname(os.environ.get("OXINFERD", os.path.join("build", "oxinferd"))), "bench", "load")


def begin(d, *args):
    return subprocess.Popen([LOAD, f"http://127.0.0.1:{d.port}", *map(str, args)], cwd=ROOT, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def end(process):
    """The line of a load; it must have gone well."""
    out, said = process.communicate(timeout=500)
    assert out, said
    line = json.loads(out.splitlines()[-1])
    assert process.returncode == 0 and not line["failures"], (line["failures"], said)
    return line


def status_kb(d, key):
    with open(f"/proc/{d.process.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith(key + ":"))


def metric(d, name):
    """A number of /metrics, of all models together."""
    r = d.open("GET", "/metrics")
    text = r.read().decode()
    r.connection.close()
    values = [float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name]
    assert values, f"no {name} in /metrics"
    return sum(values)


def at_work(d):
    """Requests and shares of key and value memory that are not given back."""
    return sum(metric(d, f"vllm:{name}") for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"))


def settles(read, want):
    """The value that read gives, once it is at most `want` or some time has passed."""
    stop = time.monotonic() + 5 * SLOW
    while read() > want and time.monotonic() < stop:
        time.sleep(0.05)
    return read()


def wait_until_idle(d):
    """Until the daemon uses hardly any time."""
    stop, before = time.monotonic() + 30 * SLOW, d.cpu_s()
    while time.monotonic() < stop:
        time.sleep(0.4)
        now = d.cpu_s()
        if now - before < 0.05:
            return
        before = now
    raise AssertionError("the daemon is still busy")
