"""The filter: values against the definition, choices against sorting, bytes against what went in."""

from __future__ import annotations

import gzip
import io
import json
import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lidstone.errors import InputError, RunError, TextError
from lidstone.files import with_checksum
from lidstone.ngram.counts import count_text
from lidstone.ngram.filter import checkpoint
from lidstone.ngram.filter import documents as document_forms
from lidstone.ngram.filter import run as filter_run
from lidstone.ngram.filter.checkpoint import FilterFiles
from lidstone.ngram.filter.documents import Documents, json_documents, json_lines, text_documents
from lidstone.ngram.filter.filter import filter_documents
from lidstone.ngram.filter.selection import NOTHING, cut_at, score_documents, scorer_of
from lidstone.ngram.smoothers.witten_bell import WittenBell
from lidstone.ngram.table import BackoffTable
from lidstone.text.reader import Chunk, Place, read_chunks

WORDS = ["the", "cat", "dog", "sat", "saw", "a", "owl", "on", "mat", "zebra", "<unk>"]


def fit(text: bytes, order: int = 3) -> BackoffTable:
    return WittenBell().fit(count_text(io.BytesIO(text), order))


TABLE = fit(b"the cat sat on the mat\nthe dog sat\na cat saw the dog\nthe owl saw a mat\n")
GENERAL = fit(b"zebra zebra cat\nowl on a zebra\nmat mat the\n", 2)


def lines(number: int, seed: int = 0, most: int = 6) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choice(WORDS) for _ in range(draw.randint(0, most))) for _ in range(number)]


def log10_of(table: BackoffTable, line: str) -> tuple[float, int]:
    """A line word by word, with the whole history each time: log10 p and words + 1."""
    words = [word.decode() for word in line.encode().split()]  # at ASCII white space, as the kenlm module does
    known = table.vocab.index
    ids = [known[word] if word in known and word not in ("<s>", "</s>") else table.vocab.unk for word in words]
    history, total = [table.vocab.bos], 0.0
    for word in (*ids, table.vocab.eos):
        total += float(table.logprob([word], [history])[0]) / math.log(10)
        history.append(word)
    return total, len(words) + 1


def perplexity_of(table: BackoffTable, text: str) -> float:
    """CCNet: 10^(-sum log10 / sum(words + 1)) over the lines."""
    logs, sizes = zip(*(log10_of(table, line) for line in text.removesuffix("\n").split("\n")), strict=True)
    return 10 ** (-sum(logs) / sum(sizes))


def filtered(text: str | bytes, folder: Path, name: str = "out.txt", **settings) -> list[str]:
    data = text if isinstance(text, bytes) else text.encode()
    filter_documents(TABLE, io.BytesIO(data), folder / name, **settings)
    return (folder / name).read_text(encoding="utf-8").splitlines()


def test_every_line_gets_the_perplexity_of_the_definition(tmp_path):
    text = [*lines(200), "", "  the\tcat ", "the</s> x", "<s> the cat </s>", "the\u00a0cat", "the\x0bcat\x0csat"]
    filtered("".join(f"{line}\n" for line in text), tmp_path)
    out = (tmp_path / "out.txt").read_text(encoding="utf-8").split("\n")[:-1]
    assert [row.split("\t", 1)[1] for row in out] == text
    for line, row in zip(text, out, strict=True):
        assert float(row.split("\t")[0]) == pytest.approx(perplexity_of(TABLE, line), rel=3e-6, abs=6e-5)


def test_a_document_of_several_lines_is_scored_line_by_line(tmp_path):
    texts = ["the cat\nsat on\n", "the cat\n\nsat", "", "\n", "the dog saw", "a\r\nb"]
    data = "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts))
    rows = [json.loads(line) for line in filtered(data, tmp_path, format="jsonl")]
    assert [row["text"] for row in rows] == texts
    for row in rows:
        assert row["perplexity"] == pytest.approx(perplexity_of(TABLE, row["text"]), rel=3e-6, abs=6e-5)


