"""Raw text: CCNet's rules one by one and against datatrove, pieces, and the verbs that take them."""

from __future__ import annotations

import io
import json
import pickle
import random
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
from typer.testing import CliRunner

import lidstone as ld
from lidstone import kenlm as our_kenlm
from lidstone.cli.main import app
from lidstone.errors import InputError
from lidstone.ngram.filter.documents import Documents
from lidstone.ngram.filter.filter import filter_documents
from lidstone.ngram.filter.selection import score_documents, scorer_of
from lidstone.ngram.scorer.models import load_scorer
from lidstone.text.ccnet import PUNCTUATION
from lidstone.text.raw import RawText, foreign_pieces, raw_text

GOLDEN = [  # input, after ccnet, after ccnet-digits
    ("Déjà VU – 3,75 €", "deja vu - 0 €", "deja vu - 0,00 €"),
    ("ΟΔΟΣ ΣΟΦΟΣ İstanbul ẞ", "οδος σοφος istanbul ß", None),  # final sigma; the dot of İ is a mark
    ("e\u0301\u0327 a\u0308", "e a", None),
    ("١٢٣٫٤٥ ०१ ９９", "0 0 0", "000٫00 00 00"),
    ("1.2.3 1,,2 12 345", "0.0 0,,0 0 0", "0.0.0 0,,0 00 000"),
    ("„a“ «b» 「c」 《d》 ’s", '"a" "b" "c" "d" \'s', None),
    ("你好，世界。１０％…", "你好,世界.0%...", "你好,世界.00%..."),
    ("a—b．c", "a - b. c", None),
    ("\u2003 a\u00a0b \u3000", "a\u00a0b", None),  # blanks at the ends go, those inside stay
    ("a\tb\x00c\x7fd\x85e\x9ff", "abcdef", None),  # control characters, tabs among them
    ("\x01 a", " a", None),  # they go after the blanks at the ends
    ("— x —", " -  x  - ", None),
    ("한국 ㅎ", unicodedata.normalize("NFD", "한국") + " ㅎ", None),
    ("👩‍👩‍👧 🇩🇪 ❤️", "👩‍👩‍👧 🇩🇪 ❤", None),  # the variation selector is a mark
    ("𝟘𝟙 𑜰𑜱", "0 0", "00 00"),
    ("שָׁלוֹם مَرْحَبًا", "שלום مرحبا", None),
    ("", "", None),
    ("  ", "", None),
    ("a\r\nb\nc", "abc", None),  # a text of several lines becomes one
]


@pytest.mark.parametrize(("text", "words", "digits"), GOLDEN)
def test_each_rule_of_ccnet(text, words, digits):
    assert RawText("ccnet").words([text]) == [words.encode()]
    assert RawText("ccnet-digits").words([text.encode()]) == [(words if digits is None else digits).encode()]


def test_texts_do_not_see_each_other():
    """One by one, and all at once with line feeds between."""
    texts = [text for text, _, _ in GOLDEN] + ["Σ", "1", "2", "\u0301a", "ΑΣ", ",3", "."]
    for rules in ("ccnet", "ccnet-digits"):
        raw = RawText(rules)
        random.Random(1).shuffle(texts)
        assert raw.words(texts) == [raw.words([text])[0] for text in texts]
        assert raw.words_in_parallel(texts * 3000, 2)[: len(texts)] == raw.words(texts)


def any_character(draw: random.Random) -> str:
    """A character of the kinds that rules act on, or any other."""
    kinds = [
        [chr(i) for i in (*range(32), *range(127, 161))],
        [chr(i) for i in (0x1680, 0x2003, 0x200B, 0x200D, 0x2028, 0x2029, 0x202E, 0x202F, 0x3000, 0xFEFF)],
        [*PUNCTUATION, "１"],
        [
            f"{chr(zero + draw.randrange(10))}{after}"
            for zero in (48, 0x660, 0x966, 0xFF10, 0x1D7CE, 0x11F50)
            for after in ".,٫ x"
        ],
        [
            base + mark
            for base in "eonΣσİßﬁ한国נ"
            for mark in "\u0301\u0308\u05b0\u302e\U0001d165\U0001e8d0\U000e0101\u0345"
        ],
        ["😀", "👩‍👩‍👧", "🇩🇪", "❤️", "Straße", " ", " "],
    ]
    kind = draw.randrange(len(kinds) + 1)
    if kind < len(kinds):
        return draw.choice(kinds[kind])
    while True:
        place = draw.randrange(0x110000)
        if not 0xD800 <= place < 0xE000:
            return chr(place)


