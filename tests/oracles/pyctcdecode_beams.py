"""Decode random CTC outputs with pyctcdecode and the module that is to stand for kenlm; print the beams as JSON."""

from __future__ import annotations

import importlib
import json
import logging
import sys
from pathlib import Path

import numpy as np

SENTENCE = "the a cat dog bird fish sees hears likes small old green runs sleeps and then quietly today here café"
WORDS = SENTENCE.split()
LABELS = [" ", *"abcdefghijklmnopqrstuvwxyzé", ""]


def outputs(draw: np.random.Generator) -> np.ndarray:
    """Log-probabilities of letters that favour a sentence of five words, with noise."""
    letters: list[int] = []
    for letter in " ".join(draw.choice(WORDS, 5)):
        letters += [LABELS.index(letter)] * int(draw.integers(1, 3)) + [len(LABELS) - 1]
    logits = draw.normal(size=(len(letters), len(LABELS))) * 1.6
    logits[np.arange(len(letters)), letters] += 3.0
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def main(module: str, folder: str) -> None:
    sys.modules["kenlm"] = importlib.import_module(module)
    from pyctcdecode import build_ctcdecoder

    logging.disable(logging.WARNING)
    beams = []
    for name in ("model.arpa", "probing.bin", "quant-trie.bin"):
        decoder = build_ctcdecoder(LABELS, str(Path(folder) / name), unigrams=WORDS, alpha=0.7, beta=1.1)
        draw = np.random.default_rng(0)
        for _ in range(6):
            logits = outputs(draw)
            beams += [(beam[0], float(beam[-2]), float(beam[-1])) for beam in decoder.decode_beams(logits)[:5]]
            before = decoder.decode_beams(logits[:20])[0]
            after = decoder.decode_beams(logits[20:], lm_start_state=before[1])[0]
            beams.append((after[0], float(after[-2]), float(after[-1])))
    print(json.dumps(beams))


if __name__ == "__main__":
    main(*sys.argv[1:])
