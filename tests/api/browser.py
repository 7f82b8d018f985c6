"""browser.py - a headless Chromium through its WebDriver (W3C protocol, plain HTTP): what the page's tests need of it."""
import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time

from daemon import SLOW

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
DRIVERS = ("chromedriver", "/usr/lib/chromium-browser/chromedriver")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def found(names):
    return next((path for path in map(shutil.which, names) if path), None)


def missing():
    """What to install; None: nothing."""
    return None if found(DRIVERS) and found(BROWSERS) else "apt-get install chromium chromium-driver"


class Browser:
    def __init__(self, width=1000, height=800):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.folder = tempfile.TemporaryDirectory(prefix="oxinferd-browser-")
        self.log = open(os.path.join(self.folder.name, "log"), "w")
        self.process = subprocess.Popen([found(DRIVERS), f"--port={self.port}"], stdout=self.log, stderr=self.log,
                                        env={**os.environ, "HOME": self.folder.name})
        self.session = ""
        self.until("driver", self.driver_is_ready)
        options = {"binary": found(BROWSERS), "args": [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--window-size={width},{height}",
            f"--user-data-dir={self.folder.name}/profile"]}
        value = self.ask("POST", "", {"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}})
        self.session = "/" + value["sessionId"]

    def driver_is_ready(self):
        try:
            c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            c.request("GET", "/status")
            return json.load(c.getresponse())["value"]["ready"]
        except (OSError, ValueError):
            return False

    def ask(self, method, path, body=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60 * SLOW)
        c.request(method, f"/session{self.session}{path}", json.dumps(body) if body is not None else None,
                  {"Content-Type": "application/json"})
        value = json.load(c.getresponse())["value"]
        c.close()
        if isinstance(value, dict) and "error" in value:
            raise RuntimeError(f"{value['error']}: {value['message'][:300]}")
        return value

    def until(self, what, ready, seconds=20):
        end = time.monotonic() + seconds * SLOW
        while time.monotonic() < end:
            value = ready()
            if value:
                return value
            time.sleep(0.05)
        raise RuntimeError(f"no {what} after {seconds * SLOW} s")

    def open(self, url):
        self.ask("POST", "/url", {"url": url})

    def run(self, script, *args):
        """The value of a JavaScript function's body."""
        return self.ask("POST", "/execute/sync", {"script": script, "args": list(args)})

    def find(self, css):
        return self.ask("POST", "/element", {"using": "css selector", "value": css})[ELEMENT]

    def find_all(self, css):
        return [e[ELEMENT] for e in self.ask("POST", "/elements", {"using": "css selector", "value": css})]

    def click(self, css):
        self.ask("POST", f"/element/{self.find(css)}/click", {})

    def type(self, css, text):
        self.ask("POST", f"/element/{self.find(css)}/value", {"text": text})

    def press(self, key):
        """A key with the focus where it is; names of the protocol: \\ue012 is ArrowLeft, \\ue014 ArrowRight, \\ue00c Escape."""
        self.ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": [
            {"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]}]})

    def text(self, css):
        return self.run("return document.querySelector(arguments[0]).innerText", css)

    def shown(self, css):
        return self.run("return document.querySelector(arguments[0]).checkVisibility()", css)

    def label(self, element):
        return self.ask("GET", f"/element/{element}/computedlabel")

    def size(self, width, height):
        self.ask("POST", "/window/rect", {"width": width, "height": height})

    def complaints(self):
        """What the browser's console was told since it was last asked: errors and refused loads."""
        return [e["message"] for e in self.ask("POST", "/se/log", {"type": "browser"}) if e["level"] in ("SEVERE", "WARNING")]

    def close(self):
        try:
            self.ask("DELETE", "")
        except (OSError, RuntimeError, ValueError):
            pass
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