LINES = [
    "The quick brown fox jumps over the lazy dog in 1999, or 3.5 times.",
    "Der schnelle braune Fuchs springt „über“ den faulen Hund — täglich.",
    "Le renard brun saute par-dessus le chien paresseux, à l'été.",
    "Быстрая лисица прыгает через ленивую собаку.",
    "素早い茶色の狐が怠けた犬を飛び越える。",
    "الثعلب البني السريع يقفز فوق الكلب الكسول",
    "השועל החום המהיר קופץ מעל הכלב העצלן",
]


def web_like(count: int, seed: int) -> list[str]:
    """Lines of several scripts with anything in them."""
    draw, found = random.Random(seed), []
    for _ in range(count):
        pieces = draw.choice(LINES).split(" ")
        draw.shuffle(pieces)
        for _ in range(draw.randrange(6)):
            pieces.insert(draw.randrange(len(pieces) + 1), any_character(draw))
        found.append(draw.choice(["", " "]).join(pieces) if draw.random() < 0.3 else " ".join(pieces))
    return found


@pytest.fixture(scope="session")
def pieces(tmp_path_factory):
    """A small model of SentencePiece, and a 3-gram model of its pieces: (spm file, ARPA file)."""
    spm = pytest.importorskip("sentencepiece")
    folder = tmp_path_factory.mktemp("pieces")
    text = RawText("ccnet").words(web_like(400, seed=0))
    (folder / "text").write_bytes(b"\n".join(text) + b"\n")
    spm.SentencePieceTrainer.train(
        input=str(folder / "text"), model_prefix=str(folder / "web"), vocab_size=250, character_coverage=0.98,
        minloglevel=2, num_threads=1,
    )  # fmt: skip
    model = str(folder / "web.model")
    table = ld.ModifiedKneserNey(fallback=(0.5, 1.0, 1.5)).fit(
        ld.count_text(RawText("ccnet", model).source(folder / "text"), 3)
    )
    ld.write_arpa(table, folder / "web.arpa")
    return model, str(folder / "web.arpa")


def test_pieces_are_those_of_sentencepiece(pieces):
    spm = pytest.importorskip("sentencepiece")
    processor = spm.SentencePieceProcessor(model_file=pieces[0])
    texts = web_like(200, seed=4)
    expected = [" ".join(processor.encode_as_pieces(text)) for text in texts]
    assert [line.decode() for line in RawText(None, pieces[0]).words(texts)] == [
        line.replace("\n", " ") for line in expected
    ]


def test_perplexities_are_those_of_datatrove(pieces):
    """The whole of get_perplexity, with the compiled kenlm module: every rounded decimal is the same."""
    spm = pytest.importorskip("sentencepiece")
    kenlm = pytest.importorskip("kenlm")
    judge_module = pytest.importorskip("datatrove.utils.perplexity")
    judge = judge_module.KenlmModel("none", "none")
    judge._model = kenlm.Model(pieces[1])
    judge._tokenizer = judge_module.SentencePiece("none", "none")
    judge._tokenizer._model = spm.SentencePieceProcessor(model_file=pieces[0])
    texts = web_like(3000, seed=9) + [text for text, _, _ in GOLDEN] + ["\n".join(web_like(30, seed=2))]
    documents = Documents.of_texts(list(range(len(texts))), texts, []).prepared(RawText("ccnet", pieces[0]))
    found = score_documents(load_scorer(pieces[1]), documents).perplexity.tolist()
    assert [round(value, 1) for value in found] == [judge.get_perplexity(text) for text in texts]


