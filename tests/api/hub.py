"""hub.py - a hub with Hugging Face's interface on a free port, for the tests of oxinferd pull. Standard library only.

    with Hub() as h:
        h.add("owner/name", {"config.json": b"{}", "m-Q4_0.gguf": b"..."})
        h.hooks.append(lambda r: ...)     # sees every Request first; True: it has answered
        status, out, err = pull(h, "owner/name")

Files of at least 1000 bytes are "in LFS": they are answered with a redirect to `storage`, another Hub, or to /lfs/.
"""
import hashlib
import http.server
import json
import os
import re
import socket
import ssl
import subprocess
import threading
import urllib.parse

from daemon import ROOT, SLOW

CERTS = os.path.join(ROOT, "tests", "fixtures", "door")


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def blob(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Request(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else every answer takes the client's delayed acknowledgement, 40 ms

    def log_message(self, *_):
        pass

    def setup(self):
        super().setup()
        self.server.hub.connections += 1

    def do_GET(self):
        hub = self.hub = self.server.hub
        url = urllib.parse.urlsplit(self.path)
        self.plain = urllib.parse.unquote(url.path)
        with hub.lock:
            hub.seen.append((self.path, dict(self.headers)))
        for hook in list(hub.hooks):
            if hook(self):
                return
        m = re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", self.plain)
        if m:
            return self.listing(m[1], m[2])
        m = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.plain)
        if m:
            return self.resolve(m[1], m[2], m[3])
        if self.plain.startswith("/lfs/"):
            return self.data(hub.lfs.get(self.plain[5:]), '"%s"' % self.plain[5:])
        self.answer(404)

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        return True

    def listing(self, repo, revision):
        r = self.hub.repos.get(repo)
        if not r:
            return self.answer(401, b"{}", X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")
        if revision not in ("main", r["commit"], *r["revisions"]):
            return self.answer(404, b"{}", X_Error_Code="RevisionNotFound")
        files = []
        for path, data in r["files"].items():
            f = {"rfilename": path, "size": len(data), "blobId": blob(data)}
            if len(data) >= 1000:
                f["lfs"] = {"sha256": sha256(data), "size": len(data), "pointerSize": 130}
                f["blobId"] = "0" * 40  # of the pointer
            files.append({**f, **r["lies"].get(path, {})})
        body = {"id": repo, "sha": r["commit"], "gated": r["gated"], "siblings": files + r["more"]}
        return self.answer(200, json.dumps(body).encode(), Content_Type="application/json")

    def resolve(self, repo, commit, path):
        r = self.hub.repos.get(repo)
        data = r and r["files"].get(path)
        if data is None or commit != r["commit"]:
            return self.answer(404, X_Error_Code="EntryNotFound")
        if r["gated"] and self.headers.get("Authorization") != "Bearer " + r["token"]:
            code = 403 if "Authorization" in self.headers else 401
            return self.answer(code, b"restricted", X_Error_Code="GatedRepo")
        if len(data) < 1000:
            return self.data(data, '"%s"' % blob(data))
        key = sha256(data)
        store = self.hub.storage or self.hub
        store.lfs[key] = data
        return self.answer(302, Location=f"{store.url if self.hub.storage else ''}/lfs/{key}?X-Amz-Signature=s1gn4ture",
                           X_Linked_Etag='"%s"' % key, X_Linked_Size=str(len(data)), X_Repo_Commit=commit)

    def data(self, data, etag, cut=None):
        """The whole, or from a Range on; cut: so many bytes, then the connection goes away."""
        if data is None:
            return self.answer(404)
        begin, total, status = 0, len(data), 200
        m = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if m and self.headers.get("If-Range", etag) == etag:
            begin = int(m[1])
            if begin >= total:
                return self.answer(416, Content_Range=f"bytes */{total}")
            status = 206
        self.send_response(status)
        self.send_header("ETag", etag)
        self.send_header("Content-Length", str(total - begin))
        if status == 206:
            self.send_header("Content-Range", f"bytes {begin}-{total - 1}/{total}")
        self.end_headers()
        self.wfile.write(data[begin:] if cut is None else data[begin:begin + cut])
        self.wfile.flush()
        if cut is not None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        return True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):  # clients that leave are what is tested
        pass


class Hub:
    def __init__(self, tls=None, storage=None):
        self.repos, self.lfs, self.seen, self.hooks, self.connections = {}, {}, [], [], 0
        self.storage, self.lock = storage, threading.Lock()
        self.server = Server(("127.0.0.1", 0), Request)
        self.server.hub = self
        self.tls = tls
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(os.path.join(CERTS, f"{tls}.cert.pem"), os.path.join(CERTS, f"{tls}.key.pem"))
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        self.host = f"127.0.0.1:{self.port}"
        self.url = f"{'https' if tls else 'http'}://{self.host}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def add(self, repo, files, revisions=(), gated=False, token="", lies=None, more=()):
        """lies: {path: what the listing says instead}; more: entries of the listing that are no files."""
        commit = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.repos[repo] = {"files": dict(files), "commit": commit, "revisions": revisions, "gated": gated,
                            "token": token,
                            "lies": lies or {}, "more": list(more)}

    def paths(self):
        with self.lock:
            return [urllib.parse.unquote(urllib.parse.urlsplit(p).path) for p, _ in self.seen]

    def forget(self):
        with self.lock:
            self.seen = []


def command(*args, home, env=None):
    """(arguments, environment) of an oxinferd of its own home, without proxies and tokens of whoever runs the tests."""
    drop = ("HF_", "OXINFERD_", "XDG_", "STATE_DIRECTORY")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(drop) and "proxy" not in k.lower()}
    program = os.path.join(ROOT, os.environ.get("OXINFERD", "build/oxinferd"))
    return [program, *args], {**clean, "HOME": home, **(env or {})}


def run(*args, home, env=None, before=()):
    """(status, stdout, stderr)"""
    args, env = command(*args, home=home, env=env)
    p = subprocess.run([*before, *args], env=env, cwd=ROOT, capture_output=True, text=True, timeout=60 * SLOW,
                       stdin=subprocess.DEVNULL)
    return p.returncode, p.stdout, p.stderr
