"""What a prompt or a notebook shows of vocabularies, counts and tables fits on a line and says what counts."""

from __future__ import annotations

import lidstone as ld

VOCAB = ld.Vocabulary.from_words([f"word-{number}" for number in range(50_000)])
COUNTS = ld.count([[2, 3], [2]], VOCAB, order=3)
TABLE = ld.WittenBell().fit(COUNTS)


def test_each_fits_on_a_line():
    for thing in (VOCAB, COUNTS, TABLE, COUNTS.drop([0, 1, 1]), ld.Vocabulary(9, 0, tuple(range(1, 9)))):
        assert len(repr(thing)) <= 150
        assert "\n" not in repr(thing)


def test_they_say_what_one_wants_to_know():
    assert (
        repr(VOCAB)
        == "Vocabulary(size=50002, eos=1, unk=0, tokens=('<unk>', '</s>', 'word-0', 'word-1', ... 50,002 in all))"
    )
    assert repr(COUNTS) == "Counts(order=3, tokens=5, sentences=2, ngrams=[3, 4, 3], vocabulary=50002)"
    assert repr(COUNTS.drop([0, 1, 1])).endswith("thresholds=[0, 1, 1])")
    assert repr(TABLE) == "BackoffTable(smoother=witten-bell, order=3, ngrams=[50002, 4, 3], vocabulary=50002)"
    assert len(repr(ld.Vocabulary.from_words(["x" * 1000]))) < 200


def test_notebooks_get_a_small_table():
    for thing in (VOCAB, COUNTS, TABLE):
        shown = thing._repr_html_()
        assert shown.startswith("<table>") and "50,002" in shown and len(shown) < 1000
    assert "<unk>" not in VOCAB._repr_html_()  # escaped