TOY = (
    rb"\data\|ngram 1=6|ngram 2=2|\1-grams:|-1 <unk>|-99 <s> -.5|-.7 </s>|-.6 ca -.2|-.8 0 -.1|-.9 - |"
    rb"\2-grams:|-.3 <s> ca|-.2 ca 0|\end\ ".rstrip()
    + b"|"
)
DECIMALS = [  # log10 by hand
    ("ÇA 3,75 –", 3.5),  # ca 0 -: -.3 -.2 (-.1 -.9) -.7 over 4
    ("Ça 12 12 — ça", 4.5),  # ca 0 0 - ca: -.3 -.2 (-.1 -.8) (-.1 -.9) -.6 (-.2 -.7) over 6
    ("\x02ça\u0301", 4.0),  # ca: -.3 (-.2 -.7) over 2
    ("“”", 12.6),  # two quotes, unknown: (-.5 -1) -.7 over 2
    ("", 15.8),  # -.5 -.7 over 1
]


def test_decimals_of_a_toy_model():
    from lidstone.ngram.scorer.models import scorer_of_arpa

    scorer = scorer_of_arpa(io.BytesIO(TOY.replace(b"|", b"\n")))
    for text, decimal in DECIMALS:
        found = score_documents(scorer, Documents.of_texts([0], [text], []).prepared(RawText("ccnet")))
        assert round(float(found.perplexity[0]), 1) == decimal, text


def test_two_sets_of_rules_are_refused_and_files_are_looked_at_first(tmp_path):
    pytest.importorskip("sentencepiece")
    pytest.importorskip("tokenizers")
    (tmp_path / "no.model").write_bytes(b"no model")
    (tmp_path / "no.json").write_text("{}")
    for settings, message in (
        ({"normalize": "ccnett"}, "there is no normalization 'ccnett'"),
        ({"sentencepiece": "a", "tokenizer": "b"}, "not by both"),
        ({"sentencepiece": str(tmp_path / "nowhere.model")}, "no such file"),
        ({"sentencepiece": str(tmp_path / "no.model")}, "is not a model of SentencePiece"),
        ({"tokenizer": str(tmp_path / "no.json")}, "is not a tokenizer"),
        ({"tokenizer": str(tmp_path / "nowhere.json")}, "no such file"),
    ):
        with pytest.raises(InputError, match=message):
            raw_text(**settings)
    assert raw_text() is None


def test_a_missing_package_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(InputError, match=r"sentencepiece is not installed. hint: pip install 'lidstone\[raw\]'"):
        raw_text(sentencepiece=str(tmp_path))


def tokenizer_file(folder):
    """A small byte-level tokenizer that cuts and pads, as many on the hub do."""
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator(LINES, vocab_size=400, show_progress=False, special_tokens=["</s>", "<unk>", "<s>"])
    made.enable_truncation(3)
    made.enable_padding(length=5)
    made.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def test_a_tokenizer_neither_cuts_nor_pads_nor_reads_ends_of_sentences(tmp_path):
    file = tokenizer_file(tmp_path)
    for name in (str(file), str(tmp_path)):
        raw = RawText(tokenizer=name)
        words = raw.words(["The quick brown fox jumps", "a </s> b", "", "two\nlines"])
        assert b"</s>" not in words[1].split() and words[2] == b"" and not any(b"\n" in line for line in words)
        assert words[0].replace(b" ", b"").decode() == "TheĠquickĠbrownĠfoxĠjumps"
        assert pickle.loads(pickle.dumps(raw)) == raw


def test_a_tokenizer_with_a_huge_id_and_one_without_unknown_token_are_refused(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0, "a": 1}, unk_token="<unk>"))
    (tmp_path / "huge.json").write_text(made.to_str().replace('"a":1', '"a":4294967295'))
    with pytest.raises(InputError, match=r"huge\.json has the id 4294967295.*hint: lidstone reads"):
        RawText(tokenizer=str(tmp_path / "huge.json")).words(["a", "b"])
    panic = tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "aa": 1}, [("a", "a")])).to_str()
    prefix = '"continuing_subword_prefix":'
    (tmp_path / "panic.json").write_text(panic.replace(f"{prefix}null", f'{prefix}"a long prefix"'))
    with pytest.raises(InputError, match=r"panic\.json is not a tokenizer: range"):
        RawText(tokenizer=str(tmp_path / "panic.json")).words(["a"])
    tokenizers.Tokenizer(tokenizers.models.Unigram([("a", -1.0)])).save(str(tmp_path / "no.json"))
    with pytest.raises(InputError, match=r"no\.json cannot split the text: .*hint: give it an unknown token"):
        RawText(tokenizer=str(tmp_path / "no.json")).words(["ab"])


