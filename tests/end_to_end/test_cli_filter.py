"""`lidstone filter`, `mix` and `prune` as processes: pipes, exit codes, a kill in the middle."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import lidstone as ld
from lidstone.cli.main import app


def lidstone(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "lidstone", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, check=False)


def invoke(*arguments: object, stdin: str | bytes = ""):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.txt").write_text("the cat sat on the mat\nthe dog sat\na cat saw the dog\n")
    (tmp_path / "b.txt").write_text("a zebra saw a zebra\nthe zebra\n")
    for name in "ab":
        table = ld.WittenBell().fit(ld.count_text(tmp_path / f"{name}.txt", 3))
        table.save(tmp_path / f"{name}.table")
        ld.write_arpa(table, tmp_path / f"{name}.arpa")
    return tmp_path


def test_lines_in_lines_out_and_talk_on_stderr(folder):
    result = lidstone("filter", folder / "a.table", "-", stdin=b"the cat\n\nzebra\n")
    assert result.returncode == 0
    rows = result.stdout.decode().split("\n")
    assert [row.split("\t")[1] for row in rows[:-1]] == ["the cat", "", "zebra"]
    assert b"kept 3 of 3 documents" in result.stderr and b"smoother:witten-bell" in result.stderr


@pytest.mark.parametrize(
    ("verb", "options", "place"),
    [("filter", (), 0), ("score", ("--sentences",), 3), ("score", ("--words",), None)],
)
def test_a_coprocess_gets_its_answer_before_the_next_line(folder, verb, options, place):
    lines = ["the cat", "a dog saw the cat", ""]
    ready = invoke(verb, folder / "a.table", "-", *options, stdin="".join(f"{line}\n" for line in lines)).stdout
    command = [sys.executable, "-m", "lidstone", verb, str(folder / "a.table"), "-", *options, "--line-buffered"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as running:
        answers = []
        for line in lines:
            print(line, file=running.stdin)
            answers.append(running.stdout.readline())  # waits for ever if the verb waits for more text
        running.stdin.close()
    assert "".join(answers) == ready and running.returncode == 0
    assert place is None or float(answers[0].split("\t")[place]) > 1


@pytest.mark.parametrize(
    ("verb", "options"),
    [("filter", ("--keep", "0.5")), ("filter", ("-o", "x.txt")), ("score", ()), ("score", ("--json",))],
)
def test_what_needs_more_than_a_line_is_no_coprocess(folder, verb, options):
    found = invoke(verb, folder / "a.table", "-", *options, "--line-buffered", stdin="a\n")
    assert found.exit_code == 1 and "hint: " in found.stderr and found.stdout == ""


def test_score_takes_a_probing_binary(folder):
    if not _build_binary(folder):
        pytest.skip("KenLM's build_binary is not installed")
    text = "the cat\n\na dog\nzebra the\n"
    for options in ((), ("--blank", "count")):
        one, other = (
            json.loads(invoke("score", folder / name, "-", "--words", "--json", *options, stdin=text).stdout)
            for name in ("a.arpa", "a.probing")
        )
        assert other["perplexity"] == pytest.approx(one["perplexity"], rel=1e-5)
        assert [other[key] for key in ("tokens", "oov", "vocabulary")] == [
            one[key] for key in ("tokens", "oov", "vocabulary")
        ]
        for here, there in zip(one["sentences"], other["sentences"], strict=True):
            assert [(w["word"], w["length"]) for w in here["words"]] == [
                (w["word"], w["length"]) for w in there["words"]
            ]
            assert [w["log10"] for w in there["words"]] == pytest.approx([w["log10"] for w in here["words"]], abs=1e-5)


def test_a_table_arpa_and_a_binary_score_alike(folder):
    outputs = []
    models = [folder / "a.table", folder / "a.arpa"]
    if _build_binary(folder):
        models += [folder / "a.probing", folder / "a.trie"]
    for model in models:
        result = invoke("filter", model, folder / "b.txt", "--output", folder / "o", "--json")
        assert result.exit_code == 0, result.output
        facts = json.loads(result.stdout)
        assert (facts["documents"], facts["kept"], facts["bad"]) == (2, 2, 0)
        assert {"perplexity", "tokens", "unknown", "signature"} <= set(facts)
        outputs.append([float(line.split("\t")[0]) for line in (folder / "o").read_text().splitlines()])
    for values in outputs[1:]:
        assert values == pytest.approx(outputs[0], rel=1e-4)


def _build_binary(folder: Path) -> bool:
    import shutil

    if not shutil.which("build_binary"):
        return False
    for kind in ("probing", "trie"):
        subprocess.run(["build_binary", kind, folder / "a.arpa", folder / f"a.{kind}"], check=True, capture_output=True)
    return True


def test_bad_lines_are_named_and_kept_apart(folder):
    good = b'{"text": "the cat"}\n'
    (folder / "in.jsonl").write_bytes(good + b'{"txt": 1}\n{"text": "\xff"}\nnull\n' + good * 29)
    result = invoke("filter", folder / "a.table", folder / "in.jsonl", "--output", folder / "o.jsonl")
    assert result.exit_code == 0
    for line, reason in ((2, "no field 'text' (it has 'txt')"), (3, "not UTF-8"), (4, "not a JSON object but null")):
        assert f"in.jsonl:{line}: {reason}" in result.stderr
    assert "kept 30 of 30 documents, 3 bad lines in" in result.stderr
    assert len((folder / "o.jsonl.bad").read_bytes().splitlines()) == 3


def test_many_bad_lines_are_counted_not_named_one_by_one(folder):
    (folder / "in.txt").write_bytes(b"\xff\n" * 50 + b"\0\n" + b"the cat\n" * 49)
    result = invoke("filter", folder / "a.table", folder / "in.txt", "--output", folder / "o", "--max-bad", 0.6)
    assert result.exit_code == 0
    assert result.stderr.count("warning: ") == 6 and f"all are in {folder / 'o.bad'}" in result.stderr
    assert "bad lines: 50 not UTF-8, 1 a NUL byte\n" in result.stderr
    assert len((folder / "o.bad").read_bytes().splitlines()) == 51
    piped = lidstone("filter", folder / "a.table", folder / "in.txt")
    assert piped.stderr.count(b"warning: ") == 6 and piped.stdout.count(b"the cat") == 49
    assert piped.returncode == 1 and b"error: 51 of 100 lines are not documents" in piped.stderr


def test_a_wrong_field_is_an_error_that_names_the_fields(folder):
    (folder / "in.jsonl").write_text('{"id": 1, "body": "the cat"}\n' * 100)
    result = invoke("filter", folder / "a.table", folder / "in.jsonl", "-o", folder / "o", "--max-bad", 1)
    assert result.exit_code == 1
    assert "100 of 100 lines are not documents (100 no field 'text')" in result.stderr
    assert "no field 'text' (it has 'id', 'body')" in result.stderr and "hint: check --field" in result.stderr
    assert result.stderr.count("\n") < 12
    assert invoke("filter", folder / "a.table", folder / "in.jsonl", "--field", "body").exit_code == 0
    assert invoke("filter", folder / "a.table", "-").exit_code == 0  # no text, no bad line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--keep", "30"], "share between 0 and 1"),
        (["--percentiles", "a,b"], "not two numbers"),
        (["--bucket", "best"], "no bucket"),
        (["--max-difference", "1"], "second model"),
        (["--output", "no/such/folder/o"], "no folder"),
    ],
)
def test_wrong_settings_are_two_lines_and_exit_code_1(folder, arguments, message):
    result = invoke("filter", folder / "a.table", folder / "a.txt", *arguments)
    assert result.exit_code == 1 and message in result.stderr and result.stderr.count("\n") == 2


def test_a_model_on_standard_input_and_what_is_no_model(folder):
    result = invoke("filter", "-", folder / "b.txt", "--bare", stdin=(folder / "a.arpa").read_bytes())
    assert result.exit_code == 0 and result.stdout == (folder / "b.txt").read_text()
    result = invoke("filter", folder / "a.txt", folder / "b.txt")
    assert result.exit_code == 1 and "not a model" in result.stderr
    result = invoke("filter", folder / "none", folder / "b.txt")
    assert result.exit_code == 1 and "none" in result.stderr


def test_moore_lewis_from_the_command_line(folder):
    result = invoke(
        "filter", folder / "a.table", "-", "--against", folder / "b.table", "--keep", 0.5, stdin="zebra\nmat\n"
    )
    perplexity, difference, line = result.stdout.strip().split("\t")
    assert line == "mat" and float(difference) < 0 < float(perplexity)


DYING = """
import os, signal, sys
from lidstone.cli.main import app
from lidstone.ngram.filter import checkpoint, documents