def test_values_are_those_of_the_kenlm_module(tmp_path):
    """A Python loop as CCNet's: model.score per line, len(line.split()) + 1."""
    kenlm = pytest.importorskip("kenlm")
    from lidstone.ngram.formats.arpa import write_arpa

    write_arpa(TABLE, tmp_path / "model.arpa")
    model = kenlm.Model(str(tmp_path / "model.arpa"))
    text = lines(300, seed=5)
    for line, row in zip(text, filtered("\n".join(text), tmp_path), strict=True):
        expected = 10 ** (-model.score(line) / (len(line.split()) + 1))
        assert float(row.split("\t")[0]) == pytest.approx(expected, rel=2e-5, abs=1e-4)


@pytest.mark.parametrize(
    "settings", [{}, {"keep": 0.4}, {"bucket": "middle"}, {"max_perplexity": 9.0}, {"against": GENERAL}]
)
def test_the_result_does_not_depend_on_chunks_or_threads(tmp_path, settings):
    data = "\n".join(lines(150)) + "\n"
    whole = filtered(data, tmp_path, **settings)
    for chunk_bytes, jobs in ((1, 1), (17, 3), (400, 2)):
        assert filtered(data, tmp_path, chunk_bytes=chunk_bytes, jobs=jobs, **settings) == whole


@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 1.0])
def test_a_share_is_exact_and_ties_go_by_place(tmp_path, share):
    text = lines(120, most=3)  # short lines: many ties
    scores = [perplexity_of(TABLE, line) for line in text]
    data = [line.encode() for line in text]
    scored = score_documents(scorer_of(TABLE), Documents([], data, b"\n".join(data))).perplexity
    assert scored.tolist() == pytest.approx(scores, rel=3e-6)
    order = np.argsort(scored, kind="stable")
    chosen = sorted(order[: math.ceil(share * len(text) - 1e-9)])
    out = filtered("\n".join(text), tmp_path, keep=share, bare=True)
    assert out == [text[i] for i in chosen]


def test_buckets_part_the_corpus(tmp_path):
    text = lines(100, seed=3)
    whole = filtered("\n".join(text), tmp_path, percentiles=(30, 60))
    columns = [line.split("\t") for line in whole]
    sizes = {name: sum(row[1] == name for row in columns) for name in ("head", "middle", "tail")}
    assert sizes == {"head": 30, "middle": 30, "tail": 40}
    worst = {name: max(float(row[0]) for row in columns if row[1] == name) for name in sizes}
    assert worst["head"] <= worst["middle"] <= worst["tail"]
    for name in sizes:
        assert filtered("\n".join(text), tmp_path, bucket=name) == [line for line in whole if f"\t{name}\t" in line]


def test_the_moore_lewis_difference(tmp_path):
    text = lines(60, seed=8)
    out = filtered("\n".join(text), tmp_path, against=GENERAL)
    for line, row in zip(text, out, strict=True):
        inside, general = perplexity_of(TABLE, line), perplexity_of(GENERAL, line)
        values = [float(value) for value in row.split("\t")[:2]]
        assert values == pytest.approx([inside, math.log(inside) - math.log(general)], rel=3e-6, abs=6e-5)
    kept = filtered("\n".join(text), tmp_path, against=GENERAL, keep=0.25)
    lowest = sorted(out, key=lambda row: float(row.split("\t")[1]))[:15]
    assert len(kept) == 15 and {float(row.split("\t")[1]) for row in kept} == {float(r.split("\t")[1]) for r in lowest}
    bounded = filtered("\n".join(text), tmp_path, against=GENERAL, max_difference=-0.5)
    assert bounded == [row for row in out if float(row.split("\t")[1]) <= -0.5]


def test_bounds_on_the_perplexity(tmp_path):
    text = "\n".join(lines(80))
    out = filtered(text, tmp_path)
    kept = filtered(text, tmp_path, max_perplexity=12, min_perplexity=6)
    assert kept == [row for row in out if 6 <= float(row.split("\t")[0]) <= 12] and 0 < len(kept) < len(out)


