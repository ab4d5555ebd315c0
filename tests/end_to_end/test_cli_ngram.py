"""The n-gram verbs as a user calls them: files and pipes, numbers worked out by hand."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import lidstone as ld
from lidstone.cli.main import app

LIDSTONE = [sys.executable, "-c", "from lidstone.cli.main import run; run()"]
TINY = "a b\na\n"


def run(*arguments: object, stdin: str | bytes = b"", code: int = 0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    assert result.exit_code == code, result.output
    return result


def answer(*arguments: object, stdin: str | bytes = b""):
    """The JSON that a verb prints."""
    return json.loads(run(*arguments, "--json", stdin=stdin).stdout)


@pytest.fixture
def tiny(tmp_path) -> Path:
    """A folder with counts `c` of two sentences and an add-one table `t` of them."""
    run("count", "-", "--order", 2, "--output", tmp_path / "c", stdin=TINY)
    run("fit", tmp_path / "c", "--smoother", "add-lambda", "--set", "lam=1", "--output", tmp_path / "t")
    return tmp_path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """A folder with real text: train.txt, test.txt, and counts of order 3 in `counts`."""
    from lidstone.text.corpora import embedded_corpus, split_sentences

    folder = tmp_path_factory.mktemp("corpus")
    train, valid, test = split_sentences(embedded_corpus()[:1000])
    for name, sentences in (("train", train), ("valid", valid), ("test", test)):
        (folder / f"{name}.txt").write_text("\n".join(map(" ".join, sentences)) + "\n", encoding="utf-8")
    run("count", folder / "train.txt", "--order", 3, "--output", folder / "counts")
    return folder


def test_count_tells_what_it_counted(tmp_path):
    facts = answer("count", "-", "-n", 2, "-o", tmp_path / "c", stdin=TINY)
    signature = facts.pop("signature")
    # a, b, </s>; <s> a (twice), a b, a </s>, b </s>. The vocabulary holds <unk> as well.
    assert facts == {"tokens": 5, "sentences": 2, "vocabulary": 4, "ngrams": [3, 4]}
    assert signature.startswith("order:2|vocab:4|tokens:5|counts:")
    assert signature.endswith(f"|lidstone:{ld.__version__}")


def test_count_reads_several_texts_and_compressed_ones(tmp_path):
    (tmp_path / "one.txt").write_text("a b\n", encoding="utf-8")
    (tmp_path / "two.gz").write_bytes(gzip.compress(b"a\n"))
    run("count", tmp_path / "one.txt", tmp_path / "two.gz", "-n", 2, "-o", tmp_path / "both")
    run("count", "-", "-n", 2, "-o", tmp_path / "piped", stdin=TINY)
    assert (tmp_path / "both").read_bytes() == (tmp_path / "piped").read_bytes()


def test_count_with_a_vocabulary_and_thresholds(tmp_path):
    (tmp_path / "words").write_text("a\n\nz\n", encoding="utf-8")
    options = ["-n", 2, "-o", tmp_path / "c", "--vocab", tmp_path / "words", "--threshold", 0, "--threshold", 1]
    facts = answer("count", "-", *options, stdin=TINY)
    assert facts["vocabulary"] == 4  # <unk>, </s>, a, z
    assert facts["ngrams"] == [3, 1]  # <unk> for b, </s>, a; only <s> a occurs twice
    assert "|thresholds:0,1|" in facts["signature"]


def test_score_is_the_number_worked_out_by_hand(tiny):
    facts = answer("score", tiny / "t", "-", stdin="a b\n")
    # p(a|<s>) = (2+1)/(2+4), p(b|a) = (1+1)/(2+4), p(</s>|b) = (1+1)/(1+4): the product is 1/15
    assert facts["perplexity"] == pytest.approx(15 ** (1 / 3))
    assert (facts["tokens"], facts["oov"], facts["vocabulary"]) == (3, 0, 4)
    assert facts["signature"].startswith("order:2|smoother:add-lambda|lam:1|vocab:4|vocabulary:")


def test_score_by_sentence(tiny):
    found = run("score", tiny / "t", "-", "--sentences", stdin="a b\n\nz\n")
    # p(<unk>|<s>) = 1/6; p(</s>|<unk>) = 1/4, for nothing follows <unk>
    assert found.stdout.splitlines() == [
        f"{np.log10(1 / 15):.6f}\t3\t0\t{15 ** (1 / 3):.4f}",
        "0.000000\t0\t0\t-",
        f"{np.log10(1 / 24):.6f}\t2\t1\t{24 ** (1 / 2):.4f}",
    ]
    assert f"perplexity {(15 * 24) ** (1 / 5):.4f}  (5 tokens, 1 OOV, vocabulary 4)" in found.stderr
    facts = answer("score", tiny / "t", "-", "--sentences", stdin="a b\n\n")
    assert [record["tokens"] for record in facts["sentences"]] == [3, 0]
    assert facts["sentences"][1]["perplexity"] is None


def test_blank_lines_are_skipped_or_scored_as_sentences(tiny):
    facts = answer("score", tiny / "t", "-", "--sentences", "--blank", "count", stdin="a b\n\n")
    # p(</s>|<s>) = (0+1)/(2+4)
    assert facts["sentences"][1] == pytest.approx({"log10": np.log10(1 / 6), "tokens": 1, "oov": 0, "perplexity": 6})
    assert facts["perplexity"] == pytest.approx((15 * 6) ** (1 / 4))
    skipped = answer("score", tiny / "t", "-", stdin="a b\n\n")
    assert skipped["perplexity"] == pytest.approx(15 ** (1 / 3))
    assert skipped["signature"] != facts["signature"]
    assert "choose skip or count" in run("score", tiny / "t", "-", "--blank", "no", stdin="a", code=1).stderr


def test_count_may_count_blank_lines(tmp_path):
    facts = [
        answer("count", "-", "-n", 2, "-o", tmp_path / "c", *blank, stdin="a\n\n")
        for blank in ([], ["--blank", "count"])
    ]
    assert [fact["sentences"] for fact in facts] == [1, 2]
    assert ld.load(tmp_path / "c").of([3, 1]) == 1  # <s> </s>


def test_score_by_word_is_in_the_format_of_kenlm(tiny):
    found = run("score", tiny / "t", "-", "--words", stdin="a z\n\n")
    # p(a|<s>) = 3/6: a bigram; p(<unk>|a) = 1/6: unigrams; p(</s>|<unk>) = 1/4: unigrams
    logs = [f"{np.log10(p):.7g}" for p in (1 / 2, 1 / 6, 1 / 4)]
    total = f"{np.log10(1 / 48):.7g}"
    assert (
        found.stdout
        == f"a=2 2 {logs[0]}\tz=0 1 {logs[1]}\t</s>=1 1 {logs[2]}\tTotal: {total} OOV: 1\nTotal: 0 OOV: 0\n"
    )
    words = answer("score", tiny / "t", "-", "--words", stdin="a z\n")["sentences"][0]["words"]
    assert words[1] == {"word": "z", "id": 0, "length": 1, "log10": pytest.approx(np.log10(1 / 6))}


def test_texts_that_score_differently_have_different_signatures(tiny):
    one, other = (answer("score", tiny / "t", "-", stdin=text) for text in ("a\x0bb a\n", "a b a\n"))
    assert one["perplexity"] != other["perplexity"]
    assert one["signature"] != other["signature"]


def test_the_signature_tells_texts_apart_but_not_their_packaging(tiny):
    (tiny / "text.gz").write_bytes(gzip.compress(b"a  b\n\n"))
    same, packed, other = (
        answer("score", tiny / "t", source, stdin=text)["signature"]
        for source, text in (("-", "a b\n"), (tiny / "text.gz", ""), ("-", "b a\n"))
    )
    assert same == packed != other


def test_the_signature_of_a_text_is_that_of_its_words(tmp_path):
    def text_of(model: str, text: str) -> str:
        run("count", "-", "-n", 1, "-o", tmp_path / "c", stdin=model)
        run("fit", tmp_path / "c", "-s", "add-lambda", "-o", tmp_path / "t")
        return answer("score", tmp_path / "t", "-", stdin=text)["signature"].rpartition("|text:")[2]

    assert text_of("a b\n", "a z\n") == text_of("b a\n", "a z\n")  # though the models number words otherwise
    assert text_of("a b\n", "a b\n") != text_of("x y\n", "x y\n")  # though the numbers are the same


def test_explain_splits_the_difference(tiny):
    facts = answer("explain", tiny / "t", "--counts", tiny / "c", "--history", "a")
    # after a came b and </s> once each: p = 1/2; p~ = (1+1)/(2+4) for these, 1/6 for a and <unk>
    assert facts["z"] == pytest.approx(1 / 3)
    assert facts["count"] == 2
    rows = {row.pop("word"): row for row in facts["words"]}
    assert rows["b"] == pytest.approx({"c": 1, "p": 1 / 2, "p~": 1 / 3, "p+": 0, "p-": 1 / 2})
    assert rows["<unk>"] == pytest.approx({"c": 0, "p": 0, "p~": 1 / 6, "p+": 1 / 2, "p-": 0})


def test_explain_an_unseen_history_and_a_sentence_start(tiny):
    unseen = answer("explain", tiny / "t", "--counts", tiny / "c", "--history", "z")
    assert (unseen["count"], unseen["z"]) == (0, None)
    assert unseen["words"][0] == {"word": "<unk>", "c": 0, "p": None, "p~": 0.25, "p+": None, "p-": None}
    start = answer("explain", tiny / "t", "--counts", tiny / "c", "--history", "<s>", "-N", 1)
    assert [row["word"] for row in start["words"]] == ["a"]
    text = run("explain", tiny / "t", "--counts", tiny / "c", "--history", "z").stdout
    assert "never seen" in text


def test_explain_agrees_with_the_split_that_the_loss_uses(corpus, tmp_path):
    from lidstone.loss.split import signed_split

    run("fit", corpus / "counts", "-o", tmp_path / "t")
    facts = answer("explain", tmp_path / "t", "--counts", corpus / "counts", "--history", "of the")
    parts = signed_split(ld.load(tmp_path / "t"), ld.load(corpus / "counts"))
    history = ld.load(corpus / "counts").vocab.encode(["of", "the"])
    assert facts["z"] == pytest.approx(parts.z(list(map(int, history))))


def test_sample_depends_on_the_seed_alone(corpus, tmp_path):
    run("fit", corpus / "counts", "-o", tmp_path / "t")
    first, again, other = (run("sample", tmp_path / "t", "-N", 3, "--seed", s) for s in (1, 1, 2))
    assert first.stdout == again.stdout != other.stdout
    assert len(first.stdout.splitlines()) == 3
    assert "|seed:1" in first.stderr
    assert answer("sample", tmp_path / "t", "-N", 1, "--seed", 1)["sentences"] == first.stdout.splitlines()[:1]
    known = set((corpus / "train.txt").read_text(encoding="utf-8").split()) | {"<unk>"}
    assert set(first.stdout.split()) <= known


@pytest.mark.parametrize("name", ld.smoother_names())
def test_every_smoother_fits_scores_and_survives_arpa(name, corpus, tmp_path):
    fitted = answer("fit", corpus / "counts", "-s", name, "-o", tmp_path / "t")
    assert fitted["table"]["smoother"] == name
    plain = answer("score", tmp_path / "t", corpus / "test.txt")
    run("convert", tmp_path / "t", tmp_path / "m.arpa.xz")
    run("convert", tmp_path / "m.arpa.xz", tmp_path / "again")
    back = answer("score", tmp_path / "again", corpus / "test.txt")
    assert plain["perplexity"] == pytest.approx(back["perplexity"], rel=1e-5)
    assert plain["tokens"] == back["tokens"] > plain["oov"] == back["oov"] > 0
    assert plain["perplexity"] < plain["vocabulary"]  # better than the uniform distribution


def test_arpa_flows_through_a_pipe(tiny):
    arpa = run("convert", tiny / "t", "-").stdout
    assert arpa.startswith("\\data\\\nngram 1=5\nngram 2=4\n")
    assert answer("score", tiny / "t", "-", stdin=TINY)["perplexity"] == pytest.approx(
        answer("score", "-", _write(tiny / "text", TINY), stdin=arpa)["perplexity"], rel=1e-5
    )


def test_the_name_of_a_model_decides_its_format(tiny):
    arpa = run("fit", tiny / "c", "-s", "witten-bell", "-o", "-").stdout
    run("fit", tiny / "c", "-s", "witten-bell", "-o", tiny / "w.ARPA")
    assert (tiny / "w.ARPA").read_text(encoding="utf-8") == arpa
    run("convert", tiny / "w.ARPA", tiny / "w.arpa.safetensors")
    (tiny / "renamed.arpa").write_bytes((tiny / "w.arpa.safetensors").read_bytes())
    scores = [
        answer("score", tiny / name, "-", stdin=TINY) for name in ("w.ARPA", "w.arpa.safetensors", "renamed.arpa")
    ]
    assert scores[0] == scores[1] == scores[2]


@pytest.mark.unix
def test_links_pipes_and_devices_stay_what_they_are(tiny):
    (tiny / "link").symlink_to("target")
    run("fit", tiny / "c", "-s", "witten-bell", "-o", tiny / "link")
    assert (tiny / "link").is_symlink()
    assert (tiny / "target").stat().st_size > 0
    os.mkfifo(tiny / "pipe.arpa")
    reader = subprocess.Popen(["cat", str(tiny / "pipe.arpa")], stdout=subprocess.PIPE, text=True)
    run("fit", tiny / "c", "-s", "witten-bell", "-o", tiny / "pipe.arpa")
    assert reader.communicate()[0].startswith("\\data\\")
    assert (tiny / "pipe.arpa").is_fifo()


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_parameters_reach_the_smoother(corpus, tmp_path):
    table = answer("fit", corpus / "counts", "-s", "katz", "--set", "k=3", "-o", tmp_path / "t")
    assert table["table"]["parameters"]["k"] == 3
    assert "|k:3|" in table["signature"]
    options = ["-s", "jelinek-mercer", "--set", "weights=[0.9, 0.6, 0.3]"]
    table = answer("fit", corpus / "counts", *options, "-o", tmp_path / "t")
    assert "|weights:0.9,0.6,0.3|" in table["signature"]


def test_weights_learnt_from_held_out_text_are_better_than_the_default(corpus, tmp_path):
    def perplexity(*options: object) -> float:
        run("fit", corpus / "counts", "-s", "jelinek-mercer", *options, "-o", tmp_path / "t")
        return answer("score", tmp_path / "t", corpus / "test.txt")["perplexity"]

    assert perplexity("--held-out", corpus / "valid.txt") < perplexity()


def test_text_output_carries_its_signature(tiny):
    assert run("fit", tiny / "c", "-s", "witten-bell", "-o", tiny / "w").stdout.splitlines()[-1].startswith("order:2|")
    assert run("score", tiny / "w", "-", stdin="a\n").stdout.splitlines()[-1].startswith("order:2|smoother:witten-bell")
    assert run("count", "-", "-n", 1, "-o", tiny / "d", stdin="a\n").stdout.splitlines()[-1].startswith("order:1|")


@pytest.mark.slow
def test_two_processes_that_write_one_file_leave_one_whole_file(tmp_path):
    texts = [_write(tmp_path / f"text{i}", f"{word} {word}\n") for i, word in enumerate(("left", "right"))]
    both = [
        subprocess.Popen([*LIDSTONE, "count", str(text), "-n", "2", "-o", str(tmp_path / "c")], stdout=-3)
        for text in texts
    ]
    assert [process.wait() for process in both] == [0, 0]
    assert ld.load(tmp_path / "c").vocab.tokens[2] in ("left", "right")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "text0", "text1"]


def test_a_reader_that_goes_away_stops_the_writer_quietly(tiny):
    command = [*LIDSTONE, "sample", str(tiny / "t"), "-N", "1000000000"]  # without end, in effect
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


@pytest.mark.slow
def test_golden_perplexity_of_wikitext2(data_dir, tmp_path):
    run("count", data_dir / "wikitext-2" / "wiki.train.tokens.xz", "-n", 3, "-o", tmp_path / "c")
    run("fit", tmp_path / "c", "-o", tmp_path / "t")
    facts = answer("score", tmp_path / "t", data_dir / "wikitext-2" / "wiki.valid.tokens.xz")
    assert (facts["tokens"], round(facts["perplexity"], 3)) == (216_347, 247.656)


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_terminal_that_is_not_utf8_gets_escapes(tmp_path, encoding):
    run("count", "-", "-n", 2, "-o", tmp_path / "c", stdin="中 é\n")
    run("fit", tmp_path / "c", "-s", "add-lambda", "-o", tmp_path / "t")
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    explain = ["explain", str(tmp_path / "t"), "--counts", str(tmp_path / "c"), "--history", "中"]
    for arguments in (["sample", str(tmp_path / "t"), "-N", "20"], explain, [*explain, "--json"]):
        found = subprocess.run([*LIDSTONE, *arguments], env=environment, capture_output=True, check=True)
        assert b"\\u4e2d" in found.stdout
        assert ("é".encode("latin-1") if encoding == "latin-1" else b"\\xe9") in found.stdout


def test_unknown_suffixes_of_outputs_are_refused(tiny):
    for verb in (["convert", tiny / "t"], ["fit", tiny / "c", "-s", "add-lambda", "-o"]):
        for name in ("x.arpa.zip", "x.lm", "x.gz"):
            result = run(*verb, tiny / name, code=1)
            assert "is unknown" in result.stderr and "write ARPA" in result.stderr
            assert not (tiny / name).exists()
    assert "*.counts" in run("count", "-", "-n", 2, "-o", tiny / "x.arpa", stdin="a", code=1).stderr
    run("convert", tiny / "t", tiny / "jm-0.75")
    assert ld.load(tiny / "jm-0.75").order == 2


def test_every_verb_says_what_file_it_was_given(tiny):
    run("convert", tiny / "t", tiny / "m.arpa")
    (tiny / "m.arpa.gz").write_bytes(gzip.compress((tiny / "m.arpa").read_bytes()))
    (tiny / "t.gz").write_bytes(gzip.compress((tiny / "t").read_bytes()))
    (tiny / "k").write_bytes(b"mmap lm http://kheafield.com/code format version 5\n\0" + bytes(100))
    text = _write(tiny / "text", TINY)
    for arguments, said in (
        (["count", tiny / "m.arpa", "-n", 2, "-o", tiny / "x"], "m.arpa is an ARPA file, not text"),
        (["count", tiny / "t", "-n", 2, "-o", tiny / "x"], "t is a table, not text"),
        (["count", tiny / "c", "-n", 2, "-o", tiny / "x"], "c is counts, not text"),
        (["count", tiny / "t.gz", "-n", 2, "-o", tiny / "x"], "t.gz is a table, not text"),
        (["fit", tiny / "m.arpa", "-o", tiny / "x"], "m.arpa is an ARPA file"),
        (["fit", tiny / "m.arpa.gz", "-o", tiny / "x"], "m.arpa.gz is an ARPA file"),
        (["fit", text, "-o", tiny / "x"], "text is text"),
        (["fit", tiny / "k", "-o", tiny / "x"], "k cannot be used"),  # a KenLM binary that is cut off
        (["score", text, text], "text is text, not a model"),
        (["score", tiny / "k", text], "k cannot be used"),
        (["count", tiny / "k", "-n", 2, "-o", tiny / "x"], "k is a KenLM binary, not text"),
        (["score", tiny / "c", text], "c holds counts, not a table"),
        (["score", tiny / "t.gz", text], "t.gz is compressed"),
        (["score", tiny / "t", tiny / "m.arpa"], "m.arpa is an ARPA file, not text"),
    ):
        result = run(*arguments, code=1)
        assert said in result.stderr, arguments
        assert "hint: " in result.stderr
