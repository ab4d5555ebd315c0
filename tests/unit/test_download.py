"""Downloads from a server on this machine that behaves as badly as we like."""

import hashlib
import io
import json
import re
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lidstone.errors import DataError
from lidstone.files import try_lock
from lidstone.lab.corpus import download
from lidstone.lab.corpus.download import extract, fetch, get_dataset
from lidstone.lab.corpus.named import CORPORA, Download, NamedCorpus

BODY = bytes(range(256)) * 4000  # 1,024,000 bytes


class Host(BaseHTTPRequestHandler):
    """Serves `files`; `cuts` says after how many bytes the next connections break off."""

    def do_GET(self):
        server = self.server
        server.requests.append((self.path, self.headers.get("Range")))
        if self.path in server.redirects:
            self.send_response(302)
            self.send_header("Location", server.redirects[self.path])
            return self.end_headers()
        body = server.files.get(self.path)
        if body is None:
            return self.send_error(404)
        if server.failures:
            return self.send_error(server.failures.pop(0))
        start = self._start(body)
        if start is None:
            return self.send_error(416)
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if server.tag:
            self.send_header("ETag", server.tag)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        if server.wait:
            return threading.Event().wait(server.wait)
        cut = server.cuts.pop(0) if server.cuts else len(body)
        self.wfile.write(body[start : start + cut])
        self.close_connection = True
        return None

    def _start(self, body):
        span = self.headers.get("Range")
        if span is None or not self.server.ranges or self.headers.get("If-Range") != self.server.tag:
            return 0
        start = int(span.removeprefix("bytes=").removesuffix("-"))
        return start if start < len(body) else None

    def log_message(self, *_):
        pass


@pytest.fixture
def host():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Host)
    server.files, server.cuts, server.failures, server.requests = {"/a.bin": BODY}, [], [], []
    server.ranges, server.tag, server.redirects, server.wait = True, '"v1"', {}, 0
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path / "cache"))
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def get(host, folder, *, tries=3, check=BODY, path="/a.bin"):
    return fetch([host.url + path], folder / "a.bin", sha256(check), show=False, tries=tries, pause=0)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_arrives(host, tmp_path):
    assert get(host, tmp_path) == sha256(BODY)
    assert (tmp_path / "a.bin").read_bytes() == BODY
    assert names(tmp_path) == ["a.bin"]


