"""What a user can get wrong with the n-gram verbs: one line, a hint, exit 1, and nothing left behind."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lidstone.cli.main import app

ARPA = r"""\data\
ngram 1=4
ngram 2=1

\1-grams:
-1 <unk>
-99 <s> -0.3
-0.4 a -0.2
-0.5 </s>

\2-grams:
-0.1 <s> a

\end\
"""


def run(*arguments: object, stdin: str | bytes = b""):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def refused(*arguments: object, stdin: str | bytes = b"") -> str:
    """Run a verb that must fail for its input; give the message."""
    result = run(*arguments, stdin=stdin)
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    error, hint = result.stderr.splitlines()  # exactly two lines
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")
    return error.removeprefix("error: ")


@pytest.fixture
def folder(tmp_path):
    """Counts `c`, a table `t` of them, an ARPA file; the test must add nothing else."""
    assert run("count", "-", "-n", 2, "-o", tmp_path / "c", stdin="a b\na\n").exit_code == 0
    assert run("fit", tmp_path / "c", "-s", "witten-bell", "-o", tmp_path / "t").exit_code == 0
    (tmp_path / "m.arpa").write_text(ARPA, encoding="utf-8")
    yield tmp_path
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {"c", "t", "m.arpa", "bad", "bad.arpa"}, "something was left behind"


BAD_TEXT = {
    "empty": (b"", "there is nothing to"),
    "blank": (b"\n \n\t\n", "there is nothing to"),
    "utf8": (b"a b\nc \xff\n", "<stdin> is not UTF-8: 0xff in line 2, at byte 6"),
    "nul": (b"a\0b\n", "<stdin> has a NUL byte in line 1, at byte 1"),
    "start": (b"a <s> b\n", "reserved word <s> (<stdin>, line 1)"),
    "end": (b"a\nb </s>\n", "reserved word </s> (<stdin>, line 2)"),
    "cut": (b"\x1f\x8b\x08\x00", "<stdin> is cut off"),
}


@pytest.mark.parametrize("name", BAD_TEXT)
def test_bad_text_is_refused_by_count(name, folder):
    text, message = BAD_TEXT[name]
    assert message in refused("count", "-", "-n", 2, "-o", folder / "out", stdin=text)


@pytest.mark.parametrize("name", BAD_TEXT)
def test_bad_text_is_refused_by_score(name, folder):
    text, message = BAD_TEXT[name]
    assert message in refused("score", folder / "t", "-", stdin=text)


@pytest.mark.parametrize("name", BAD_TEXT)
def test_bad_text_is_refused_as_held_out_text(name, folder):
    text, message = BAD_TEXT[name]
    options = ["-s", "jelinek-mercer", "--held-out", "-", "-o", folder / "out"]
    expected = "there is no held-out text" if "nothing" in message else message
    assert expected in refused("fit", folder / "c", *options, stdin=text)


def test_one_token_is_enough(folder):
    assert run("count", "-", "-n", 8, "-o", folder / "bad", stdin="a").exit_code == 0
    assert run("score", folder / "t", "-", stdin="a").exit_code == 0


@pytest.mark.parametrize("order", [0, 9, -1])
def test_an_impossible_order(order, folder):
    assert f"from 1 to 8, not {order}" in refused("count", "-", "-n", order, "-o", folder / "out", stdin="a")


def test_a_text_or_table_that_is_not_there(folder):
    assert "nowhere" in refused("count", folder / "nowhere", "-n", 2, "-o", folder / "out")
    assert "nowhere" in refused("fit", folder / "nowhere", "-o", folder / "out")
    assert "nowhere" in refused("score", folder / "nowhere", "-", stdin="a")
    assert "nowhere.arpa" in refused("score", folder / "nowhere.arpa", "-", stdin="a")
    assert "nowhere" in refused("convert", folder / "nowhere", folder / "out")
    assert str(folder) in refused("score", folder, "-", stdin="a")


def test_an_output_that_cannot_be_written(folder):
    assert "there is no folder" in refused("count", "-", "-n", 2, "-o", folder / "no" / "out", stdin="a")
    assert "it is a folder" in refused("fit", folder / "c", "-s", "witten-bell", "-o", folder)
    assert "there is no folder" in refused("convert", folder / "t", folder / "no" / "out.arpa")


def test_impossible_thresholds_and_vocabularies(folder):
    options = ["-n", 2, "-o", folder / "out"]
    assert "thresholds [2, 1]" in refused("count", "-", *options, "--threshold", 2, "--threshold", 1, stdin="a")
    (folder / "bad").write_text("a\nb\na\n", encoding="utf-8")
    assert "'a' occurs twice" in refused("count", "-", *options, "--vocab", folder / "bad", stdin="a")
    (folder / "bad").write_text("\n", encoding="utf-8")
    assert "has no words" in refused("count", "-", *options, "--vocab", folder / "bad", stdin="a")
    (folder / "bad").write_text("a\nthe 5\n", encoding="utf-8")
    assert "line 2: 'the 5' is not one word" in refused("count", "-", *options, "--vocab", folder / "bad", stdin="a")


def damaged_versions(whole: bytes):
    yield b""
    yield whole[:5]
    yield whole[: len(whole) // 2]
    yield whole[:-1]
    yield whole + b"x"
    for place in range(0, len(whole), 37):
        yield whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :]


@pytest.mark.parametrize(
    ("name", "verb"),
    [
        ("t", ["score", "{bad}", "-"]),
        ("t", ["sample", "{bad}"]),
        ("t", ["convert", "{bad}", "{out}"]),
        ("t", ["explain", "{bad}", "--counts", "{c}", "--history", "a"]),
        ("c", ["fit", "{bad}", "-s", "witten-bell", "-o", "{out}"]),
        ("c", ["explain", "{t}", "--counts", "{bad}", "--history", "a"]),
    ],
)
def test_a_damaged_table_or_counts_file(name, verb, folder):
    places = {"bad": folder / "bad", "out": folder / "out", "c": folder / "c", "t": folder / "t"}
    for content in damaged_versions((folder / name).read_bytes()):
        (folder / "bad").write_bytes(content)
        message = refused(*(word.format(**places) for word in verb), stdin="a b\n")
        assert "bad" in message


BAD_ARPA = {
    "truncated": (ARPA[: ARPA.index("-0.1")], ""),
    "no end": (ARPA.replace("\\end\\\n", ""), ""),
    "too few": (ARPA.replace("ngram 1=4", "ngram 1=5"), ""),
    "too many": (ARPA.replace("ngram 1=4", "ngram 1=3"), ""),
    "nan": (ARPA.replace("-0.4 a", "nan a"), "nan"),
    "positive": (ARPA.replace("-0.4 a", "0.4 a"), "0.4"),
    "no number": (ARPA.replace("-0.4 a", "x a"), ""),
    "unknown word": (ARPA.replace("-0.1 <s> a", "-0.1 <s> b"), "b"),
    "empty": ("", ""),
    "prose": ("just words\n", ""),
}


@pytest.mark.parametrize("name", BAD_ARPA)
def test_a_damaged_arpa_file(name, folder):
    text, message = BAD_ARPA[name]
    (folder / "bad.arpa").write_text(text, encoding="utf-8")
    assert message in refused("convert", folder / "bad.arpa", folder / "out")
    assert message in refused("score", folder / "bad.arpa", "-", stdin="a\n")
    assert run("score", folder / "m.arpa", "-", stdin="a\n").exit_code == 0  # the whole one is fine


def test_counts_and_tables_are_not_confused(folder):
    assert "holds a table, not counts" in refused("fit", folder / "t", "-o", folder / "out")
    assert "holds counts, not a table" in refused("score", folder / "c", "-", stdin="a")


def test_unknown_smoothers_and_settings_name_the_nearest(folder):
    kats = run("fit", folder / "c", "-s", "kats", "-o", folder / "out")
    assert (kats.exit_code, "did you mean katz?" in kats.stderr) == (1, True)
    lambda_ = run("fit", folder / "c", "-s", "add-lambda", "--set", "lm=1", "-o", folder / "out")
    assert (lambda_.exit_code, "did you mean lam?" in lambda_.stderr) == (1, True)
    for value in ("x", "{[1]}", "(" * 300):
        assert "must be" in refused("fit", folder / "c", "-s", "katz", "--set", f"k={value}", "-o", folder / "out")
    assert "undefined for order" in refused("fit", folder / "c", "-s", "katz", "--set", "k=1" + "0" * 30, "-o", "out")


@pytest.mark.parametrize("wrong", ["lam", "=1", "a b=1"])
def test_a_malformed_setting_is_a_usage_error(wrong, folder):
    result = run("fit", folder / "c", "-s", "add-lambda", "--set", wrong, "-o", folder / "out")
    assert (result.exit_code, "name=value" in result.stderr) == (2, True)


def test_a_setting_given_twice_is_a_usage_error(folder):
    result = run("fit", folder / "c", "--set", "k=1", "--set", "k=2", "-o", folder / "out")
    assert (result.exit_code, "twice" in result.stderr) == (2, True)


def test_held_out_text_only_where_it_is_used(folder):
    options = ["--held-out", "-", "-o", folder / "out"]
    assert "katz does not use held-out text" in refused("fit", folder / "c", "-s", "katz", *options, stdin="a")
    given = ["-s", "jelinek-mercer", "--set", "weights=0.5"]
    assert "weights are given and to be learnt" in refused("fit", folder / "c", *given, *options, stdin="a")


def test_too_little_text_for_a_smoother_names_the_remedy(folder):
    assert "undefined for order" in refused("fit", folder / "c", "-s", "modified-kneser-ney", "-o", folder / "out")


def test_histories_that_the_model_cannot_have(folder):
    given = ["explain", folder / "t", "--counts", folder / "c", "--history"]
    assert "2 words, but a model of order 2 sees 1" in refused(*given, "a b")
    assert run("count", "-", "-n", 3, "-o", folder / "bad", stdin="a b\n").exit_code == 0
    assert run("fit", folder / "bad", "-s", "witten-bell", "-o", folder / "t").exit_code == 0
    assert "first word of a history" in refused(*given, "a <s>")


def test_counts_that_do_not_belong_to_the_table(folder):
    given = ["explain", folder / "t", "--counts", folder / "bad", "--history", "a"]
    assert run("count", "-", "-n", 2, "-o", folder / "bad", stdin="a b c\n").exit_code == 0
    assert "another vocabulary" in refused(*given)
    options = ["-n", 2, "-o", folder / "bad", "--threshold", 0, "--threshold", 1]
    assert run("count", "-", *options, stdin="a b\na\n").exit_code == 0
    assert "thresholds" in refused(*given)


def test_a_table_without_strings_cannot_read_text(folder):
    import lidstone as ld

    counts = ld.count([[1, 2], [1]], ld.Vocabulary(size=3, eos=0), order=2)
    ld.WittenBell().fit(counts).save(folder / "bad")
    assert "no strings" in refused("score", folder / "bad", "-", stdin="a")
    assert "no strings" in refused("convert", folder / "bad", folder / "out.arpa")
    assert run("sample", folder / "bad").exit_code == 0  # ids are drawn all the same


@pytest.mark.parametrize("arguments", [["sample", "t", "-N", "0"], ["count"], ["count", "x"], ["fit", "c"], ["score"]])
def test_a_wrong_command_line_exits_with_2(arguments):
    assert run(*arguments).exit_code == 2


def test_a_full_disk_leaves_nothing_behind(folder, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    for arguments in (
        ["count", "-", "-n", 2, "-o", folder / "out"],
        ["fit", folder / "c", "-s", "witten-bell", "-o", folder / "out"],
        ["convert", folder / "t", folder / "out.arpa.gz"],
    ):
        assert "No space left on device" in refused(*arguments, stdin="a")


@contextlib.contextmanager
def no_file_above(size: int):
    """As on a disk that fills up: writing fails in the middle of a file."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.unix