def test_tokens_with_blanks_are_one_word(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a b": 0, "<unk>": 1, "c": 2}, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split("|", "removed")
    made.save(str(tmp_path / "t.json"))
    assert RawText(tokenizer=str(tmp_path / "t.json")).words(["a b|c|d"]) == ["a▁b c <unk>".encode()]


def invoke(*arguments: object, stdin: str = ""):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


@pytest.fixture
def corpus(tmp_path, pieces):
    """Raw lines in a file, and what they are as pieces."""
    lines = [line.replace("\n", " ") for line in web_like(300, seed=3)]
    (tmp_path / "raw.txt").write_text(
        "".join(line.replace("\0", "") + "\n" for line in lines), encoding="utf-8", newline=""
    )
    lines = (tmp_path / "raw.txt").read_bytes().decode().split("\n")[:-1]
    (tmp_path / "words.txt").write_bytes(b"".join(line + b"\n" for line in RawText("ccnet", pieces[0]).words(lines)))
    return tmp_path


def test_each_verb_gives_for_raw_text_what_it_gives_for_its_words(corpus, pieces):
    model, arpa = pieces
    rules = ("--normalize", "ccnet", "--sentencepiece", model)
    for verb in (("score", arpa, "--sentences"), ("filter", arpa, "--bare", "--max-perplexity", 60)):
        raw = invoke(verb[0], verb[1], corpus / "raw.txt", *verb[2:], *rules)
        words = invoke(verb[0], verb[1], corpus / "words.txt", *verb[2:])
        assert raw.exit_code == words.exit_code == 0, raw.output
        if verb[0] == "score":
            assert raw.stdout == words.stdout
        else:
            assert 0 < raw.stdout.count("\n") == words.stdout.count("\n") < 300
    for extra in ((), ("--memory", "2G")):
        results = [
            invoke("count", corpus / name, "-n", 3, "-o", corpus / f"{name}.counts", *extra, *more)
            for name, more in (("raw.txt", rules), ("words.txt", ()))
        ]
        assert results[0].exit_code == 0 and results[0].stdout == results[1].stdout, results[0].output
    texts = (corpus / "raw.txt").read_bytes().decode().split("\n")[:-1]
    ours = our_kenlm.Model(arpa)
    scores = ours.score_lines(texts, normalize="ccnet", sentencepiece=model)
    found = ours.perplexities(texts, normalize="ccnet", sentencepiece=model)
    lines = (corpus / "words.txt").read_bytes().split(b"\n")[:-1]
    assert found.tolist() == pytest.approx([ours.perplexity(line) for line in lines], rel=1e-12)
    assert scores.tolist() == ours.score_lines((corpus / "words.txt").read_bytes().split(b"\n")[:-1]).tolist()
    (corpus / "bad.txt").write_bytes(b"fine\n\xff\n")
    bad = invoke("score", arpa, corpus / "bad.txt", *rules)
    assert bad.exit_code == 1 and "bad.txt is not UTF-8: 0xff in line 2" in bad.stderr


def test_a_line_is_answered_before_the_next(corpus, pieces):
    command = [
        sys.executable,
        "-m",
        "lidstone",
        "score",
        pieces[1],
        "-",
        "--sentences",
        "--line-buffered",
        "--normalize",
        "ccnet",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as running:
        for text in ("der Hund", "Ä"):
            print(text, file=running.stdin)
            assert running.stdout.readline().count("\t") == 3
        running.stdin.close()


def test_pieces_of_another_model_are_reported_with_their_rate(corpus, pieces):
    other = ld.WittenBell().fit(ld.count_text(io.BytesIO(b"entirely other words\n"), 2))
    other.save(corpus / "other.table")
    rules = ("--normalize", "ccnet", "--sentencepiece", pieces[0])
    for verb in ("score", "filter"):
        result = invoke(verb, corpus / "other.table", corpus / "raw.txt", *rules)
        assert result.exit_code == 0
        assert result.stderr.count("tokens are unknown to the model: it was not made of text with these pieces") == 1
    ld.write_arpa(other, corpus / "other.arpa")
    with pytest.warns(UserWarning, match=r"\d\d\.\d % of [\d,]+ tokens are unknown"):
        our_kenlm.Model(corpus / "other.arpa").score_lines(["a b c"] * 400, sentencepiece=pieces[0])
    assert foreign_pieces(40, 50) is None  # too few to say


def test_a_document_of_several_lines_is_one_as_for_datatrove(tmp_path, pieces):
    texts = ["Der Hund\nspringt 1\n2 mal\n", "", "a\tb", "\n\n"]
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(texts))
    )
    raw = RawText("ccnet", pieces[0])
    filter_documents(load_scorer(pieces[1]), tmp_path / "a.jsonl", tmp_path / "out.jsonl", raw=raw)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["text"] for row in rows] == texts
    joined = RawText(None, pieces[0]).words(["der hundspringt 00 mal", "", "ab", ""])
    found = load_scorer(pieces[1]).score_lines(joined)
    expected = 10.0 ** (-found.single.astype(np.float64) / (found.words + 1))
    assert [row["perplexity"] for row in rows] == pytest.approx(expected.tolist(), abs=1e-4)