def test_a_broken_transfer_is_resumed_where_it_broke_off(host, tmp_path):
    host.cuts = [300_000, 200_000]
    get(host, tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == BODY
    assert [span for _, span in host.requests] == [None, "bytes=300000-", "bytes=500000-"]


def test_a_later_process_resumes_what_an_earlier_one_left(host, tmp_path):
    host.cuts = [300_000]
    with pytest.raises(DataError, match="the connection ended after 300000 of 1024000 bytes"):
        get(host, tmp_path, tries=1)
    assert names(tmp_path) == ["a.bin.part", "a.bin.part.tag"]
    get(host, tmp_path)
    assert host.requests[-1][1] == "bytes=300000-"
    assert (tmp_path / "a.bin").read_bytes() == BODY


def test_a_host_without_ranges_sends_everything_again(host, tmp_path):
    host.cuts, host.ranges = [300_000], False
    get(host, tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == BODY


def test_a_host_without_tags_sends_everything_again(host, tmp_path):
    host.cuts, host.tag = [300_000], None
    get(host, tmp_path)
    assert [span for _, span in host.requests] == [None, None]
    assert (tmp_path / "a.bin").read_bytes() == BODY


def test_a_file_that_changed_meanwhile_is_not_glued_to_the_old_part(host, tmp_path):
    host.cuts = [300_000]
    with pytest.raises(DataError):
        get(host, tmp_path, tries=1)
    host.files["/a.bin"], host.tag = BODY[::-1], '"v2"'
    get(host, tmp_path, check=BODY[::-1])
    assert (tmp_path / "a.bin").read_bytes() == BODY[::-1]


def test_a_part_longer_than_the_file_is_thrown_away(host, tmp_path):
    (tmp_path / "a.bin.part").write_bytes(BODY + b"more")
    (tmp_path / "a.bin.part.tag").write_text(f'{host.url}/a.bin\n"v1"')
    get(host, tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == BODY


def test_a_wrong_checksum_keeps_nothing(host, tmp_path):
    with pytest.raises(DataError, match="wrong checksum") as caught:
        get(host, tmp_path, check=b"other")
    assert sha256(BODY) in caught.value.message
    assert "a.bin" not in names(tmp_path)
    assert "a.bin.part" not in names(tmp_path)


def test_a_redirect_is_followed_but_not_in_circles_nor_to_files(host, tmp_path):
    host.redirects = {"/moved": "/a.bin", "/circle": "/circle", "/file": "file:///etc/passwd"}
    get(host, tmp_path, path="/moved")
    assert (tmp_path / "a.bin").read_bytes() == BODY
    for path in ("/circle", "/file"):
        with pytest.raises(DataError, match="302"):
            get(host, tmp_path, path=path)


def test_a_server_that_stops_answering_is_given_up(host, tmp_path):
    host.wait = 0.5
    with pytest.raises(DataError, match=r"timed out .2 tries."):
        fetch([f"{host.url}/a.bin"], tmp_path / "a.bin", sha256(BODY), show=False, tries=2, pause=0, timeout=0.1)
    assert not (tmp_path / "a.bin").exists()


def test_a_missing_file_is_not_asked_for_twice(host, tmp_path):
    with pytest.raises(DataError, match="404"):
        get(host, tmp_path, path="/b.bin")
    assert len(host.requests) == 1
    assert names(tmp_path) == []


def test_a_server_in_trouble_is_asked_again(host, tmp_path):
    host.failures = [503, 500]
    get(host, tmp_path)
    assert len(host.requests) == 3


def test_the_next_mirror_is_tried(host, tmp_path):
    urls = [f"{host.url}/gone", f"{host.url}/a.bin"]
    fetch(urls, tmp_path / "a.bin", sha256(BODY), show=False, tries=1, pause=0)
    assert (tmp_path / "a.bin").read_bytes() == BODY


def test_nobody_listens(host, tmp_path):
    host.shutdown()
    host.server_close()
    with pytest.raises(DataError, match=r"refused.*\(2 tries\)"):
        get(host, tmp_path, tries=2)


def test_only_the_web_is_fetched_from(tmp_path):
    (tmp_path / "secret").write_text("x")
    with pytest.raises(DataError, match="not a web address"):
        fetch([(tmp_path / "secret").as_uri()], tmp_path / "a.bin", sha256(b"x"), show=False)


# ---- archives


def tar_of(*members):
    """A tar file of (name, content) pairs; a tuple (type,) makes a link or a device."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
            else:
                info.type, info.linkname = content[0], "/etc/passwd"
                archive.addfile(info)
    return buffer.getvalue()


def zip_of(*members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


def unpack(tmp_path, data, members):
    (tmp_path / "archive").write_bytes(data)
    (tmp_path / "out").mkdir()
    extract(tmp_path / "archive", tmp_path / "out", members)
    return {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}


@pytest.mark.parametrize("make", [tar_of, zip_of])
def test_only_the_wanted_members_are_unpacked(tmp_path, make):
    data = make(("top/a.txt", b"A"), ("top/b.txt", b"B"))
    assert unpack(tmp_path, data, {"top/a.txt": "mine.txt"}) == {"mine.txt": b"A"}


@pytest.mark.parametrize("make", [tar_of, zip_of])
@pytest.mark.parametrize("path", ["../evil", "/evil", "a/../../evil"])
def test_an_archive_with_a_path_that_leaves_the_folder_is_refused(tmp_path, make, path):
    with pytest.raises(DataError, match="unsafe path"):
        unpack(tmp_path, make(("a.txt", b"A"), (path, b"E")), {"a.txt": "a.txt"})
    assert names(tmp_path / "out") == []


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_a_link_or_device_in_place_of_a_file_is_refused(tmp_path, kind):
    with pytest.raises(DataError, match="not a regular file"):
        unpack(tmp_path, tar_of(("a.txt", (kind,))), {"a.txt": "a.txt"})
    assert names(tmp_path / "out") == []


def test_a_symbolic_link_in_a_zip_is_refused(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        info = zipfile.ZipInfo("a.txt")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(DataError, match="not a regular file"):
        unpack(tmp_path, buffer.getvalue(), {"a.txt": "a.txt"})


@pytest.mark.parametrize(
    "data", [b"", b"no archive", tar_of(("a.txt", bytes(90_000)))[:80]], ids=["empty", "text", "cut"]
)
def test_a_damaged_archive_is_refused(tmp_path, data):
    with pytest.raises(DataError, match=r"not a readable archive|does not contain"):
        unpack(tmp_path, data, {"a.txt": "a.txt"})


def test_a_missing_member_is_named(tmp_path):
    with pytest.raises(DataError, match=r"does not contain b\.txt"):
        unpack(tmp_path, tar_of(("a.txt", b"A")), {"b.txt": "b.txt"})


# ---- whole corpora


def offer(host, monkeypatch, *, archive=None, sha=None, contents=None):
    """Register a corpus `toy`: one plain file of known checksum and one archive."""
    archive = tar_of(("top/b.txt", b"B\n")) if archive is None else archive
    host.files = {"/a.txt": b"A\n", "/toy.tgz": archive}
    downloads = (
        Download((f"{host.url}/a.txt",), "a.txt", sha256(b"A\n")),
        Download((f"{host.url}/toy.tgz",), "toy.tgz", sha or sha256(archive), ("top/b.txt",)),
    )
    toy = NamedCorpus("toy", "none", "toy-corpus", downloads=downloads, contents=contents or {})
    monkeypatch.setitem(CORPORA, "toy", toy)


def get_toy():
    return get_dataset("toy", show=False, tries=1, pause=0)


def test_a_corpus_is_fetched_once_and_checked_after(host, monkeypatch, cache):
    offer(host, monkeypatch)
    first = get_toy()
    assert first.fresh
    assert first.folder == cache / "corpora" / "toy-corpus"
    assert (first.folder / "b.txt").read_text() == "B\n"
    asked = len(host.requests)
    second = get_toy()
    assert (second.fresh, second.files) == (False, first.files)
    assert len(host.requests) == asked


def test_a_corpus_that_was_tampered_with_is_fetched_again(host, monkeypatch):
    offer(host, monkeypatch)
    (get_toy().folder / "b.txt").write_text("changed")
    again = get_toy()
    assert again.fresh
    assert (again.folder / "b.txt").read_text() == "B\n"


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_an_archive_that_changed_is_refused(host, monkeypatch, cache, kind):
    archive = tar_of(("top/b.txt", b"B\n"))
    known = sha256(archive) if kind == "sha256" else f"md5:{hashlib.md5(archive).hexdigest()}"
    offer(host, monkeypatch, archive=archive, sha=known)
    folder = get_toy().folder
    (folder / download.MANIFEST).unlink()
    host.files["/toy.tgz"] = tar_of(("top/b.txt", b"other\n"))
    with pytest.raises(DataError, match="wrong checksum"):
        get_toy()
    assert (folder / "b.txt").read_text() == "B\n"  # what was there before stays


def test_wrong_contents_of_an_archive_keep_nothing(host, monkeypatch, cache):
    offer(host, monkeypatch, contents={"b.txt": sha256(b"expected")})
    with pytest.raises(DataError, match=r"b\.txt of toy has the wrong checksum"):
        get_toy()
    assert names(cache / "corpora") == []
    assert names(cache / "downloads") == [".locks"]
    offer(host, monkeypatch)
    assert get_toy().fresh


def test_a_malicious_archive_keeps_nothing(host, monkeypatch, cache):
    offer(host, monkeypatch, archive=tar_of(("top/b.txt", b"B"), ("../../evil", b"E")))
    with pytest.raises(DataError, match="unsafe path"):
        get_toy()
    assert names(cache / "corpora") == []
    assert names(cache / "downloads") == [".locks"]


def test_what_arrived_whole_is_not_fetched_again_after_a_later_file_failed(host, monkeypatch):
    offer(host, monkeypatch)
    archive = host.files.pop("/toy.tgz")
    with pytest.raises(DataError, match="404"):
        get_toy()
    host.files["/toy.tgz"] = archive
    get_toy()
    assert [path for path, _ in host.requests] == ["/a.txt", "/toy.tgz", "/toy.tgz"]


def test_an_unknown_corpus_is_answered_with_the_nearest_name():
    with pytest.raises(DataError, match="no corpus 'wikitext-2'") as caught:
        get_dataset("wikitext-2")
    assert caught.value.hint == "did you mean wikitext2?"


def test_every_real_source_is_on_the_web_with_sound_checksums():
    for dataset in CORPORA.values():
        sums = [item.checksum for item in dataset.downloads] + list(dataset.contents.values())
        assert all(re.fullmatch(r"[0-9a-f]{64}|md5:[0-9a-f]{32}", value) for value in sums)
        assert all(url.startswith("https://") for item in dataset.downloads for url in item.urls)
        assert json.dumps(dataset.contents)


def test_two_processes_do_not_fetch_one_corpus_at_once(host, monkeypatch, cache):
    offer(host, monkeypatch)
    (cache / "downloads").mkdir(parents=True)
    with try_lock(cache / "downloads", "toy") as mine, pytest.raises(DataError, match="another process is downloading"):
        assert mine
        get_toy()


def test_a_mirror_with_another_file_is_passed_over(host, tmp_path):
    host.files["/changed.bin"] = b"another edition"
    urls = [f"{host.url}/changed.bin", f"{host.url}/a.bin"]
    fetch(urls, tmp_path / "a.bin", sha256(BODY), show=False, tries=1, pause=0)
    assert (tmp_path / "a.bin").read_bytes() == BODY and names(tmp_path) == ["a.bin"]
    with pytest.raises(DataError, match="wrong checksum") as caught:
        fetch(urls[:1], tmp_path / "b.bin", sha256(BODY), show=False, tries=1, pause=0)
    assert "do not use the file" in caught.value.hint