def test_objects_keep_their_bytes(tmp_path):
    raw = [
        '{"text":"the cat","n":1.0,  "u":"\\u00e9\\ud83d\\ude00", "text2": [1,2]}  ',
        '{ "a": {"perplexity": 3}, "text": "sat" }',
        '{"perplexity": 1, "text": "sat", "lone": "\\ud800"}',
        '{"text": "half \\ud800 pair\\u0000"}',
    ]
    out = filtered("\n".join(raw), tmp_path, format="jsonl")
    assert out[0].startswith('{"text":"the cat","n":1.0,  "u":"\\u00e9\\ud83d\\ude00", "text2": [1,2], "perplexity": ')
    again = [json.loads(line) for line in out]
    assert again[1]["a"] == {"perplexity": 3} and again[1]["perplexity"] == again[2]["perplexity"] > 1
    assert again[2]["lone"] == "\ud800" and list(again[2]) == ["text", "lone", "perplexity"]
    assert again[3]["perplexity"] == pytest.approx(perplexity_of(TABLE, "q q q"), abs=1e-4)
    assert filtered("\n".join(raw), tmp_path, format="jsonl", bare=True) == raw


def test_bad_lines_are_named_kept_and_counted(tmp_path):
    good = json.dumps({"text": "the cat"}).encode()
    bad = [b"{", b"[1]", b'{"t": "x"}', b'{"text": null}', b'{"text": 5}', b'{"text": "\xff"}', b"[" * 100_000]
    data = b"\n".join([good, *bad, b"", b"   ", good])
    (tmp_path / "in.jsonl").write_bytes(data)
    seen = []
    done = filter_documents(TABLE, tmp_path / "in.jsonl", tmp_path / "out.jsonl", report=seen.append, chunk_bytes=64)
    assert (done.documents, done.kept, done.bad) == (2, 2, 7)
    assert [b.where for b in seen] == [f"{tmp_path / 'in.jsonl'}:{n}" for n in range(2, 9)]
    reasons = [b.reason for b in seen]
    assert reasons[1:6] == [
        "not a JSON object but an array",
        "no field 'text' (it has 't')",
        "the field 'text' is null, not a string",
        "the field 'text' is a number, not a string",
        "not UTF-8: 0xff at byte 11 of the line",
    ]
    assert reasons[0].startswith("not JSON") and "nested too deeply" in reasons[6]
    rejected = (tmp_path / "out.jsonl.bad").read_bytes().split(b"\n")[:-1]
    assert [line.split(b"\t", 1)[1] for line in rejected] == bad


@pytest.mark.parametrize(
    ("data", "reasons"),
    [
        ('{"text": "the"}\n'.encode("utf-16"), ["not UTF-8: 0xff at byte 1", "not JSON"]),
        ('{"text": "the"}\n'.encode("utf-16-le"), ["not JSON", "not JSON"]),
        ('{"text": "the"}\n'.encode("utf-32-be"), ["not JSON"]),
        (b'{"text": "the"}\n\xef\xbb\xbf{"text": "cat"}\n', ["not JSON: a byte order mark at character 1"]),
        (b'{"text": "the", "n": [NaN]}\n{"n": -Infinity}\n', ["not JSON: NaN", "not JSON: -Infinity"]),
    ],
)
def test_json_is_utf8_without_marks_inside_and_has_no_infinity(data, reasons):
    found = json_documents(Chunk(data, "x", Place(), Place()), "text")
    assert [bad.reason[: len(reason)] for bad, reason in zip(found.bad, reasons, strict=True)] == reasons


def test_scores_that_are_infinite_are_null_in_json():
    raw = [b'{"text": "a"}', b'{"perplexity": 1, "n": 1e999}']
    lines = json_lines(raw, ["perplexity", "bucket"], [[math.inf, 2.5], ["head", "tail"]]).splitlines()
    assert lines == [
        b'{"text": "a", "perplexity": null, "bucket": "head"}',
        b'{"n": null, "perplexity": 2.5, "bucket": "tail"}',
    ]


