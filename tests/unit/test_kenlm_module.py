"""`lidstone.kenlm` by itself: models by hand, states, tables, and what it does with bad input."""

from __future__ import annotations

import copy
import dataclasses
import gc
import io
import pickle
import weakref
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tests.smoothing_cases import SMOOTHERS, fitted, make_text

import lidstone as ld
import lidstone.kenlm as kenlm
from lidstone.errors import InputError, LidstoneError, TextError
from lidstone.ngram.scorer.blocks import BLOCK
from lidstone.ngram.scorer.models import scorer_of_arpa, scorer_of_table
from lidstone.ngram.scorer.scorer import Scorer

ARPA = r"""\data\
ngram 1=5
ngram 2=3
ngram 3=1

\1-grams:
-1.5	<unk>
-99	<s>	-0.25
-1	</s>
-0.5	rain	-0.125
-0.75	on

\2-grams:
-0.25	<s> rain	-0.5
-0.375	rain on
-2	rain </s>

\3-grams:
-0.0625	<s> rain on

\end\
"""  # all binary fractions: sums in float32 are exact


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "m.arpa").write_text(ARPA)
    return tmp_path / "m.arpa"


@pytest.fixture
def model(path: Path) -> kenlm.Model:
    return kenlm.Model(str(path))


def test_scores_by_hand(model: kenlm.Model) -> None:
    """<s> rain: listed; <s> rain on: listed; on </s>: -1 and no backoff, for `rain on` and `on` have none."""
    assert list(model.full_scores("rain on")) == [(-0.25, 2, False), (-0.0625, 3, False), (-1.0, 1, False)]
    assert model.score("rain on") == -1.3125
    assert model.perplexity("rain on") == 10 ** (1.3125 / 3)


def test_backoffs_by_hand(model: kenlm.Model) -> None:
    """<s> on: -.25 - .75. rain snow: -.125 - 1.5 without <s>; with it also the -.5 of <s> rain."""
    assert model.score("on", eos=False) == -1.0
    assert list(model.full_scores("rain snow", bos=False, eos=False)) == [(-0.5, 1, False), (-1.625, 1, True)]
    assert list(model.full_scores("rain snow", eos=False))[1] == (-2.125, 1, True)


def test_words_and_order(model: kenlm.Model) -> None:
    assert model.order == 3
    assert [word in model for word in ("rain", "<s>", "snow", "<unk>", "rain on", "")] == [True, True, *[False] * 4]


def test_states(model: kenlm.Model) -> None:
    """`rain on` is no history of anything: the state after it equals the state after `on`, and that one is empty."""
    start, after_rain, end = kenlm.State(), kenlm.State(), kenlm.State()
    model.BeginSentenceWrite(start)
    assert model.BaseScore(start, "rain", after_rain) == -0.25
    full = model.BaseFullScore(after_rain, "on", end)
    assert (full.log_prob, full.ngram_length, full.oov) == (-0.0625, 3, False)
    assert repr(full) == "FullScoreReturn(-0.0625, 3, False)"
    assert end == kenlm.State() and hash(end) == hash(kenlm.State())
    assert start != after_rain and start < after_rain and after_rain >= start and not start > after_rain
    assert copy.copy(after_rain) == copy.deepcopy(after_rain) == after_rain
    assert start != "something else"


def test_a_state_may_be_written_over_itself(model: kenlm.Model) -> None:
    state = kenlm.State()
    model.BeginSentenceWrite(state)
    found = [model.BaseScore(state, word, state) for word in ("rain", "on", "</s>")]
    assert found == [-0.25, -0.0625, -1.0]
    model.BeginSentenceWrite(state)
    assert model.BaseFullScore(state, "rain", state).log_prob == -0.25


def test_a_copied_state_keeps_its_history(model: kenlm.Model) -> None:
    state, other = kenlm.State(), kenlm.State()
    model.BeginSentenceWrite(state)
    kept = copy.copy(state)
    model.BaseScore(state, "rain", state)
    assert model.BaseScore(kept, "rain", other) == -0.25