def test_a_good_and_a_bad_model_score_the_same_words_in_one_pass(corpus, pieces):
    bad = ld.WittenBell().fit(ld.count_text(corpus / "words.txt", 2))
    raw, scorer = RawText("ccnet", pieces[0]), load_scorer(pieces[1])
    filter_documents(scorer, corpus / "raw.txt", corpus / "out.txt", raw=raw, against=bad)
    rows = (corpus / "out.txt").read_bytes().decode().split("\n")[:-1]
    found = [line.split("\t", 2)[:2] for line in rows]
    alone = [
        score_documents(model, Documents.of_texts([], texts, []).prepared(raw))
        for model in (scorer, scorer_of(bad))
        for texts in [(corpus / "raw.txt").read_bytes().decode().split("\n")[:-1]]
    ]
    expected = np.log(alone[0].perplexity) - np.log(alone[1].perplexity)
    assert [float(row[1]) for row in found] == pytest.approx(expected.tolist(), abs=6e-5)


def table_of(rows):
    pyarrow = pytest.importorskip("pyarrow")
    names = {name: [row[name] for row in rows] for name in rows[0]}
    return pyarrow.table(names)


@pytest.mark.parametrize(
    "settings", [{}, {"keep": 0.4}, {"percentiles": (30, 60)}, {"bare": True, "max_perplexity": 80}]
)
def test_parquet_is_what_json_lines_are(tmp_path, pieces, settings):
    """The same documents in both formats: the same scores, the same choice, all columns kept."""
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [
        {"id": i, "text": line.replace("\ud800", ""), "tags": [str(i)]} for i, line in enumerate(web_like(2500, seed=7))
    ]
    parquet.write_table(table_of(rows), tmp_path / "a.parquet", row_group_size=700)
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    scorer, raw = load_scorer(pieces[1]), RawText("ccnet", pieces[0])
    done = [
        filter_documents(scorer, tmp_path / f"a.{kind}", tmp_path / f"out.{kind}", raw=raw, **settings)
        for kind in ("parquet", "jsonl")
    ]
    assert done[0] == done[1]
    found = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    expected = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    for row in found:
        if "perplexity" in row:
            row["perplexity"] = round(row["perplexity"], 4)
    assert found == expected
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.jsonl", "a.parquet", "out.jsonl", "out.parquet"]