@pytest.mark.parametrize("end", ["\n", '"}\n'])
def test_time_is_linear_in_the_bad_lines_of_a_chunk(end):
    """Many bad lines in one chunk: the lines are split once, not once for each."""
    begin = '{"text": "' if "}" in end else ""
    chunk = Counting(f"{begin}caf\xe9{end}".encode("latin-1") * 30_000, "x", Place(), Place())
    found = json_documents(chunk, "text") if begin else text_documents(chunk)
    assert len(found.bad) == 30_000 and Counting.splits <= 2
    Counting.splits = 0


class Counting(Chunk):
    splits = 0

    @property
    def lines(self):
        Counting.splits += 1
        return super().lines


@pytest.mark.parametrize("settings", [{}, {"keep": 1.0}])
def test_text_with_nul_or_broken_utf8(tmp_path, settings):
    data = b"\xef\xbb\xbfthe cat\nb\xffd\nnul\0here\nsat\n"
    seen = []
    done = filter_documents(TABLE, io.BytesIO(data), tmp_path / "o", report=seen.append, bare=True, **settings)
    assert (tmp_path / "o").read_bytes() == b"the cat\nsat\n" and done.bad == 2
    assert [(b.where, b.raw) for b in seen] == [("<stream>:2", b"b\xffd"), ("<stream>:3", b"nul\0here")]
    assert [b.reason.split(" at")[0] for b in seen] == ["not UTF-8: 0xff", "a NUL byte"]


def test_a_line_of_ten_megabytes(tmp_path):
    long = "the cat " * 1_250_000
    out = filtered(f"sat\n{long}\nsat\n", tmp_path)
    assert [len(line.split("\t", 1)[1]) for line in out] == [3, len(long), 3]
    ids = TABLE.vocab.encode(long.split())
    expected = math.exp(-TABLE.token_logprobs(np.append(ids, TABLE.vocab.eos)).mean())
    assert float(out[1].split("\t")[0]) == pytest.approx(expected, abs=1e-4)


def test_nothing_in_nothing_out(tmp_path):
    assert filtered("", tmp_path) == []
    assert filtered("", tmp_path, keep=0.5) == []
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz", ".zst"])
def test_compressed_in_and_out(tmp_path, suffix):
    text = "\n".join(lines(50)) + "\n"
    (tmp_path / "in.txt.gz").write_bytes(gzip.compress(text.encode()))
    filter_documents(TABLE, [tmp_path / "in.txt.gz"] * 2, tmp_path / f"o.txt{suffix}", bare=True, chunk_bytes=99)
    from lidstone.text.source import open_bytes

    with open_bytes(tmp_path / f"o.txt{suffix}") as stream:
        assert stream.read().decode() == text * 2


class Stop(Exception):
    pass


def stopping(after):
    """`read_chunks` that fails after so many chunks."""

    def read(*arguments, **options):
        for number, chunk in enumerate(read_chunks(*arguments, **options)):
            if number == after:
                raise Stop
            yield chunk

    return read


@pytest.fixture
def every_chunk(monkeypatch):
    """The state is saved after every chunk."""
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)


