"""Reading text: every compression, every kind of bad input."""

import bz2
import gzip
import io
import lzma
import subprocess
import sys
from itertools import groupby

import pytest
import zstandard

from lidstone.errors import TextError
from lidstone.lab.corpus.named import data_root
from lidstone.text.corpora import embedded_corpus, split_sentences
from lidstone.text.reader import read_chunks, read_lines
from lidstone.text.source import open_bytes

TEXT = "ein Haus\nzwei Häuser\n𝄞 drei\n".encode()
COMPRESS = {
    "plain": bytes,
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}


def written(tmp_path, content, name="text.txt"):
    path = tmp_path / name
    path.write_bytes(content)
    return path


def joined(chunks):
    return b"".join(chunk.data for chunk in chunks)


@pytest.mark.parametrize("kind", COMPRESS)
def test_compression_is_told_by_content_not_by_name(tmp_path, kind):
    path = written(tmp_path, COMPRESS[kind](TEXT), "text.of.any.name")
    with open_bytes(path) as stream:
        assert stream.read() == TEXT


@pytest.mark.parametrize("kind", COMPRESS)
def test_concatenated_streams_are_read_to_the_end(tmp_path, kind):
    path = written(tmp_path, COMPRESS[kind](TEXT) * 2)
    assert joined(read_chunks(path)) == TEXT * 2


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zst"])
def test_cut_off_compressed_files_are_errors(tmp_path, kind):
    whole = COMPRESS[kind](b"".join(b"%d\n" % number for number in range(30_000)))
    path = written(tmp_path, whole[: len(whole) // 2], f"text.{kind}")
    with pytest.raises(TextError, match=rf"text\.{kind} is cut off") as caught:
        list(read_chunks(path))
    assert caught.value.hint


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zst"])
def test_damaged_compressed_files_are_errors(tmp_path, kind):
    compress = zstandard.ZstdCompressor(write_checksum=True).compress if kind == "zst" else COMPRESS[kind]
    whole = bytearray(compress(TEXT * 1000))
    whole[len(whole) // 2] ^= 0x10
    with pytest.raises(TextError, match=r"damaged|cut off"):
        list(read_chunks(written(tmp_path, bytes(whole), f"text.{kind}")))


def test_plain_text_that_begins_like_bzip2_stays_plain(tmp_path):
    assert list(read_lines(written(tmp_path, b"BZh9 is a word\n"))) == ["BZh9 is a word"]


@pytest.mark.parametrize("content", [TEXT, gzip.compress(TEXT)], ids=["plain", "gzip"])
def test_standard_input(content):
    code = "from lidstone.text.reader import read_lines; print(sum(1 for _ in read_lines('-')))"
    done = subprocess.run([sys.executable, "-c", code], input=content, capture_output=True, check=True)
    assert done.stdout.strip() == b"3"


def test_a_borrowed_stream_stays_open():
    stream = io.BytesIO(TEXT)
    assert joined(read_chunks(stream)) == TEXT
    assert not stream.closed


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_chunks_end_at_line_ends_and_lose_nothing(size):
    chunks = [chunk.data for chunk in read_chunks(io.BytesIO(TEXT + b"last"), chunk_bytes=size)]
    assert b"".join(chunks) == TEXT + b"last"
    assert all(chunk.endswith(b"\n") for chunk in chunks[:-1])


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n\n", ["", ""]),
        (b"a", ["a"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"\xef\xbb\xbfa\n", ["a"]),
        (b"\xef\xbb\xbf", []),
        ("a\u2028b\x85c\x0cd\n".encode(), ["a\u2028b\x85c\x0cd"]),
    ],
)
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_lines(content, lines, size):
    assert list(read_lines(io.BytesIO(content), size)) == lines


def test_a_byte_order_mark_is_dropped_at_the_start_only():
    chunks = read_chunks(io.BytesIO(b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n"), chunk_bytes=4)
    assert [chunk.data for chunk in chunks] == [b"a\n", b"\xef\xbb\xbfb\n"]


@pytest.mark.parametrize("size", [1, 5, 1 << 20])
def test_bad_utf8_is_placed_by_line_and_byte_in_any_chunk(tmp_path, size):
    path = written(tmp_path, b"ab\ncd\nef \xe4 gh\nij\n")  # 3 + 3 bytes, then "ef ": byte 9 of line 3
    with pytest.raises(TextError, match=r"text\.txt is not UTF-8: 0xe4 in line 3, at byte 9") as caught:
        list(read_chunks(path, chunk_bytes=size))
    assert "iconv" in caught.value.hint


def test_a_character_cut_off_by_the_end_of_the_file_is_bad_utf8():
    with pytest.raises(TextError, match="line 2, at byte 2"):
        list(read_lines(io.BytesIO(b"a\n" + "𝄞".encode()[:3])))


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_nul_bytes_are_placed_by_line_and_byte(size):
    with pytest.raises(TextError, match="NUL byte in line 2, at byte 3"):
        list(read_chunks(io.BytesIO(b"a\nb\0\n"), chunk_bytes=size))


def test_missing_files_and_folders_are_text_errors(tmp_path):
    with pytest.raises(TextError, match=r"nothing\.txt.*No such file"):
        list(read_lines(tmp_path / "nothing.txt"))
    with pytest.raises(TextError, match="directory") as caught:
        list(read_lines(tmp_path))
    assert "folder" in caught.value.hint


def test_data_root(monkeypatch, tmp_path):
    monkeypatch.setenv("LIDSTONE_DATA", str(tmp_path))
    assert data_root() == tmp_path
    monkeypatch.delenv("LIDSTONE_DATA")
    assert data_root() is None


def test_the_embedded_corpus_is_english_and_splits_without_overlap():
    sentences = embedded_corpus()
    words = [word for sentence in sentences for word in sentence]
    assert all(sentences) and 40_000 < len(words) < 200_000
    assert words.count("the") > 1000 and all(word == word.lower() for word in words)
    assert embedded_corpus() == sentences
    # Rules of tables, hundreds of hyphens in a row, would make test text that the training text holds word for word.
    assert max(len(list(run)) for _, run in groupby(words)) < 10

    train, valid, test = split_sentences(list(enumerate(sentences)))
    numbers = [number for part in (train, valid, test) for number, _ in part]
    assert sorted(numbers) == list(range(len(sentences)))
    assert 0.08 < len(valid) / len(sentences) < 0.12 and 0.08 < len(test) / len(sentences) < 0.12
