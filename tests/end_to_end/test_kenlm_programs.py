"""`lidstone lmplz`, `build-binary` and `query` beside KenLM's programs, and scripts that call these by name."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import lidstone.kenlm as kenlm
from lidstone.cli.main import app
from lidstone.text.corpora import embedded_corpus

FILES = Path(__file__).parents[1] / "golden" / "files" / "kenlm"
needs_kenlm = pytest.mark.skipif(not shutil.which("lmplz"), reason="KenLM's programs are not on the PATH")


@pytest.fixture(scope="module")
def corpus() -> str:
    sentences = [" ".join(words) for words in embedded_corpus()[:1500]]
    return "\n".join([*sentences[:500], "", *sentences[500:]]) + "\n"  # with a line without words


def run(*command: object, text: str = "", code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(part) for part in command], input=text, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done


def ours(*arguments: object, text: str = "", code: int = 0) -> Result:
    done = CliRunner().invoke(app, [str(part) for part in arguments], input=text)
    assert done.exit_code == code, done.output
    return done


def entries(arpa: str) -> dict[str, tuple[float, float]]:
    """The numbers of each n-gram; log10 p of `<s>` is 0 for lmplz, and -99 for others."""
    lines = [line.split("\t") for line in arpa.splitlines() if "\t" in line]
    return {ngram: (0.0 if ngram == "<s>" else float(p), float(more[0]) if more else 0.0) for p, ngram, *more in lines}


@needs_kenlm
@pytest.mark.parametrize(
    "flags",
    [
        "-o 3",
        "--order=2 --prune 0 1 --discount_fallback",
        "-o 3 --discount_fallback 0.4 0.9 --vocab_pad 20000 --prune 0 0 1 -S 200M -T {folder}/t",
        "-o 3 --limit_vocab_file {folder}/words --skip=",
    ],
)
def test_lmplz_estimates_what_lmplz_does(tmp_path: Path, corpus: str, flags: str) -> None:
    """To 1e-3: the counts of counts differ by one, as test_lmplz.py says."""
    (tmp_path / "words").write_text(" ".join(sorted(set(corpus.split()))[::3]))
    options = flags.replace("--skip=", "").format(folder=tmp_path).split()
    theirs = run("lmplz", "-S", "100M", *[o for o in options if o not in ("-S", "200M")], text=corpus).stdout
    expected, found = entries(theirs), entries(ours("lmplz", *options, text=corpus).stdout)
    assert expected.keys() == found.keys()
    worst = max(abs(a - b) for ngram in expected for a, b in zip(expected[ngram], found[ngram], strict=True))
    assert worst < 1e-3


def test_lmplz_refuses_what_it_does_not_do() -> None:
    assert "does not know --skip_symbols" in ours("lmplz", "-o", 2, "--skip_symbols", text="a\n", code=1).stderr
    assert "<unk>" in ours("lmplz", "-o", 2, "--discount_fallback", text="a <unk> b\n", code=1).stderr
    assert "required: -o" in ours("lmplz", text="a\n", code=2).stderr
    assert "undefined for order" in ours("lmplz", "-o", 2, text="a b\n", code=1).stderr


def test_build_binary_writes_the_files_of_build_binary(tmp_path: Path) -> None:
    for name, arguments in (("probing.bin", ""), ("quant-array-trie.bin", "-q 5 -b 4 -a 255 -T /tmp -S 80% trie")):
        done = ours("build-binary", *arguments.split(), FILES / "model.arpa", tmp_path / name)
        assert (tmp_path / name).read_bytes() == (FILES / name).read_bytes()
        assert done.stderr.endswith("SUCCESS\n") and done.stdout == ""
    assert "does not know -r" in ours("build-binary", "-r", "x", "a", "b", code=1).stderr
    assert "no format 'tree'" in ours("build-binary", "tree", FILES / "model.arpa", tmp_path / "m", code=1).stderr


@needs_kenlm
@pytest.mark.parametrize(
    ("model", "flags"),
    [
        ("model.arpa", ""),
        ("probing.bin", "-v sentence -v summary"),
        ("quant-trie.bin", "-v word"),
        ("trie.bin", "-n -b -l lazy"),
        ("model.arpa", "-v 0"),
        ("trie.bin", "-v 1"),
    ],
)
@pytest.mark.parametrize("text", ["the cat sees zebra café\n\n  \tthe dog\n", "a b c\nthe zebra", "the cat"])
def test_query_prints_what_query_prints(model: str, flags: str, text: str) -> None:
    expected = run("query", *flags.split(), FILES / model, text=text).stdout
    found = ours("query", *flags.split(), FILES / model, text=text).stdout
    number = r"(?<=\t)[-+.e\d]+$"  # the perplexities: sums in float64 may differ in the last digit
    assert re.sub(number, "N", found, flags=re.M) == re.sub(number, "N", expected, flags=re.M)
    pairs = zip(re.findall(number, found, re.M), re.findall(number, expected, re.M), strict=True)
    assert all(float(one) == pytest.approx(float(other), rel=1e-12) for one, other in pairs)


def test_argument_lists_of_nemo_run_unchanged(tmp_path: Path, corpus: str) -> None:
    """The lists that NeMo's train_kenlm.py makes, for subword models and, with an empty argument, for others."""
    ours("install-kenlm-names", tmp_path / "bin folder")
    for fallback, prune in (("--discount_fallback", ["0", "0", "1"]), ("", ["0"])):
        model = tmp_path / f"lm{len(prune)}.bin"
        arpa = f"{model}.tmp.arpa"
        lmplz = [tmp_path / "bin folder" / "lmplz", "-o", "3", "--arpa", arpa, fallback, "--prune", *prune]
        assert run(*lmplz, text=corpus).stdout == ""
        run(tmp_path / "bin folder" / "build_binary", "trie", arpa, model)
        assert kenlm.Model(model).score("the value of") == kenlm.Model(arpa).score("the value of")
        printed = run(tmp_path / "bin folder" / "query", "-v", "sentence", model, text="the value of\n").stdout
        assert printed.startswith("Total: -")


def test_executables_of_others_are_not_replaced(tmp_path: Path) -> None:
    ours("install-kenlm-names", tmp_path)
    ours("install-kenlm-names", tmp_path)
    (tmp_path / "query").write_text("another program")
    assert "is there already" in ours("install-kenlm-names", tmp_path, code=1).stderr
