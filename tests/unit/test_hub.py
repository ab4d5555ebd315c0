"""Models on the hub by the real client, huggingface_hub, against a small server on this machine."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Server(ThreadingHTTPServer):
    """The files of one repository, and every request it got."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.messages: list[str] = []

    def commit(self, lines: list[dict]) -> None:
        for line in lines:
            if line["key"] == "header":
                self.messages.append(line["value"]["summary"])
            elif line["key"] == "file":
                assert line["value"]["encoding"] == "base64"
                self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            else:
                raise AssertionError(line["key"])


class Handler(BaseHTTPRequestHandler):
    """What the client asks for: files by name, and the steps of a commit."""

    server: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.server.requests.append(f"{self.command} {self.path}")
        name = self.path.split("?")[0].removeprefix("/me/ngrams/resolve/main/")
        name = name.removeprefix(f"/me/ngrams/resolve/{COMMIT}/")
        content = self.server.files.get(name)
        if content is None:
            return self.answer(404, b"Entry not found", {"X-Error-Code": "EntryNotFound"})
        etag = hashlib.sha1(content).hexdigest()
        return self.answer(200, content, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT})

    def do_POST(self):
        self.server.requests.append(f"POST {self.path}")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        root = f"http://127.0.0.1:{self.server.server_port}"
        if self.path == "/api/repos/create":
            assert json.loads(body)["name"] == "ngrams" and json.loads(body)["organization"] == "me"
            found = {"url": f"{root}/me/ngrams", "name": "me/ngrams", "id": "1"}
        elif self.path.startswith("/api/models/me/ngrams/preupload/main"):
            asked = json.loads(body)["files"]
            found = {"files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in asked]}
        elif self.path.startswith("/api/models/me/ngrams/commit/main"):
            self.server.commit([json.loads(line) for line in body.splitlines()])
            found = {"commitUrl": f"{root}/me/ngrams/commit/{COMMIT}", "commitOid": COMMIT, "success": True}
        elif self.path == "/api/validate-yaml":
            found = {"errors": [], "warnings": []}
        else:
            return self.answer(404, b"{}", {})
        return self.answer(200, json.dumps(found).encode(), {"Content-Type": "application/json"})

    def answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@pytest.fixture
def server():
    made = Server()
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


PROGRAM = """
import io
import numpy as np
import lidstone as ld
from lidstone.errors import DataError

table = ld.WittenBell().fit(ld.count_text(io.BytesIO(b"the cat sat\\nthe dog sat\\n"), 2))
table.save("hf://me/ngrams/wb.safetensors")
print("saved")
for _ in range(2):
    again = ld.load("hf://me/ngrams/wb.safetensors")
    assert again.signature == table.signature
    np.testing.assert_array_equal(again.rows, table.rows)
    print("loaded")
try:
    ld.load("hf://me/ngrams/none")
except DataError as error:
    print(error.message)
"""


@pytest.mark.slow
def test_upload_download_cache_and_a_missing_file(server, tmp_path: Path):
    """In a process of its own: the client reads its settings once, when it is imported."""
    settings = {
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "HF_HOME": str(tmp_path / "home"),
        "HF_TOKEN": "hf_test",
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    environment = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()} | settings
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[:3] == ["saved", "loaded", "loaded"]
    assert said[3].startswith("cannot read hf://me/ngrams/none")
    assert server.messages == ["Add wb.safetensors"]
    assert sorted(server.files) == ["README.md", "wb.safetensors"]
    card = server.files["README.md"].decode()
    assert card.startswith("---\nlibrary_name: lidstone\n") and '"hf://me/ngrams/wb.safetensors"' in card
    fetched = [request for request in server.requests if request.startswith("GET ") and "wb.safetensors" in request]
    assert len(fetched) == 1, "the second load comes from the cache"
