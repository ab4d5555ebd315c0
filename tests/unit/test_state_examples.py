"""The examples of states in decoders: a CTC decoder and Hugging Face generation."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def load(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def run(script: str) -> str:
    command = [sys.executable, str(EXAMPLES / script), "--smoke"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_a_ctc_decoder_tells_words_of_one_sound_apart() -> None:
    pytest.importorskip("flashlight.lib.text.decoder", reason="flashlight-text is not installed")
    decoded = [line.split("->")[1].strip() for line in run("ctc_decoder.py").splitlines()]
    assert decoded == ["the night was long", "the knight was brave", "they see the sea", "we see a knight"]


def test_the_ctc_language_model_scores_whole_sentences() -> None:
    pytest.importorskip("flashlight.lib.text.decoder", reason="flashlight-text is not installed")
    from tests.smoothing_cases import VOCAB, fitted

    table = fitted("witten-bell", 3)
    lm = load("ctc_decoder").TableLM(table)
    state, total = lm.start(False), 0.0
    for word in (2, 3, 7, 2):
        state, logprob = lm.score(state, word)
        total += logprob
    total += lm.finish(state)[1]
    assert total == pytest.approx(table.token_logprobs([2, 3, 7, 2, VOCAB.eos]).sum())


def test_fusion_adds_the_log_probabilities_after_each_row() -> None:
    """Rows of a batch: at the start, one token in, and after several; judged by `prob` with whole histories."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from tests.smoothing_cases import VOCAB, fitted

    table, start = fitted("modified-kneser-ney", 3), 0  # 0 is never predicted, and begins the network's inputs
    fusion = load("shallow_fusion").NgramFusion(table, weight=0.7, start=start)
    for rows in ([[0], [0]], [[0, 2], [0, 7]], [[0, 2, 3, 2], [0, 5, 6, 6]], [[0, 0, 0, 2], [0, 2, 2, 3]]):
        histories = [[VOCAB.bos if token == 0 else token for token in row] for row in rows]
        scores = torch.randn(2, VOCAB.size, generator=torch.Generator().manual_seed(1))
        found = fusion(torch.tensor(rows), scores)
        with np.errstate(divide="ignore"):
            expected = scores.log_softmax(-1).numpy() + 0.7 * np.log(table.prob(histories))
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


@pytest.mark.slow
def test_shallow_fusion_makes_generated_text_likelier() -> None:
    pytest.importorskip("transformers")
    alone, fused = (float(number) for number in re.findall(r"perplexity (\S+)", run("shallow_fusion.py")))
    assert fused < alone / 10