@pytest.mark.parametrize("settings", [{}, {"keep": 0.5}, {"against": GENERAL, "bucket": "tail"}])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_an_interrupted_run_goes_on_and_ends_as_if_nothing_had_happened(
    tmp_path, monkeypatch, every_chunk, settings, suffix
):
    text = ("\n".join([*lines(60), "nul\0", *lines(60, seed=1)]) + "\n").encode()
    file = tmp_path / f"in.txt{suffix}"
    file.write_bytes(gzip.compress(text) if suffix else text)
    arguments = {"chunk_bytes": 150, "jobs": 2, **settings}
    names = f"whole.txt{suffix}", f"parts.txt{suffix}"
    whole = filter_documents(TABLE, [file, file], tmp_path / names[0], **arguments)
    scored = []
    monkeypatch.setattr(filter_run, "score_documents", lambda s, d: scored.append(d) or score_documents(s, d))
    for after in (1, 5, 12, 20):
        with monkeypatch.context() as patch, pytest.raises(Stop):
            patch.setattr(document_forms, "read_chunks", stopping(after))
            filter_documents(TABLE, [file, file], tmp_path / names[1], **arguments)
        assert not (tmp_path / names[1]).exists()
    done = filter_documents(TABLE, [file, file], tmp_path / names[1], **arguments)
    for end in ("", ".bad"):
        assert (tmp_path / (names[1] + end)).read_bytes() == (tmp_path / (names[0] + end)).read_bytes()
    assert sum(len(chunk.raw) for chunk in scored) == 240 * (1 + ("against" in settings))  # nothing was done twice
    assert done == replace(whole, resumed=True)
    assert {f.name for f in tmp_path.iterdir()} == {file.name, *(name + end for name in names for end in ("", ".bad"))}


def interrupted(folder, monkeypatch, text=None, **settings):
    """A folder with an unfinished run from in.txt to o."""
    (folder / "in.txt").write_bytes("\n".join(lines(100)).encode() if text is None else text)
    with monkeypatch.context() as patch, pytest.raises(Stop):
        patch.setattr(checkpoint, "SECONDS", 0.0)
        patch.setattr(document_forms, "read_chunks", stopping(6))
        filter_documents(TABLE, folder / "in.txt", folder / "o", chunk_bytes=100, jobs=1, **settings)


def test_what_was_written_after_the_last_record_is_written_again_not_twice(tmp_path, monkeypatch):
    interrupted(tmp_path, monkeypatch)
    with (tmp_path / "o.partial").open("ab") as file:
        file.write(b"half a li")  # as a kill leaves it
    filter_documents(TABLE, tmp_path / "in.txt", tmp_path / "whole", chunk_bytes=100)
    filter_documents(TABLE, tmp_path / "in.txt", tmp_path / "o", chunk_bytes=100)
    assert (tmp_path / "o").read_bytes() == (tmp_path / "whole").read_bytes()


def test_other_settings_or_models_do_not_go_on_with_an_unfinished_run(tmp_path, monkeypatch):
    interrupted(tmp_path, monkeypatch)
    arguments = [tmp_path / "in.txt", tmp_path / "o"]
    with pytest.raises(RunError, match="begun with other settings"):
        filter_documents(TABLE, *arguments, bare=True)
    with pytest.raises(RunError, match="begun with other model"):
        filter_documents(GENERAL, *arguments, chunk_bytes=100)
    (tmp_path / "o.state").write_text("{")
    with pytest.raises(RunError, match="cannot be read"):
        filter_documents(TABLE, *arguments)
    assert filter_documents(TABLE, *arguments, bare=True, restart=True).kept == 100
    assert (tmp_path / "o").read_text().splitlines() == lines(100)


@pytest.mark.parametrize("settings", [{}, {"keep": 0.5}])
@pytest.mark.parametrize("change", ["first", "shorter", "other"])
def test_a_text_that_has_changed_is_not_continued(tmp_path, monkeypatch, settings, change):
    interrupted(tmp_path, monkeypatch, **settings)
    text = (tmp_path / "in.txt").read_bytes()
    changed = {"first": b"z" + text[1:], "shorter": text[:200], "other": b"the cat\n" * 200}[change]
    (tmp_path / "in.txt").write_bytes(changed)
    with pytest.raises(RunError, match="not the one that the unfinished run has read"):
        filter_documents(TABLE, tmp_path / "in.txt", tmp_path / "o", chunk_bytes=100, **settings)
    assert not (tmp_path / "o").exists()


