"""Drives Debian's Firefox by Marionette, the protocol that every Firefox has.

Playwright drives only a Firefox of its own build. A message is JSON after its length:
`26:[0, 1, "Marionette:...", {...}]`; the answer is `[1, 1, error, result]`.
"""

import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

FIREFOX = os.environ.get("MSPROBE_FIREFOX") or shutil.which("firefox-esr")
SECONDS = 60  # a start on a busy machine may take that long
SETTINGS = """\
user_pref("marionette.port", 0);
user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("app.update.enabled", false);
user_pref("network.captive-portal-service.enabled", false);
"""


class Firefox:
    def __init__(self, folder: Path):
        """Starts a browser without a window, with `folder` as its profile and home."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "user.js").write_text(SETTINGS)
        command = [FIREFOX, "--headless", "--marionette", "--no-remote", "--profile", str(folder)]
        environment = {**os.environ, "HOME": str(folder)}
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            port = self.port_in(folder / "MarionetteActivePort")
            self.socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
            self.read()  # the greeting
            self.number = 0
            self.call("WebDriver:NewSession", {})
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def port_in(self, file: Path):
        for _ in range(SECONDS * 10):
            if file.exists() and (text := file.read_text()):
                return int(text)
            if self.process.poll() is not None:
                raise RuntimeError(f"{FIREFOX} ended with {self.process.returncode}")
            time.sleep(0.1)
        raise TimeoutError(f"{FIREFOX} has opened no port in {SECONDS} s")

    def read(self):
        size = b""
        while not size.endswith(b":"):
            byte = self.socket.recv(1)
            if not byte:
                raise ConnectionError("Firefox has closed the connection")
            size += byte
        left, text = int(size[:-1]), b""
        while len(text) < left:
            part = self.socket.recv(left - len(text))
            if not part:
                raise ConnectionError("Firefox has closed the connection")
            text += part
        return json.loads(text)

    def call(self, name, arguments):
        self.number += 1
        text = json.dumps([0, self.number, name, arguments]).encode()
        self.socket.sendall(str(len(text)).encode() + b":" + text)
        _, number, error, result = self.read()
        assert number == self.number
        if error:
            raise RuntimeError(f"{name}: {error.get('message')}")
        return result

    def open(self, url):
        self.call("WebDriver:Navigate", {"url": url})

    def run(self, script):
        """What a function body returns in the page; it may use what the page's policy forbids."""
        return self.call("WebDriver:ExecuteScript", {"script": script, "args": []})["value"]

    def close(self):
        try:
            self.call("Marionette:Quit", {"flags": ["eForceQuit"]})
            self.process.wait(timeout=SECONDS)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self.socket.close()