def dying(*arguments, **options):
    for number, chunk in enumerate(chunks(*arguments, **options)):
        if number == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        yield chunk

chunks, documents.read_chunks, checkpoint.SECONDS = documents.read_chunks, dying, 0.0
app(sys.argv[1:])
"""


@pytest.mark.unix
@pytest.mark.slow
def test_a_killed_run_goes_on_and_gives_the_same_bytes(folder):
    with gzip.open(folder / "in.txt.gz", "wt", compresslevel=1) as file:
        file.write("".join(f"the cat saw {'a dog ' * (i % 15)}sat {i}\n" for i in range(120_000)))  # 7 MB
    arguments = ["filter", folder / "a.table", folder / "in.txt.gz", "--jobs", 1, "--keep", 0.3]
    assert lidstone(*arguments, "-o", folder / "whole").returncode == 0
    for _ in range(2):
        command = [sys.executable, "-c", DYING, *map(str, arguments), "-o", str(folder / "parts")]
        assert subprocess.run(command, capture_output=True, check=False).returncode == -signal.SIGKILL
        assert not (folder / "parts").exists()
    done = lidstone(*arguments, "-o", folder / "parts")
    assert done.returncode == 0 and b"continuing after line" in done.stderr
    assert (folder / "parts").read_bytes() == (folder / "whole").read_bytes()


def test_mix_by_em_and_by_hand(folder):
    (folder / "dev.txt").write_text("the cat saw a zebra\n")
    tables = folder / "a.table", folder / "b.arpa"
    result = invoke("mix", *tables, "--weights", "em", "--text", folder / "dev.txt", "-o", folder / "m", "--json")
    weights = json.loads(result.stdout)["weights"]
    assert sum(weights) == pytest.approx(1) and min(weights) > 0.1
    mixed = ld.load(folder / "m")
    assert mixed.vocab.index["zebra"] and mixed.prob([()]).sum() == pytest.approx(1, abs=1e-6)
    result = invoke("mix", *tables, "-o", folder / "m.arpa")
    assert "a.table" in result.stdout and "0.500000" in result.stdout
    assert invoke("score", folder / "m.arpa", folder / "dev.txt").exit_code == 0
    result = invoke("mix", *tables, "--weights", "0.5;0.5", "-o", folder / "m")
    assert result.exit_code == 1 and "are not numbers" in result.stderr


def test_prune_by_entropy_and_by_size(folder):
    result = invoke("prune", folder / "a.arpa", "--entropy", 0.05, "-o", folder / "p.arpa", "--json")
    facts = json.loads(result.stdout)
    assert facts["after"][0] == facts["before"][0] and sum(facts["after"]) < sum(facts["before"])
    assert "pruned:entropy=0.05" in facts["signature"]
    result = invoke("prune", folder / "a.table", "--size", 20, "-o", folder / "p.table")
    assert result.exit_code == 0 and ld.load(folder / "p.table").trie.size <= 20
    result = invoke("prune", folder / "a.table", "-o", folder / "p.table")
    assert result.exit_code == 1 and "either entropy= or size=" in result.stderr