def test_a_text_that_changes_between_the_passes_is_refused(tmp_path, monkeypatch):
    (tmp_path / "in.txt").write_text("\n".join(lines(100)))
    find = filter_run.Choice.find

    def change(*arguments):
        (tmp_path / "in.txt").write_text("\n".join(lines(100, seed=1)))
        return find(*arguments)

    monkeypatch.setattr(filter_run.Choice, "find", change)
    with pytest.raises(RunError, match="not the one"):
        filter_documents(TABLE, tmp_path / "in.txt", tmp_path / "o", keep=0.5)
    assert not (tmp_path / "o").exists()


def test_a_stream_goes_on_if_it_gives_the_same_text_again(tmp_path, monkeypatch, every_chunk):
    text = "\n".join(lines(100)).encode()
    with monkeypatch.context() as patch, pytest.raises(Stop):
        patch.setattr(document_forms, "read_chunks", stopping(6))
        filter_documents(TABLE, io.BytesIO(text), tmp_path / "o", chunk_bytes=100)
    with pytest.raises(RunError, match="not the one"):
        filter_documents(TABLE, io.BytesIO(b"the cat\n" * 200), tmp_path / "o", chunk_bytes=100)
    done = filter_documents(TABLE, io.BytesIO(text), tmp_path / "o", chunk_bytes=100)
    assert done.resumed and done.kept == 100


def test_a_damaged_state_is_refused_whatever_is_changed(tmp_path, monkeypatch):
    interrupted(tmp_path, monkeypatch, bare=True)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    expected, state = "\n".join(lines(100)) + "\n", before["o.state"]
    record = json.loads(state)
    changed = [state[:at] + bytes([byte ^ (1 << at % 7)]) + state[at + 1 :] for at, byte in enumerate(state)]
    changed += [json.dumps({k: v for k, v in record.items() if k != key}).encode() for key in record]
    changed += [
        json.dumps(with_checksum({**record, key: value})).encode()  # with a checksum that fits
        for key in record
        for value in (None, -1, 1.5, "x", [], {}, True, {"a": 1}, 10**40)
    ]
    changed += [
        json.dumps(with_checksum({**record, "totals": {**record["totals"], name: value}})).encode()
        for name in record["totals"]
        for value in (-1e308, -1, 1e308, float("nan"), float("inf"))
    ]
    changed += [b"", b"null", b"[]", state[:-1], state * 2, b"\xff" * 99]
    refused = 0
    for damaged in changed:
        for name, data in before.items():
            (tmp_path / name).write_bytes(data)
        (tmp_path / "o.state").write_bytes(damaged)
        try:
            filter_documents(TABLE, tmp_path / "in.txt", tmp_path / "o", bare=True, chunk_bytes=100, jobs=1)
        except RunError as error:
            assert "--restart" in error.hint
            refused += 1
        else:
            assert (tmp_path / "o").read_text() == expected, damaged
            (tmp_path / "o").unlink()
    assert refused > len(changed) - 100


def test_two_runs_to_one_output_are_refused(tmp_path):
    files = FilterFiles(str(tmp_path / "o"), {})
    with pytest.raises(RunError, match="another process is writing"):
        FilterFiles(str(tmp_path / "o"), {})
    files.close()
    assert not list(tmp_path.iterdir())


def test_a_lock_that_was_removed_before_it_was_held_is_taken_again(tmp_path, monkeypatch):
    """The first process ends between the second's opening and locking of the file."""
    import fcntl

    first, flock = FilterFiles(str(tmp_path / "o"), {}), fcntl.flock

    def slow(*arguments):
        monkeypatch.undo()
        first.write("output", b"finished\n")
        first.finish()
        first.close()
        flock(*arguments)

    monkeypatch.setattr(fcntl, "flock", slow)
    second = FilterFiles(str(tmp_path / "o"), {})
    with pytest.raises(RunError, match="another process is writing"):
        FilterFiles(str(tmp_path / "o"), {})
    assert (tmp_path / "o").read_bytes() == b"finished\n"
    second.close()


