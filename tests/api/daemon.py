"""daemon.py - what the scripts of this folder share: a daemon on a free port with the scripted model, plain HTTP and
SSE, and the lines that tests/run.sh counts. Only the standard library.

    @check
    def some_name(d): ...   # d is a running Daemon
    run()                   # all checks, with one daemon
"""
import fnmatch
import http.client
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPTED = os.path.join("tests", "fixtures", "scripted")
MODEL, HERMES, XML = (os.path.join(SCRIPTED, name) for name in ("scripted.gguf", "hermes.jinja", "xml.jinja"))
SLOW = 5 if os.environ.get("SANITIZER") else 1
CHECKS = []


def waited_s(pid="self"):
    """Seconds for which threads of a process could have run and had no core, all together; 0 where the kernel does not count it."""
    ns = 0
    for name in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{name}/schedstat") as f:
                ns += int(f.read().split()[1])
        except (OSError, IndexError):
            pass  # it has ended
    return ns / 1e9


class Stopwatch:
    """Seconds since it was made, less what the machine kept us and the daemons from running meanwhile: a bound on them is as tight
    as can be on a machine with nothing else to do."""

    def __init__(self, *daemons):
        self.pids = ["self", *(d.process.pid for d in daemons)]
        self.begun, self.waited = time.monotonic(), self.all_waited()

    def all_waited(self):
        return sum(waited_s(pid) for pid in self.pids if os.path.exists(f"/proc/{pid}/task"))

    def seconds(self):
        return time.monotonic() - self.begun - max(0, self.all_waited() - self.waited)


class Daemon:
    def __init__(self, *args, key=None, names=("scripted",)):
        self.key = key
        self.folder = tempfile.TemporaryDirectory(prefix="oxinferd-")
        self.port_file = os.path.join(self.folder.name, "port")
        self.log = open(os.path.join(self.folder.name, "log"), "w+")
        cmd = [os.environ.get("OXINFERD", os.path.join("build", "oxinferd")), "serve", "--listen", "127.0.0.1:0",
               "--port-file", self.port_file, *args]
        for name in names:
            cmd += ["--model", f"{name}={MODEL}"]
        if key:
            cmd += ["--api-key", key]
        self.process = subprocess.Popen(cmd, cwd=ROOT, stdout=self.log, stderr=subprocess.STDOUT)
        try:
            self.port = self.wait_for_port()
            self.wait_for_models()
        except Exception:
            self.process.kill()
            raise

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def cpu_s(self):
        """Seconds of CPU time it has used."""
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def output(self):
        self.log.seek(0)
        return self.log.read()[-4000:]

    def logged(self):
        with open(self.log.name) as f:
            return f.read()

    def told_to_end(self):
        """After SIGTERM: once it knows, or has ended. Another one that comes before would be the same one."""
        end = time.monotonic() + 30 * SLOW
        while self.process.poll() is None and not any(x in self.logged() for x in ("shutting down", "no longer ready")):
            assert time.monotonic() < end, self.output()
            time.sleep(0.005)

    def until(self, what, ready):
        end = time.monotonic() + 30 * SLOW
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise RuntimeError(f"the daemon ended with status {self.process.returncode}:\n{self.output()}")
            found = ready()
            if found:
                return found
            time.sleep(0.02)
        raise RuntimeError(f"no {what} after {30 * SLOW} s:\n{self.output()}")

    def wait_for_port(self):
        def read():
            try:
                with open(self.port_file) as f:
                    return int(f.read())
            except (OSError, ValueError):
                return 0
        return self.until("port file", read)

    def wait_for_models(self):
        def ready():
            status, _, body = self.call("GET", "/v1/models")
            return status == 200 and all(m["meta"]["state"] == "ready" or m["meta"]["lazy"] for m in body["data"])
        return self.until("model", ready)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/v1"

    def open(self, method, path, body=None, headers=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60 * SLOW)
        h = dict(headers or {})
        if self.key:
            h.setdefault("Authorization", f"Bearer {self.key}")
        if body is not None:
            h.setdefault("Content-Type", "application/json")
            body = body if isinstance(body, (bytes, str)) else json.dumps(body)
        c.request(method, path, body, h)
        r = c.getresponse()
        r.connection = c  # closed with the response's owner
        return r

    def call(self, method, path, body=None, headers=None):
        """(status, headers, parsed body)"""
        r = self.open(method, path, body, headers)
        raw = r.read()
        r.connection.close()
        return r.status, r.headers, json.loads(raw) if raw else None

    def post(self, path, **fields):
        return self.call("POST", path, fields)

    def chat(self, content, **fields):
        """The answer to one user message; must be a 200."""
        fields.setdefault("messages", [{"role": "user", "content": content}])
        fields.setdefault("model", "scripted")
        status, _, body = self.call("POST", "/v1/chat/completions", fields)
        assert status == 200, (status, body)
        return body

    def events(self, path, **fields):
        """(status, list of payload texts) of a stream; every line must be one that SSE has."""
        fields["stream"] = True
        fields.setdefault("model", "scripted")
        r = self.open("POST", path, fields)
        raw = r.read().decode("utf-8")  # strict: split characters would show here
        r.connection.close()
        if r.status == 200:
            assert r.headers["content-type"].startswith("text/event-stream"), r.headers
            assert raw.endswith("\n\n"), raw[-50:]
        for line in raw.split("\n") if r.status == 200 else []:
            assert not line or line.startswith(("data:", ":", "event:")), line
        data = [x[6:] for x in raw.split("\n") if x.startswith("data: ")]
        return r.status, data if r.status == 200 else json.loads(raw)

    def stream(self, content, **fields):
        """The chunks of a chat stream that ends well."""
        fields.setdefault("messages", [{"role": "user", "content": content}])
        status, data = self.events("/v1/chat/completions", **fields)
        assert status == 200, (status, data)
        assert data[-1] == "[DONE]", data[-3:]
        return [json.loads(x) for x in data[:-1]]

    def stop(self):
        if self.process.poll() == 0:
            return  # already stopped
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(30 * SLOW)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise RuntimeError("the daemon did not end after SIGTERM") from None
        if status:
            raise RuntimeError(f"the daemon ended with status {status}:\n{self.output()}")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            self.process.kill()
            self.process.wait()
        else:
            self.stop()


