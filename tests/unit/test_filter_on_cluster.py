"""Scoring and filtering by the workers of a cluster: bytes and bits are those of one machine."""

from __future__ import annotations

import functools
import gzip
import io
import itertools
import json
import random
from dataclasses import replace

import pytest
from tests.ray_machines import Machines, Workers, machines  # noqa: F401
from typer.testing import CliRunner

from lidstone.cli import score as score_cli
from lidstone.cli.main import app
from lidstone.errors import InputError, RunError
from lidstone.ngram.counts import count_text
from lidstone.ngram.disk import executors
from lidstone.ngram.filter import checkpoint
from lidstone.ngram.filter.filter import filter_documents
from lidstone.ngram.formats.arpa import write_arpa
from lidstone.ngram.scorer.write import write_kenlm
from lidstone.ngram.smoothers.witten_bell import WittenBell
from lidstone.text import splits
from lidstone.text.raw import RawText

WORDS = ["the", "cat", "dog", "sat", "saw", "a", "owl", "on", "mat", "zebra"]
MARK = "\ufeff"


def fit(text: bytes, order: int):
    return WittenBell().fit(count_text(io.BytesIO(text), order))


TABLE = fit(b"the cat sat on the mat\nthe dog sat\na cat saw the dog\nthe owl saw a mat\n", 3)
GENERAL = fit(b"zebra zebra cat\nowl on a zebra\nmat mat the\n", 2)


def lines(number: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choice(WORDS) for _ in range(draw.randint(0, 6))) for _ in range(number)]


@pytest.fixture
def texts(tmp_path, monkeypatch):
    """Three files of 150 lines, cut into parts of some lines: one starts with a byte order mark, one is compressed."""
    monkeypatch.setattr(splits, "SPLIT_BYTES", 300)
    bad = [b"not \xff UTF-8", b"", b"a\0b"]
    data = [b"\n".join([*(line.encode() for line in lines(150, seed)), *bad, b"the last"]) for seed in range(3)]
    contents = MARK.encode() + data[0] + b"\n", data[1], gzip.compress(data[2])
    paths = [tmp_path / name for name in ("a.txt", "b.txt", "c.txt.gz")]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


SETTINGS = [{}, {"keep": 0.4}, {"bucket": "middle", "against": GENERAL}, {"max_perplexity": 9.0, "bare": True}]
SETTINGS.append({"raw": RawText("ccnet")})


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("chunk_bytes", [1, 37, 100])
def test_filtered_text_is_that_of_one_machine(tmp_path, texts, chunk_bytes, settings):
    told, expected = [], []
    options = {"chunk_bytes": chunk_bytes, **settings}
    same = filter_documents(TABLE, texts, tmp_path / "same.gz", report=expected.append, **options)
    workers = Workers(2)
    done = filter_documents(TABLE, texts, tmp_path / "out.gz", executor=workers, report=told.append, **options)
    assert workers.tasks > 10
    assert done == same and told == expected and len(told) == 6
    assert (tmp_path / "out.gz").read_bytes() == (tmp_path / "same.gz").read_bytes()
    assert (tmp_path / "out.gz.bad").read_bytes() == (tmp_path / "same.gz.bad").read_bytes()


def test_json_and_parquet_are_those_of_one_machine(tmp_path, texts):
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    rows = [{"id": i, "text": line} for i, line in enumerate(lines(2000))]
    (tmp_path / "a.jsonl").write_text("[]\n" + "".join(json.dumps(row) + "\n" for row in rows))
    for k in range(2):
        parquet.write_table(arrow.Table.from_pylist([*rows[k:], {"id": 1, "text": None}]), tmp_path / f"{k}.parquet")
    for files, name in ((["a.jsonl"], "out.jsonl"), (["0.parquet", "1.parquet"], "out.parquet")):
        paths, written = [tmp_path / file for file in files], []
        for executor in (None, Workers(2)):
            filter_documents(TABLE, paths, tmp_path / name, keep=0.5, executor=executor, chunk_bytes=500)
            written.append([(tmp_path / (name + end)).read_bytes() for end in ("", ".bad")])
        assert written[0] == written[1]
    parquet.write_table(arrow.Table.from_pylist([{"text": "a"}]), tmp_path / "other.parquet")
    with pytest.raises(InputError, match="has other columns than"):
        both = [tmp_path / "0.parquet", tmp_path / "other.parquet"]
        filter_documents(TABLE, both, tmp_path / "x.parquet", executor=Workers(1))


class Stop(Exception):
    pass


class Stopping(Workers):
    """Stops after some results."""

    def __init__(self, after):
        super().__init__(2)
        self.after = after

    def run(self, *arguments):
        for result in super().run(*arguments):
            if not self.after:
                raise Stop
            self.after -= 1
            yield result