def test_states_of_another_model_are_refused(model: kenlm.Model, path: Path, tmp_path: Path) -> None:
    (tmp_path / "other.arpa").write_text(ARPA.replace("-0.75", "-0.5"))
    other, same = kenlm.Model(tmp_path / "other.arpa"), kenlm.Model(path)
    state, out = kenlm.State(), kenlm.State()
    model.BeginSentenceWrite(state)
    for refused in (other.BaseScore, other.BaseFullScore):
        with pytest.raises(InputError, match="belongs to another model"):
            refused(state, "rain", out)
    assert same.BaseScore(state, "rain", out) == -0.25  # the same file, loaded twice
    foreign = kenlm.State()
    other.BeginSentenceWrite(foreign)
    assert foreign != state
    same.BeginSentenceWrite(foreign)
    assert foreign == state
    model.NullContextWrite(state)
    assert other.BaseScore(state, "rain", out) == -0.5  # an empty history belongs to none


def test_a_model_is_pickled_by_its_path_and_a_state_is_not(model: kenlm.Model) -> None:
    again = pickle.loads(pickle.dumps(model))
    assert again.score("rain on") == model.score("rain on") and again.path == model.path
    assert copy.deepcopy(model).score("rain") == model.score("rain")
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(kenlm.State())
    assert pickle.loads(pickle.dumps(model._scorer)).score("rain on") == model.score("rain on")


def test_lines_at_once_equal_lines_one_by_one(model: kenlm.Model) -> None:
    draw = np.random.default_rng(0)
    words = ["rain", "on", "snow", "</s>", "a\x01b", "x" * 300]
    lines = [" ".join(draw.choice(words, size)) for size in draw.integers(0, 200, 300)]
    mixed = [line.encode() if i % 2 else line for i, line in enumerate(lines)]
    for flags in ((True, True), (False, True), (True, False)):
        expected = [model.score(line, *flags) for line in lines]
        for threads in (None, 1, 3, 1000):
            assert model.score_lines(mixed, *flags, threads=threads).tolist() == expected


def one_by_one(model: kenlm.Model, words: list[str], bos: bool) -> list[tuple[float, int, bool]]:
    state, found = kenlm.State(), []
    (model.BeginSentenceWrite if bos else model.NullContextWrite)(state)
    for word in words:
        scored = model.BaseFullScore(state, word, state)
        found.append((scored.log_prob, scored.ngram_length, scored.oov))
    return found


class Text(str):
    """A text of another type."""


class Bytes(bytes):
    """The same."""


def test_unusual_arguments_get_the_same_answers(model: kenlm.Model) -> None:
    """Keywords, flags that are no bools, bytes, types of one's own, a text of five thousand words."""
    usual = model.score("rain on", False, False)
    for text in ("rain on", b"rain on", Text("rain on"), Bytes(b"rain on")):
        assert model.score(text, 0, []) == model.score(text, eos=False, bos=False) == usual  # type: ignore[arg-type]
        assert [p for p, *_ in model.full_scores(sentence=text, eos=False)] == [-0.25, -0.0625]
    many = ["rain"] * 5000
    assert list(model.full_scores(" ".join(many), True, False)) == one_by_one(model, many, True)
    start, after, other = kenlm.State(), kenlm.State(), kenlm.State()
    model.BeginSentenceWrite(start)
    for word in ("rain", b"rain", Text("rain"), Bytes(b"rain")):
        assert model.BaseScore(start, word=word, out_state=after) == model.BaseScore(start, word, other) == -0.25
        assert after == other


class OwnState(kenlm.State):
    """A class below that of states."""


def test_states_and_models_may_be_subclassed(path: Path) -> None:
    class Loud(kenlm.Model):
        def score(self, sentence: str, bos: bool = True, eos: bool = True) -> float:
            return -super().score(sentence, bos, eos)

    model, state = Loud(path), OwnState()
    assert model.score("rain on") == model.score("rain on") == 1.3125
    model.BeginSentenceWrite(state)
    assert model.BaseScore(state, "rain", state) == -0.25 and model.BaseScore(state, "on", state) == -0.0625


def test_wrong_arguments_are_refused(model: kenlm.Model) -> None:
    state, anything = kenlm.State(), cast("Any", model)
    for wrong in (lambda: anything.BaseScore(state, "rain"), lambda: anything.BaseScore("rain", state, state)):
        with pytest.raises((InputError, TypeError)):
            wrong()
    with pytest.raises(TypeError, match="sentence"):
        anything.score()
    with pytest.raises(TextError, match="not valid Unicode"):
        model.BaseScore(state, "\ud800", state)


