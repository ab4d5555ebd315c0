"""Files with right checksums and wrong contents are refused by name, before any kernel uses them."""

from __future__ import annotations

import io
import json
import logging
import shutil

import numpy as np
import pytest

import lidstone as ld
from lidstone.errors import FileFormatError
from lidstone.ngram.formats.checked_tensors import read_arrays, write_arrays
from lidstone.ngram.smoothers.witten_bell import WittenBell

VOCAB = ld.Vocabulary(size=7, eos=1, unk=0, unpredictable=(6,), tokens=("<unk>", "</s>", *"abcd", "<pad>"))
TEXT = [[2, 3, 4], [2, 3], [3, 4, 2], [2, 4, 5], [2, 3, 4]]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    counts = ld.count(TEXT, VOCAB, 3)
    ld.KneserEssenNey(discount=0.75).fit(counts).save(folder / "table")
    from lidstone.ngram.formats.safetensors import save

    save(counts, folder / "counts")
    save(counts.drop([0, 1, 1]), folder / "dropped")
    return folder


def forged(files, tmp_path, kind, metadata=None, **changes):
    """A copy with some arrays changed by functions, and right checksums."""
    path = shutil.copy(files / kind, tmp_path / "forged")
    arrays, facts = read_arrays(path)
    keep = {name: text for name, text in facts.items() if not name.endswith(("checksum", "checksums"))}
    changed = {name: change(arrays[name].copy()) for name, change in changes.items()}
    write_arrays(path, {**arrays, **changed}, {**keep, **(metadata or {})})
    return path


def put(place, value):
    def change(array):
        array[place] = value
        return array

    return change


TABLE = [
    ("words", put(-1, 6), "event space"),
    ("words", put(-1, -2_000_000_000), "event space"),
    ("suffixes", put(-1, 9), "link"),
    ("suffixes", put(-1, 2**31 - 1), "link"),
    ("first", put(3, 2**31 - 1), "offsets"),
    ("levels", put(1, 3), "orders and its vocabulary"),
    ("base", put(2, np.nan), "'base' holds a value that is not a finite"),
    ("base", put(2, -0.5), "'base' holds a value that is not the probability"),
    ("base", put(6, 0.5), "'base' holds a value that is not the probability"),
    ("base", put(2, 0.9), "'base' sums to"),
    ("rows", put(-1, np.inf), "'rows'"),
    ("backoffs", put(-1, -1.0), "negative weight"),
    ("rows", lambda array: array[:-1], "'rows' has"),
    ("words", lambda array: array.astype(np.float64), "'words' is float64, not int32"),
    ("suffixes", lambda array: array.astype(np.uint8), "'suffixes' is uint8"),
    ("words", lambda array: array.astype(np.int64), "'words' is int64"),
    ("token_lengths", put(0, 100), "lengths of its tokens"),
    ("token_lengths", put(0, -1), "lengths of its tokens"),
]


@pytest.mark.parametrize(("name", "change", "reason"), TABLE, ids=[f"{row[0]}-{n}" for n, row in enumerate(TABLE)])
def test_a_table_with_impossible_values_is_refused(files, tmp_path, name, change, reason):
    with pytest.raises(FileFormatError, match=reason) as caught:
        ld.load(forged(files, tmp_path, "table", **{name: change}))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["table", "counts"])
def test_siblings_must_be_sorted_and_distinct(files, tmp_path, kind):
    trie = ld.load(files / kind).trie
    parent = next(node for node in range(trie.num_histories) if trie.first[node + 1] - trie.first[node] > 1)
    pair = [int(trie.first[parent]), int(trie.first[parent]) + 1]
    both = dict.fromkeys(("words", "suffixes"), lambda array: put(pair, array[pair[::-1]])(array))
    with pytest.raises(FileFormatError, match="siblings are not sorted"):
        ld.load(forged(files, tmp_path, kind, **both))
    once = dict.fromkeys(("words", "suffixes"), lambda array: put(pair, array[pair[0]])(array))
    with pytest.raises(FileFormatError, match="siblings are not sorted by distinct words"):
        ld.load(forged(files, tmp_path, kind, **once))