@pytest.mark.parametrize("target", ["t", "out", "out.arpa", "out.arpa.gz", "out.arpa.zst"])
def test_a_disk_that_fills_up_keeps_the_old_file_and_leaves_no_part_of_the_new(target, folder):
    before = (folder / "t").read_bytes()
    with no_file_above(50):
        message = refused("convert", folder / "t", folder / target)
    assert message == f"cannot write {folder / target}: File too large"
    assert (folder / "t").read_bytes() == before


@pytest.mark.unix
def test_stdout_on_a_full_device(folder):
    code = "from lidstone.cli.main import run; run()"
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-c", code, "convert", str(folder / "t"), "-"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr.splitlines()[0]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "runs", "--html", "-"),
        ("report", "runs", "--plots", "-"),
        ("pack", "runs", "-o", "-"),
        ("demo", "-o", "-"),
    ],
)
def test_pages_figures_and_folders_are_not_written_to_stdout(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, list(arguments))
    assert found.exit_code == 1 and "not written to standard output" in found.stderr
    assert not list(tmp_path.iterdir())


def test_counts_are_files(folder):
    """`-` is text or ARPA, never counts: they are mapped into memory."""
    written = "counts are not written to standard output"
    assert refused("count", "-", "-n", 2, "-o", "-", stdin="a b\n") == written
    assert refused("merge", folder / "c", folder / "c", "-o", "-") == written
    read = "counts are not read from standard input"
    assert refused("fit", "-", "-o", folder / "bad") == read
    assert refused("merge", folder / "c", "-", "-o", folder / "bad") == read
    assert refused("explain", folder / "t", "--counts", "-", "--history", "a") == read


def test_prune_is_another_name_of_threshold(folder):
    options = ("-n", 2, "-o", folder / "c", "--json")
    one, other = (
        run("count", "-", *options, name, 0, name, 1, stdin="a b\na b\nb\n") for name in ("--threshold", "--prune")
    )
    assert one.exit_code == 0 and one.stdout == other.stdout