def joined(chunks, index=0):
    """What a client shows of one choice."""
    return "".join(c["delta"].get("content") or "" for x in chunks for c in x["choices"] if c["index"] == index)


def finishes(chunks):
    return [(c["index"], c["finish_reason"]) for x in chunks for c in x["choices"] if c["finish_reason"]]


def equal(got, want):
    assert got == want, f"got {got!r}, expected {want!r}"


def raises(kind, f):
    """The exception of this kind that f must raise."""
    try:
        f()
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}")


def leave(s, rudely):
    """Closes a socket; rudely: with a reset."""
    if rudely:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def check(f):
    CHECKS.append(f)
    return f


def attempt(name, f):
    try:
        f()
    except Exception as e:
        where = traceback.extract_tb(e.__traceback__)[-1]
        text = str(e).replace("\n", " | ")
        print(f"not ok {name}: {type(e).__name__} in line {where.lineno}: {text[:600]}", flush=True)
        return False
    print(f"ok {name}", flush=True)
    return True


def run(*daemon_args, **daemon_kw):
    """Runs every check against one daemon; exits with the number of failures. ONLY_API=PATTERN chooses checks."""
    pattern = os.environ.get("ONLY_API", "*")
    failed = 0
    try:
        with Daemon(*daemon_args, **daemon_kw) as d:
            for f in CHECKS:
                if fnmatch.fnmatch(f.__name__, pattern):
                    failed += not attempt(f.__name__, lambda f=f: f(d))
        print("ok daemon_ends_well")
    except Exception as e:
        print(f"not ok daemon: {e}")
        failed += 1
    sys.exit(min(failed, 1))


def main():
    """daemon.py COMMAND...: runs a command with OXINFERD_URL set, while a daemon serves two models that know tools."""
    with Daemon("--chat-template", HERMES, names=("scripted", "org/other")) as d:
        status = subprocess.call(sys.argv[1:], env={**os.environ, "OXINFERD_URL": d.url})
    sys.exit(status)


if __name__ == "__main__":
    main()