COUNTS = [
    ("counts", "counts", put(-1, -2_000_000_000), "'counts' holds a negative"),
    ("counts", "counts", put([-1, -2, -3, -4], 2**31 - 1), "'counts' adds up to more"),
    ("counts", "counts", lambda array: array.astype(np.int64) + 2**62, "'counts' adds up to more|too large"),
    ("counts", "counts", put(6, 3), "never predicted"),
    ("counts", "counts", lambda array: array * 0, "no word"),
    ("dropped", "adjusted", put(-1, -2_000_000_000), "'adjusted' holds a negative"),
    ("dropped", "adjusted", put(-1, 2**31 - 1), "'adjusted' adds up"),
    ("dropped", "totals", put(2, -5), "'counts' adds up"),
    ("dropped", "adjusted_totals", put(2, -5), "'adjusted' adds up"),
    ("dropped", "histograms.2", put(1, -5), "histograms.2"),
    ("dropped", "histograms.3", lambda array: array[:1], "histograms.3"),
    ("dropped", "adjusted_histograms.1", lambda array: array[:2], "adjusted_histograms.1"),
]


@pytest.mark.parametrize(
    ("kind", "name", "change", "reason"), COUNTS, ids=[f"{row[1]}-{n}" for n, row in enumerate(COUNTS)]
)
def test_counts_with_impossible_values_are_refused(files, tmp_path, kind, name, change, reason):
    with pytest.raises(FileFormatError, match=reason):
        ld.load(forged(files, tmp_path, kind, **{name: change}))


METADATA = [
    ("table", {"signature": "not JSON"}),
    ("table", {"signature": "[1, 2]"}),
    ("table", {"signature": '{"a":' * 200 + "1" + "}" * 200}),
    ("table", {"signature": "[" * 100_000}),
    ("table", {"signature": '{"smoother": ["katz"]}'}),
    ("table", {"vocabulary": "3"}),
    ("table", {"vocabulary": '{"size": 1e99, "eos": 1}'}),
    ("table", {"vocabulary": json.dumps({"size": 10**30, "eos": 1})}),
    ("table", {"vocabulary": '{"size": 7, "eos": 1, "unk": 0, "unpredictable": 4}'}),
    ("table", {"vocabulary": '{"size": 7, "eos": 1, "unk": 0, "colour": 4}'}),
    ("counts", {"thresholds": "7"}),
    ("counts", {"thresholds": "[0, 1]"}),
    ("counts", {"thresholds": '[0, "x", 1]'}),
    ("counts", {"thresholds": "[0, 0, 1]"}),
]


@pytest.mark.parametrize(("kind", "metadata"), METADATA, ids=range(len(METADATA)))
def test_metadata_of_any_kind_gives_one_line(files, tmp_path, kind, metadata):
    with pytest.raises(FileFormatError) as caught:
        ld.load(forged(files, tmp_path, kind, metadata))
    assert "\n" not in str(caught.value) and caught.value.hint


def test_those_who_trust_skip_the_checks(files, tmp_path):
    path = forged(files, tmp_path, "table", base=put(2, 0.9))
    assert ld.load(path, verify=False).base[2] == 0.9


@pytest.mark.parametrize("kind", ["table", "counts", "dropped"])
def test_what_was_written_is_accepted(files, kind):
    assert ld.load(files / kind).order == 3


@pytest.mark.parametrize("order", range(1, 6))
def test_aligned_counts_and_tables_are_accepted(tmp_path, order):
    from lidstone.ngram.formats.safetensors import save
    from lidstone.ngram.union import align

    for thing in align(WittenBell().fit(ld.count([[5, 4, 3]], VOCAB, order)), ld.count(TEXT, VOCAB, order)):
        save(thing, tmp_path / "aligned")
        assert ld.load(tmp_path / "aligned").order == order


ARPA = r"\data\|ngram 1=4|ngram 2=2|\1-grams:|{a} a {bow}|-.5 </s>|-1 <unk>|-99 <s>|\2-grams:|-.1 a a|-.2 <s> a|\end\|"


def read(a, bow="-.2"):
    return ld.read_arpa(io.BytesIO(ARPA.format(a=a, bow=bow).replace("|", "\n").encode()))


def test_the_error_is_that_of_the_dense_rows():
    table = read("-0.2", "0.3")
    histories = [(), (table.vocab.bos,), (0,), (1,), (2,)]
    worst = abs(table.prob(histories).sum(1) - 1).max()
    assert table.normalisation_error(None) == pytest.approx(worst, rel=1e-12)
    assert table.normalisation_error() == table.normalisation_error(None)  # fewer histories than samples
    assert WittenBell().fit(ld.count(TEXT, VOCAB, 3)).normalisation_error(None) < 1e-12


