"""A table as a module of torch: what the table says, on any device, in exported graphs, and in generation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.smoothing_cases import SMOOTHERS, VOCAB, fit, fitted, make_text

import lidstone as ld
from lidstone.hf.ngram_module import FollowedRows, NGramModule
from lidstone.lab.recipe.sections import ModelSpec
from lidstone.lab.run.models import build_model


def all_states(table: ld.BackoffTable) -> np.ndarray:
    """No history, and every node that can be one."""
    return np.arange(-1, table.trie.num_histories)


def judge(table: ld.BackoffTable, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The table's own rows, and its own step for every word after every state."""
    with np.errstate(divide="ignore"):
        rows = np.log(table.next_probs(states))
    return rows, table.advance(states[:, None], np.arange(table.vocab.size)[None])[1]


def agree(table: ld.BackoffTable, module: NGramModule, tolerance: float) -> None:
    states = all_states(table)
    rows, after = judge(table, states)
    log_probs, next_states = module(torch.from_numpy(states))
    assert log_probs.shape == next_states.shape == rows.shape
    np.testing.assert_allclose(log_probs.numpy(), rows, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(next_states.numpy(), after)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", SMOOTHERS)
def test_every_word_after_every_state_is_the_tables(name, order):
    table = fitted(name, order)
    agree(table, NGramModule(table, torch.float64), 1e-9)
    agree(table, NGramModule(table), 2e-5)


@pytest.mark.parametrize("make", [
    lambda table: table.compact(),
    lambda table: table.compact(bits=16, pack=True),
    lambda table: ld.prune(table, entropy=0.01),
    lambda table: ld.mix([table, fitted("witten-bell", 2)], [0.3, 0.7]),
])  # fmt: skip
def test_tables_in_fewer_bytes_pruned_and_mixed(make):
    table = make(fitted("modified-kneser-ney", 3))
    agree(table, NGramModule(table, torch.float64), 1e-9)


def test_a_model_from_a_file(tmp_path):
    ld.write_arpa(fitted("katz", 3), tmp_path / "a.arpa", [f"w{i}" for i in range(VOCAB.size)])
    table = ld.read_arpa(tmp_path / "a.arpa")
    agree(table, NGramModule(table, torch.float64), 1e-6)


def test_lists_of_very_different_lengths():
    """`<s>` and a frequent word have hundreds of successors, most words one."""
    vocab, draw = ld.Vocabulary(size=300, eos=0), np.random.default_rng(1)
    text = [[int(w), 7, int(v)] for w, v in zip(draw.permutation(299) + 1, draw.permutation(299) + 1, strict=True)]
    table = ld.WittenBell().fit(ld.count(text, vocab, order=3))
    agree(table, NGramModule(table, torch.float64), 1e-9)


@pytest.fixture(scope="module")
def table():
    return fit("modified-kneser-ney", ld.count(make_text(80, seed=3), VOCAB, 4))


@pytest.fixture(scope="module")
def module(table):
    return NGramModule(table).eval()


def test_no_number_goes_to_the_host(module):
    """On the device without numbers every read of one is an error."""
    log_probs, states = module.to("meta")(torch.zeros(5, dtype=torch.long, device="meta"))
    assert log_probs.shape == states.shape == (5, VOCAB.size) and log_probs.device.type == "meta"


def test_torch_exports_it(table):
    module = NGramModule(table)
    batch = torch.export.Dim("batch", min=1, max=1024)
    program = torch.export.export(module, (torch.tensor([0, -1]),), dynamic_shapes={"states": {0: batch}})
    agree(table, program.module(), 2e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # of the exporter's own
def test_onnx_runtime_runs_it(table, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    batch = torch.export.Dim("batch", min=1, max=1024)
    torch.onnx.export(
        NGramModule(table).eval(), (torch.tensor([0, -1]),), tmp_path / "ngram.onnx", dynamo=True, verbose=False,
        input_names=["states"], output_names=["log_probs", "next_states"], dynamic_shapes={"states": {0: batch}},
    )  # fmt: skip
    session, states = runtime.InferenceSession(tmp_path / "ngram.onnx"), all_states(table)
    log_probs, after = session.run(None, {"states": states})
    rows, expected = judge(table, states)
    np.testing.assert_allclose(log_probs, rows, rtol=2e-5, atol=2e-5)
    np.testing.assert_array_equal(after, expected)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_rows_are_followed_in_any_order(order, monkeypatch):
    """Steps of a made-up beam search: rows are dropped, doubled and reordered, and end; the words are read once."""
    table, draw = fitted("witten-bell", order), np.random.default_rng(order)
    followed = FollowedRows(table)
    read, calls = ld.BackoffTable.states, []
    monkeypatch.setattr(ld.BackoffTable, "states", lambda *a: calls.append(1) or read(*a))
    for start in (1, 5):
        rows = torch.from_numpy(draw.integers(0, VOCAB.size, (6, start)))
        for _ in range(12):
            found = followed.probs(rows)
            fresh = FollowedRows(table).probs(rows)
            torch.testing.assert_close(found, fresh)
            kept = torch.from_numpy(draw.integers(0, len(rows), 6))
            rows = torch.cat([rows[kept], torch.from_numpy(draw.integers(0, VOCAB.size, (6, 1)))], 1)
    assert len(calls) == 2 + 24  # of `followed` the two prompts, of `fresh` every step


def test_beams_of_generate_read_the_prompt_only(table, monkeypatch):
    torch.manual_seed(0)
    spec = ModelSpec(layers=1, width=8, heads=2, ffn=16, dropout=0.0, max_positions=16)
    model = build_model(spec, VOCAB.size).eval()
    mixture = ld.Mixture(model, table, 0.5)
    read, calls, seen = ld.BackoffTable.states, [], []
    monkeypatch.setattr(ld.BackoffTable, "states", lambda *a: calls.append(1) or read(*a))
    process = ld.Mixture.process

    def judged(self, ids, scores):
        found = process(self, ids, scores)
        histories = [self.history(row) for row in ids.tolist()]
        ngram = torch.from_numpy(table.next_probs(read(table, histories)))
        expected = (0.5 * scores.double().softmax(-1) + 0.5 * ngram).log().to(scores.dtype)
        torch.testing.assert_close(found, expected.log_softmax(-1), rtol=1e-4, atol=1e-4)
        seen.append(ids.shape)
        return found

    monkeypatch.setattr(ld.Mixture, "process", judged)
    model.generate(
        torch.tensor([[2, 3], [4, 5]]), attention_mask=torch.ones(2, 2), num_beams=3, max_new_tokens=8, do_sample=False,
        pad_token_id=0, eos_token_id=1, logits_processor=mixture.logits_processor(),
    )  # fmt: skip
    assert len(seen) > 3 and len(calls) == 1