def test_a_model_is_freed_with_its_last_method(path: Path) -> None:
    gc.disable()
    try:
        model = kenlm.Model(path)
        score, scorer = model.score, weakref.ref(model._scorer)
        state = kenlm.State()
        model.BaseScore(state, "rain", state)
        del model
        assert score("rain on") == -1.3125 and scorer() is not None
        del score
        assert scorer() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize("eos", [True, False])
def test_blocks_of_lines_equal_word_by_word(model: kenlm.Model, bos: bool, eos: bool) -> None:
    """Lines of all lengths around the size of a block, against a plain loop over words and states."""
    draw = np.random.default_rng(4)
    sizes = [0, 1, 2, 0, 0, BLOCK - 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3, 0, *range(40)]
    lines = [" ".join(draw.choice(["rain", "on", "snow", "<s>"], size)) for size in sizes]
    found = model._scorer.score_lines(lines, bos, eos)
    for i, line in enumerate(lines):
        words = one_by_one(model, [*line.split(), *["</s>"] * eos], bos)
        assert words == list(model.full_scores(line, bos, eos))
        assert found.log10[i] == sum(p for p, _, _ in words)  # binary fractions: no rounding
        assert found.words[i] == sizes[i] and found.oov[i] == sum(oov for _, _, oov in words)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("name", SMOOTHERS)
def test_a_scorer_agrees_with_its_table(name: str, order: int) -> None:
    """Float32 of the same probabilities; zero is -99, and padding is no word."""
    tokens = ("<pad>", "</s>", "two", "three", "four", "five", "six", "seven")
    fit = fitted(name, order)
    vocab = dataclasses.replace(fit.vocab, tokens=tokens)
    scorer = scorer_of_table(dataclasses.replace(fit, vocab=vocab))
    for sentence in [*make_text(30, seed=1), [7, 7, 2], [7], []]:
        expected = np.maximum(fit.token_logprobs([*sentence, vocab.eos]) / np.log(10), -99)
        found = [p for p, _, _ in scorer.score_words(" ".join(tokens[word] for word in sentence))]
        np.testing.assert_allclose(np.maximum(found, -99), expected, rtol=1e-6)
    assert "<pad>" not in scorer and "seven" in scorer


def test_sums_words_and_unknown_words_of_lines(model: kenlm.Model) -> None:
    found = model._scorer.score_lines(["rain on", "", "snow rain snow", "a\nb"])
    assert found.words.tolist() == [2, 0, 3, 2] and found.oov.tolist() == [0, 0, 2, 2]
    assert found.log10[:2].tolist() == [-1.3125, -1.25]
    np.testing.assert_allclose(found.perplexity[:2], [10 ** (1.3125 / 3), 10**1.25])
    assert model.score_lines([]).tolist() == []


def test_long_lines_are_added_up_in_float64(model: kenlm.Model) -> None:
    """Ten million bytes; `log10` has the exact sum, where float32 would round."""
    line = "rain " * 2_000_000
    found = model._scorer.score_lines([line], bos=False, eos=False)
    assert found.words.tolist() == [2_000_000]
    assert found.log10.tolist() == [-0.5 - 0.625 * 1_999_999]
    assert model.score(line, bos=False, eos=False) == found.single[0]


@pytest.mark.parametrize("text", ["rain\0on", b"rain\0on", b"\xff\xfe", "\ufeffrain", "rain\u2003on", "x" * 10_000_000])
def test_odd_bytes_are_part_of_words(model: kenlm.Model, text: str | bytes) -> None:
    """One unknown word each: NUL, invalid UTF-8, a byte order mark, other spaces, ten million bytes."""
    assert list(model.full_scores(text, eos=False)) == [(-1.75, 1, True)]


