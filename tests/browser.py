"""A headless Chromium driven through chromedriver's own HTTP protocol, with nothing but the standard library."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", "--hide-scrollbars"]  # fmt: skip
KEYS = {"Tab": "\ue004", "Down": "\ue015", "Up": "\ue013", "Enter": "\ue007", "Space": " "}


def missing() -> str:
    """Why there is no browser here, or nothing."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"no {' and no '.join(absent)} on this machine" if absent else ""


class Browser:
    """One window; leave it with `close`."""

    def __init__(self, width: int = 1200, height: int = 900) -> None:
        self.profile = tempfile.mkdtemp()
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        self.base = f"http://127.0.0.1:{self._port()}"
        options = {"binary": shutil.which("chromium"),
                   "args": [*FLAGS, f"--user-data-dir={self.profile}", f"--window-size={width},{height}"]}  # fmt: skip
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        self.session = ""
        made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.session = f"/session/{made['sessionId']}"

    def open(self, address: str) -> None:
        self._call("POST", "/url", {"url": address})

    def run(self, script: str, *arguments: Any) -> Any:
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def press(self, *keys: str) -> None:
        actions = [{"type": kind, "value": KEYS.get(key, key)} for key in keys for kind in ("keyDown", "keyUp")]
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def devtools(self, command: str, **parameters: Any) -> Any:
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def console(self) -> list[str]:
        return [entry["message"] for entry in self._call("POST", "/se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        entries = [json.loads(e["message"])["message"] for e in self._call("POST", "/se/log", {"type": "performance"})]
        return [e["params"]["request"]["url"] for e in entries if e["method"] == "Network.requestWillBeSent"]

    def size(self, width: int, height: int, scale: float = 1) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        self.devtools("Emulation.setDeviceMetricsOverride", **metrics)

    def screenshot(self, path: Path) -> None:
        picture = self.devtools("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(picture["data"]))

    def pdf(self) -> bytes:
        return base64.b64decode(self.devtools("Page.printToPDF", printBackground=True)["data"])

    def close(self) -> None:
        try:
            self._call("DELETE", "", None)
        finally:
            self.driver.terminate()
            self.driver.wait(timeout=10)
            assert self.driver.stdout is not None
            self.driver.stdout.close()
            shutil.rmtree(self.profile, ignore_errors=True)

    def _port(self) -> int:
        assert self.driver.stdout is not None
        for line in self.driver.stdout:
            if found := re.search(r"successfully on port (\d+)", line):
                return int(found[1])
        raise RuntimeError("chromedriver did not start")

    def _call(self, verb: str, path: str, body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + self.session + path, data=data, method=verb)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]