@pytest.mark.unix
def test_a_link_stays_and_a_device_is_written_to(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    assert filtered("the cat", tmp_path, "link", bare=True) == ["the cat"]
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "the cat\n"
    filter_documents(TABLE, io.BytesIO(b"the cat\n"), "/dev/null")
    assert not Path("/dev/null").is_file() and not Path("/dev/null.partial").exists()


def test_input_that_breaks_off_is_an_error_and_goes_on_when_it_is_complete(tmp_path, every_chunk):
    data = gzip.compress("\n".join(lines(40_000)).encode())
    (tmp_path / "in.gz").write_bytes(data[: len(data) // 2])
    with pytest.raises(TextError, match="cut off"):
        filter_documents(TABLE, tmp_path / "in.gz", tmp_path / "o", chunk_bytes=50_000)
    assert len((tmp_path / "o.partial").read_bytes().splitlines()) > 500
    (tmp_path / "in.gz").write_bytes(data)
    done = filter_documents(TABLE, tmp_path / "in.gz", tmp_path / "o", chunk_bytes=50_000)
    assert done.resumed and done.documents == len((tmp_path / "o").read_bytes().splitlines()) == 40_000


def test_a_cut_is_that_of_sorting(tmp_path):
    draw = np.random.default_rng(0)
    scores = np.concatenate(
        [draw.normal(size=500), draw.integers(-3, 3, 300).astype(float), [np.inf, np.nan, -0.0, 0.0]]
    )
    draw.shuffle(scores)
    scores.tofile(tmp_path / "s")
    real = np.flatnonzero(~np.isnan(scores))
    order = real[np.argsort(scores[real], kind="stable")]
    for share in (0.001, 0.1, 0.37, 0.5, 0.99, 1.0):
        cut = cut_at(tmp_path / "s", share)
        inside = np.flatnonzero(cut.inside(scores, np.arange(len(scores))))
        assert sorted(order[: math.ceil(share * len(real) - 1e-9)]) == inside.tolist()
    assert cut_at(tmp_path / "s", 0.0) == NOTHING
    assert not NOTHING.inside(scores, np.arange(len(scores))).any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keep": 30.0}, "share between 0 and 1"),
        ({"keep": 0.0}, "share between 0 and 1"),
        ({"percentiles": (60, 30)}, "two, rising"),
        ({"bucket": "top"}, "no bucket 'top'"),
        ({"max_perplexity": 0.5}, "1 or more"),
        ({"max_difference": 1.0}, "second model"),
        ({"format": "xml"}, "auto, text, jsonl or parquet"),
    ],
)
def test_settings_that_cannot_be(tmp_path, settings, message):
    with pytest.raises(InputError, match=message):
        filter_documents(TABLE, io.BytesIO(b"a\n"), tmp_path / "o", **settings)
    assert not list(tmp_path.iterdir())


def test_names_tell_the_format(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "cat"}\n'))
    (tmp_path / "b.txt").write_text("cat\n")
    filter_documents(TABLE, tmp_path / "a.jsonl.gz", tmp_path / "o")
    assert json.loads((tmp_path / "o").read_text())["text"] == "cat"
    with pytest.raises(InputError, match="some inputs are jsonl and some text"):
        filter_documents(TABLE, [tmp_path / "a.jsonl.gz", tmp_path / "b.txt"], tmp_path / "o")


def test_without_an_unknown_word_one_costs_what_it_does_in_kenlm(tmp_path):
    """log10 p of -100, so that the line still has a value."""
    table = replace(TABLE, vocab=replace(TABLE.vocab, unk=None))
    filter_documents(table, io.BytesIO(b"the cat\nyak\n"), tmp_path / "o")
    value = float((tmp_path / "o").read_text().splitlines()[1].split("\t")[0])
    end = float(TABLE.logprob([TABLE.vocab.eos], [()])[0]) / math.log(10)
    backoff = math.log10(TABLE.backoffs[TABLE.vocab.bos])
    assert math.log10(value) == pytest.approx((100 - backoff - end) / 2, rel=1e-5)