def test_what_is_no_text_is_refused(model: kenlm.Model) -> None:
    with pytest.raises(TextError, match="not valid Unicode"):
        model.score("rain \ud800")
    with pytest.raises(InputError, match="must be str or bytes, not list"):
        model.score(["rain"])  # type: ignore[arg-type]
    with pytest.raises(TextError, match="line 2 of the list"):
        model.score_lines(["rain", "\ud800"])
    with pytest.raises(TextError, match="line 1 of the list"):
        model.score_lines([None])  # type: ignore[list-item]
    with pytest.raises(InputError, match="a list of sentences"):
        model.score_lines("rain on")
    with pytest.raises(InputError, match="threads"):
        model.score_lines(["rain"], threads=0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not an ARPA file"),
        ("text", "not an ARPA file"),
        (ARPA[: ARPA.index("-2\train")], "cut off"),
        (ARPA.replace("</s>", "x"), "</s>"),
    ],
)
def test_files_that_are_no_models(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "bad").write_text(content)
    with pytest.raises(kenlm.CannotRead, match=message) as caught:
        kenlm.Model(tmp_path / "bad")
    assert isinstance(caught.value, LidstoneError) and isinstance(caught.value, OSError) and caught.value.hint
    with pytest.raises(OSError, match="Cannot read model"):
        kenlm.Model(tmp_path / "absent")


def test_compressed_arpa_and_saved_tables(path: Path, tmp_path: Path, model: kenlm.Model) -> None:
    import gzip

    (tmp_path / "m.arpa.gz").write_bytes(gzip.compress(path.read_bytes()))
    model.table.save(tmp_path / "m.safetensors")
    for name in ("m.arpa.gz", "m.safetensors"):
        other = kenlm.Model(tmp_path / name)
        for line in ("rain on", "on rain snow", ""):
            assert other.score(line) == pytest.approx(model.score(line), abs=1e-6)


def test_a_table_scores_as_its_arpa_file(tmp_path: Path) -> None:
    """Every word, n-gram length and unknown word, for a model of each order."""
    text = "a b c a b\nc c a\nb a\na b c d\n" * 3 + "d e f\n"
    (tmp_path / "text").write_text(text)
    for order in (2, 3, 5):
        table = ld.WittenBell().fit(ld.count_text(tmp_path / "text", order))
        ld.write_arpa(table, tmp_path / "t.arpa")
        one, other = scorer_of_table(table), scorer_of_arpa(tmp_path / "t.arpa")
        for line in ("a b c", "z a b", "d e f a z z", "c c c c", "", "a </s> b", "<s> a"):
            for flags in ((True, True), (False, False)):
                found, expected = one.score_words(line, *flags), other.score_words(line, *flags)
                assert [rest for _, *rest in found] == [rest for _, *rest in expected]
                np.testing.assert_allclose([p for p, *_ in found], [p for p, *_ in expected], rtol=2e-6)


def test_models_of_order_one_have_no_history() -> None:
    text = rb"\data\|ngram 1=3|\1-grams:|-.5 a|-.25 </s>|-99 <s>|\end\ ".replace(b"|", b"\n")
    scorer = scorer_of_arpa(io.BytesIO(text))
    assert scorer.order == 1 and scorer.score("a a") == -1.25
    assert scorer.score_words("a b", eos=False) == [(-0.5, 1, False), (-100.0, 1, True)]


def test_unknown_words_without_unk_have_minus_hundred(path: Path) -> None:
    path.write_text(ARPA.replace("-1.5\t<unk>\n", "").replace("1=5", "1=4"))
    assert list(kenlm.Model(path).full_scores("snow", eos=False)) == [(-100.25, 1, True)]


def test_a_table_without_unk_or_without_words() -> None:
    vocab = ld.Vocabulary(size=3, eos=0, tokens=("</s>", "a", "b"))
    table = ld.AddLambda(lam=1.0).fit(ld.count([[1, 2], [1]], vocab, 2))
    scorer: Scorer = scorer_of_table(table)
    assert scorer.score_words("z", eos=False)[0][2] is True and "z" not in scorer
    assert scorer.score("a b") == pytest.approx(table.token_logprobs([1, 2, 0]).sum() / np.log(10))
    nameless = ld.AddLambda(lam=1.0).fit(ld.count([[1]], ld.Vocabulary(size=3, eos=0), 2))
    with pytest.raises(InputError, match="no words"):
        scorer_of_table(nameless)