@pytest.mark.parametrize(("a", "bow"), [("0", "-.2"), ("-.5", "3"), ("-.5", "99")])
def test_a_model_that_is_not_normalised_is_reported_and_refused_by_the_loss(a, bow, caplog, tmp_path):
    with caplog.at_level(logging.WARNING, "lidstone"):
        table = read(a, bow)
    assert "is not normalised" in caplog.text
    caplog.clear()
    table.save(tmp_path / "t")
    with caplog.at_level(logging.WARNING, "lidstone"):
        ld.load(tmp_path / "t")
    assert caplog.text.count("is not normalised") == 1
    with pytest.raises(ld.LidstoneError, match="sum to one only within"):
        ld.SmoothedCrossEntropy(table, gamma=0.1)
    assert ld.SmoothedCrossEntropy(table, gamma=0.1, allow_unnormalised=True).gamma_plus == 0.1


def test_a_backoff_that_no_float_holds_is_refused():
    with pytest.raises(FileFormatError, match="line 5: 400 is not a backoff"):
        read("-.5", "400")


def test_a_smoothed_model_is_not_reported(caplog, files):
    with caplog.at_level(logging.WARNING, "lidstone"):
        ld.load(files / "table")
    assert not caplog.records


def test_values_that_cancel_in_a_sum_are_refused(files, tmp_path):
    """Two followers of one history: +10 and -10 leave its sum at one."""
    table = ld.load(files / "table")
    first = table.trie.first
    history = int(np.flatnonzero(np.diff(first) >= 2)[0])
    here = int(first[history])

    def change(rows):
        rows[here] += 10
        rows[here + 1] -= 10
        return rows

    with pytest.raises(FileFormatError, match=r"an n-gram has the probability -9\.\d+"):
        ld.load(forged(files, tmp_path, "table", rows=change))


@pytest.mark.parametrize("history", [1, 4_321, -1])
def test_damage_after_any_history_is_seen(tmp_path, history, caplog):
    """One of thousands of histories has a backoff that is too large by a half: its sum is too, and no other's."""
    rng = np.random.default_rng(3)
    vocab = ld.Vocabulary(size=3000, eos=0)
    table = WittenBell().fit(
        ld.count([rng.integers(1, 3000, 20).tolist() for _ in range(2000)], vocab, 3, append_eos=True)
    )
    table.save(tmp_path / "table")
    history %= table.trie.num_histories
    assert ld.load(tmp_path / "table").normalisation_error(None) < 1e-9
    assert not caplog.records
    path = forged(tmp_path, tmp_path, "table", backoffs=put(history, table.backoffs[history] + 0.5))
    ld.load(path)
    assert "sum to one only within 0.5" in caplog.text


@pytest.mark.parametrize("form", [{}, {"bits": 16}, {"pack": True}, {"bits": 16, "pack": True}, {"bits": 8}])
def test_every_form_of_a_table_is_measured_exactly(files, form):
    """Against dense rows: the least and largest p of stored n-grams, and the sums."""
    from lidstone.ngram.formats.validate import check_probabilities, probability_extremes

    table = ld.load(files / "table")
    table = table.compact(**form) if form else table
    check_probabilities(table, "a sound table")
    histories = [
        (),
        *((word,) for word in (*range(2, 6), VOCAB.bos)),
        *((a, b) for a in (*range(2, 6), VOCAB.bos) for b in range(2, 6)),
    ]
    rows = table.prob(histories)
    least, most, error = probability_extremes(table)
    if table.codes is not None:
        assert most == pytest.approx(rows.max(), abs=1e-6)
    else:  # rows are not negative: a bound that the sums give
        assert rows.max() <= most <= 1 + 1e-6
    assert 0 >= least > -1e-6
    assert error == pytest.approx(np.abs(rows.sum(1) - 1).max(), abs=1e-7)


def test_models_of_other_programs_are_warned_of(files, tmp_path, caplog):
    signature = json.dumps({"smoother": "arpa"})
    ld.load(forged(files, tmp_path, "table", {"signature": signature}, rows=put(-1, 3.0)))
    assert "an n-gram has the probability 3" in caplog.text