def test_parquet_columns_of_scores_are_replaced_and_an_empty_choice_has_all_columns(tmp_path, pieces):
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(
        table_of([{"perplexity": "old", "text": "der"}, {"perplexity": "b", "text": None}]), tmp_path / "a.parquet"
    )
    scorer, bad = load_scorer(pieces[1]), []
    filter_documents(scorer, tmp_path / "a.parquet", tmp_path / "out.parquet", report=bad.append)
    found = parquet.read_table(tmp_path / "out.parquet")
    assert found.column_names == ["text", "perplexity"] and found.num_rows == 1
    assert [one.reason for one in bad] == ["the field 'text' is null, not a string"]
    assert bad[0].where.endswith("a.parquet:2")
    filter_documents(scorer, tmp_path / "a.parquet", tmp_path / "none.parquet", max_perplexity=1.0)
    assert parquet.read_table(tmp_path / "none.parquet").schema == found.schema
    parquet.write_table(found.slice(0, 0), tmp_path / "empty.parquet")
    assert filter_documents(scorer, tmp_path / "empty.parquet", tmp_path / "still.parquet").documents == 0
    assert parquet.read_table(tmp_path / "still.parquet").num_rows == 0


def test_parquet_that_cannot_be_filtered_is_refused_in_one_line(tmp_path, pieces):
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(table_of([{"text": "a", "n": 1}]), tmp_path / "a.parquet")
    parquet.write_table(table_of([{"text": "a"}]), tmp_path / "b.parquet")
    (tmp_path / "c.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "a.txt").write_text("der\n")
    for names, output, options, message in (
        (["a.parquet"], "out.txt", (), "cannot be written from parquet"),
        (["a.txt"], "out.parquet", (), "cannot be written from text"),
        (["a.parquet"], "out.parquet", ("--field", "t"), "has no column 't'. hint: name one with --field: text, n"),
        (["a.parquet"], "out.parquet", ("--field", "n"), "is int64, not text"),
        (["a.parquet", "b.parquet"], "out.parquet", (), "b.parquet has other columns than"),
        (["c.parquet"], "out.parquet", (), "is damaged, or not a Parquet file"),
        (["d.parquet"], "out.parquet", (), "no such file"),
        (["a.parquet", "a.txt"], "out.parquet", (), "some inputs are parquet and some text"),
    ):
        files = [tmp_path / name for name in names]
        result = invoke("filter", pieces[1], *files, "-o", tmp_path / output, *options, "--restart")
        assert result.exit_code == 1 and "Traceback" not in result.output
        assert message in " ".join(result.stderr.split()).replace(" hint:", ". hint:"), result.stderr


def test_an_interrupted_run_over_parquet_goes_on(tmp_path, pieces, monkeypatch):
    from lidstone.ngram.filter import checkpoint
    from lidstone.ngram.filter import run as filter_run

    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"text": line} for line in web_like(5000, seed=1)]
    parquet.write_table(table_of(rows), tmp_path / "a.parquet")
    scorer, raw = load_scorer(pieces[1]), RawText("ccnet", pieces[0])
    filter_documents(scorer, tmp_path / "a.parquet", tmp_path / "whole.parquet", raw=raw)
    monkeypatch.setattr(checkpoint, "SECONDS", 0.0)
    score, calls = filter_run.score_documents, []

    def failing(*arguments):
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return score(*arguments)

    monkeypatch.setattr(filter_run, "score_documents", failing)
    with pytest.raises(KeyboardInterrupt):
        filter_documents(scorer, tmp_path / "a.parquet", tmp_path / "out.parquet", raw=raw, jobs=1)
    assert not (tmp_path / "out.parquet").exists()
    with pytest.raises(ld.LidstoneError, match="was begun with other rules for raw text"):
        filter_documents(scorer, tmp_path / "a.parquet", tmp_path / "out.parquet", raw=RawText("ccnet"))
    done = filter_documents(scorer, tmp_path / "a.parquet", tmp_path / "out.parquet", raw=raw)
    assert done.resumed and done.documents == 5000
    assert parquet.read_table(tmp_path / "out.parquet").equals(parquet.read_table(tmp_path / "whole.parquet"))
