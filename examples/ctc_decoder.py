"""A table as the language model of a CTC decoder: flashlight's, which torchaudio wraps as `ctc_decoder`.

pip install lidstone flashlight-text
python examples/ctc_decoder.py

With torchaudio derive from `torchaudio.models.decoder.CTCDecoderLM` instead, whose methods are the same, and call
`ctc_decoder(lm=TableLM(table), ...)`.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path

import numpy as np
from flashlight.lib.text.decoder import (
    LM,
    CriterionType,
    LexiconDecoder,
    LexiconDecoderOptions,
    LMState,
    SmearingMode,
    Trie,
)

import lidstone as ld

TEXT = """\
the knight rode all night
the night was long
the knight was brave
a night at the sea
they see the sea
we see a knight
"""
TOKENS = ["-", "|", *"abcdefghijklmnopqrstuvwxyz"]  # blank, silence, letters
SOUNDS = {"knight": "nait", "night": "nait", "sea": "si", "see": "si"}  # the acoustic model cannot tell them apart


class TableLM(LM):
    """What a CTC decoder asks of a language model, answered by the states of a table; word indices are its ids."""

    def __init__(self, table: ld.BackoffTable) -> None:
        LM.__init__(self)
        self.table = table
        self.states: dict[LMState, int] = {}

    def start(self, start_with_nothing: bool) -> LMState:
        state = LMState()
        self.states[state] = -1 if start_with_nothing else self.table.start()
        return state

    def score(self, state: LMState, word: int) -> tuple[LMState, float]:
        logprob, after = self.table.advance(self.states[state], word)
        child = state.child(word)
        self.states[child] = after
        return child, logprob

    def finish(self, state: LMState) -> tuple[LMState, float]:
        return self.score(state, self.table.vocab.eos)


def spelling(word: str) -> list[int]:
    return [TOKENS.index(letter) for letter in (*SOUNDS.get(word, word), "|")]


def make_decoder(lm: TableLM, weight: float) -> LexiconDecoder:
    """All words of the table by their sounds; `weight` is the model's, and the model must outlive the decoder."""
    trie, start = Trie(len(TOKENS), TOKENS.index("|")), lm.start(False)
    for word, token in lm.table.vocab.index.items():
        if word not in ("<unk>", "</s>"):
            trie.insert(spelling(word), token, lm.score(start, token)[1])
    trie.smear(SmearingMode.MAX)
    options = LexiconDecoderOptions(
        beam_size=50, beam_size_token=len(TOKENS), beam_threshold=50.0, lm_weight=weight, word_score=0.0,
        unk_score=-math.inf, sil_score=0.0, log_add=False, criterion_type=CriterionType.CTC,
    )  # fmt: skip
    return LexiconDecoder(options, trie, lm, TOKENS.index("|"), 0, 0, [], False)


def decode(decoder: LexiconDecoder, emissions: np.ndarray, table: ld.BackoffTable) -> str:
    """The words of the best hypothesis; emissions are log-probabilities, (frames, tokens)."""
    single = np.ascontiguousarray(emissions, np.float32)
    best = decoder.decode(single.ctypes.data, *single.shape)[0]
    return " ".join(table.vocab.tokens[word] for word in best.words if word >= 0)


def speak(sentence: str, noise: float = 0.5) -> np.ndarray:
    """What an acoustic model would give for a sentence: each sound once, then a blank, with noise."""
    tokens = [token for word in sentence.split() for letter in spelling(word) for token in (letter, 0)]
    logits = np.random.default_rng(1).normal(scale=noise, size=(len(tokens), len(TOKENS)))
    logits[np.arange(len(tokens)), tokens] += 8
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def main() -> None:
    argparse.ArgumentParser(description=__doc__).add_argument("--smoke", action="store_true")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "text").write_text(TEXT)
        table = ld.WittenBell().fit(ld.count_text(Path(folder) / "text", order=3))
    lm = TableLM(table)
    decoder = make_decoder(lm, weight=1.5)
    for sentence in ("the knight was long", "the night was brave", "they sea the see", "we sea a night"):
        print(f"{sentence:24s} -> {decode(decoder, speak(sentence), table)}")


if __name__ == "__main__":
    main()