@pytest.mark.parametrize("settings", SETTINGS[:2])
def test_an_interrupted_run_goes_on_here_or_there(tmp_path, texts, monkeypatch, settings):
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    same = filter_documents(TABLE, texts, tmp_path / "same", chunk_bytes=50, **settings)
    for after, executor in itertools.product((1, 7, 20), (None, Workers(2))):
        with pytest.raises(Stop):
            filter_documents(TABLE, texts, tmp_path / "out", chunk_bytes=50, executor=Stopping(after), **settings)
            raise Stop  # one pass has no more parts
        done = filter_documents(TABLE, texts, tmp_path / "out", chunk_bytes=50, executor=executor, **settings)
        assert replace(done, resumed=False) == same
        assert (tmp_path / "out").read_bytes() == (tmp_path / "same").read_bytes()
        assert (tmp_path / "out.bad").read_bytes() == (tmp_path / "same.bad").read_bytes()
    with pytest.raises(Stop):
        filter_documents(TABLE, texts, tmp_path / "out", chunk_bytes=50, executor=Stopping(2), **settings)
    texts[0].write_text("the cat\n" * 200)
    with pytest.raises(RunError, match="not the one"):
        filter_documents(TABLE, texts, tmp_path / "out", chunk_bytes=50, executor=Workers(2), **settings)


def test_what_workers_cannot_do_is_refused(tmp_path):
    for source, message in (("-", "standard input"), (io.BytesIO(b"a\n"), "open files")):
        with pytest.raises(InputError, match=message):
            filter_documents(TABLE, [source], tmp_path / "out", executor=Workers(1))
    with pytest.raises(InputError, match="line_buffered"):
        filter_documents(TABLE, [tmp_path / "x"], executor=Workers(1), line_buffered=True)
    assert not list(tmp_path.iterdir())


def invoke(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.fixture
def models(tmp_path):
    TABLE.save(tmp_path / "m.table")
    write_arpa(TABLE, tmp_path / "m.arpa")
    write_kenlm(tmp_path / "m.arpa", tmp_path / "m.bin", "probing")
    write_kenlm(tmp_path / "m.arpa", tmp_path / "m.trie", "trie")
    return [tmp_path / name for name in ("m.table", "m.arpa", "m.bin", "m.trie")]


@pytest.mark.parametrize(
    "options", [("--json",), ("--sentences",), ("--words", "--json", "--blank", "count", "--normalize", "ccnet")]
)
@pytest.mark.parametrize("everywhere", [True, False])
def test_scores_are_those_of_one_machine(tmp_path, monkeypatch, models, options, everywhere):
    monkeypatch.setattr(splits, "SPLIT_BYTES", 200)
    monkeypatch.setattr(score_cli, "CHUNK_BYTES", 50)
    monkeypatch.setattr(executors, "RayExecutor", lambda: Workers(2))
    monkeypatch.setattr(Workers, "has", lambda *_: everywhere)
    monkeypatch.setattr("lidstone.ray_cluster.connect", lambda _: pytest.importorskip("ray"))
    for name in "012":
        (tmp_path / f"{name}.txt").write_text(MARK + "\n".join(lines(100)))
    (tmp_path / "1.txt").write_text("\n".join(lines(100, seed=1)) + "\n")
    for model in models:
        same, found = (
            invoke("score", model, tmp_path / "*.txt", *options, *more) for more in ((), ("--engine", "ray"))
        )
        assert same.exit_code == found.exit_code == 0, found.output
        assert found.stdout == same.stdout and len(found.stdout) > 100
    (tmp_path / "1.txt").write_bytes(b"a b\n" * 130 + b"c \xff\n")
    refused = [invoke("score", models[0], tmp_path / "*.txt", *more).stderr for more in ((), ("--engine", "ray"))]
    assert refused[0] == refused[1] and "0xff in line 131" in refused[0]


@pytest.mark.unix
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_workers_give_the_same_though_machines_die_and_results_go_to_disk(tmp_path, monkeypatch, models, machines):  # noqa: F811
    left = ["score_split", "work_on_part", "work_on_part"]
    monkeypatch.setattr(executors, "RayExecutor", functools.partial(Machines, machines, left, tmp_path))
    monkeypatch.setattr(Machines, "spilled", False)
    monkeypatch.setattr(Machines, "has", lambda _, path: path.endswith(".bin"))  # other models: from the object store
    monkeypatch.setattr(splits, "SPLIT_BYTES", 40 << 20)
    on_ray = "--engine", "ray", "--address", machines.address
    for name in "012":
        (tmp_path / f"{name}.txt").write_text("\n".join(lines(100)) * 8000)  # 9 MB
    rows = [json.dumps({"text": line, "rest": chr(97 + i % 26) * (1 << 20)}) for i, line in enumerate(lines(180))]
    (tmp_path / "a.jsonl").write_text("\n".join(rows))  # 180 MB of results, more than two stores hold
    for model in models[::2]:
        same, found = (invoke("score", model, tmp_path / "?.txt", "--json", *more) for more in ((), on_ray))
        assert found.exit_code == 0 and found.stdout == same.stdout, found.output
    outputs = tmp_path / "same.jsonl", tmp_path / "out.jsonl"
    for output, more in zip(outputs, ((), on_ray), strict=True):
        filtered = invoke("filter", models[0], tmp_path / "a.jsonl", "--keep", 0.9, "-o", output, *more)
        assert filtered.exit_code == 0, filtered.output
    assert outputs[0].read_bytes() == outputs[1].read_bytes() and not left
    assert Machines.spilled
