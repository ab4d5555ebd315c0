"""Teachers: what is stored against dense probabilities, interruptions, files of others, and bad input."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "training"))
from tiny_training import EOS, SIZE, TABLE, TEXT, VOCAB, make_model

import lidstone as ld
from lidstone.errors import FileFormatError, InputError, LidstoneError, VocabularyMismatch
from lidstone.hf import teach as making
from lidstone.hf.stored_teacher import encode
from lidstone.hf.teach import Ensemble, TeacherModel, _drawn
from lidstone.text.history import histories_of

SENTENCES = [np.array(words) for words in [*TEXT[:7], []]]
BOUND = 1 / 4096 + 1e-6


@pytest.fixture(scope="module")
def models():
    first, second = make_model("opt").eval(), make_model("gpt2").eval()
    return [first, second]


def network(model, words):
    """Log-probabilities after eos and each word, (words + 1, V), in float64."""
    with torch.no_grad():
        return model(input_ids=torch.tensor([[EOS, *words]])).logits[0].double().log_softmax(-1)


def ngram(table, words):
    return torch.tensor(table.prob(histories_of([VOCAB.bos, *words], VOCAB, table.order)))


def check(teacher, dense, k=5):
    """The k most probable words of each position, and their log-probabilities."""
    assert len(teacher) == len(SENTENCES)
    for number, words in enumerate(SENTENCES):
        found, logs = teacher[number], dense(number, words.tolist()).log()
        expected = logs.topk(k)
        assert found.labels.tolist() == [*words.tolist(), EOS]
        np.testing.assert_allclose(found.logprobs, expected.values, atol=BOUND)
        np.testing.assert_allclose(logs.gather(-1, torch.from_numpy(found.ids)), expected.values, atol=1e-5)


def test_one_network(models, tmp_path):
    teacher = ld.teach(models[0], SENTENCES, tmp_path / "t", vocab=VOCAB, top=5)
    check(teacher, lambda number, words: network(models[0], words).exp())
    check(ld.load_teacher(tmp_path / "t"), lambda number, words: network(models[0], words).exp())
    teacher.require(VOCAB)


def test_an_ensemble_mixed_with_an_ngram_model_and_softened(models, tmp_path):
    def dense(number, words):
        mean = 0.25 * network(models[0], words).exp() + 0.75 * network(models[1], words).exp()
        soft = (0.7 * mean + 0.3 * ngram(TABLE, words)).sqrt()
        return soft / soft.sum(-1, keepdim=True)

    options = {"weights": (1, 3), "tables": [TABLE], "weight": 0.3, "temperature": 2.0}
    check(ld.teach(models, SENTENCES, tmp_path / "t", vocab=VOCAB, top=5, **options), dense)


def test_folds_of_tables_and_of_networks(models, tmp_path):
    """Sentence i meets table i mod 3 and network i mod 2."""
    tables = [ld.WittenBell().fit(ld.count(TEXT[fold::3], VOCAB, order=2)) for fold in range(3)]

    def dense(number, words):
        return 0.6 * network(models[number % 2], words).exp() + 0.4 * ngram(tables[number % 3], words)

    options = {"tables": tables, "weight": 0.4, "cross_fit": True}
    check(ld.teach(models, SENTENCES, tmp_path / "t", vocab=VOCAB, top=5, **options), dense)


def test_long_sentences_are_read_in_windows_of_what_the_network_was_trained_on(tmp_path):
    """Of 4 tokens, the first 2 of which are context: positions 0-3 from 0, 4-5 from 2, 6-7 from 4."""
    model = make_model("opt").eval()
    model.config.trained_window = 4
    words = [3, 4, 7, 12, 5, 6, 7]
    found = ld.teach(model, [words], tmp_path / "t", vocab=VOCAB, top=3)[0]
    whole = [EOS, *words]
    for at in range(8):
        start = {0: 0, 1: 0, 2: 2, 3: 4}[at // 2]
        with torch.no_grad():
            logs = model(input_ids=torch.tensor([whole[start : at + 1]])).logits[0, -1].log_softmax(-1)
        np.testing.assert_allclose(found.logprobs[at], logs.topk(3).values, atol=BOUND)


def test_rows_of_a_trainer_are_read_as_they_are(models, tmp_path):
    """Nothing is said of the first token."""
    row = [EOS, 3, 4, 5]
    found = ld.teach(models[0], [row], tmp_path / "t", vocab=VOCAB, top=2, as_rows=True)[0]
    assert found.labels.tolist() == row and (found.ids[0] == -1).all()
    np.testing.assert_allclose(found.logprobs[1:], network(models[0], row[1:])[:3].topk(2).values, atol=BOUND)


def test_drawn_words_are_unbiased():
    """The mean over 20,000 draws of 3 words; the standard error of a mean is at most 0.5 / sqrt(60,000) = 0.002."""
    probs = torch.tensor([0.5, 0.25, 0.15, 0.1, 0.0])
    values, words = _drawn(probs.log().expand(20_000, 5), 3, torch.Generator().manual_seed(1))
    shares = values.exp()
    torch.testing.assert_close(shares.sum(-1), torch.ones(20_000))
    mean = torch.zeros(20_000, 5).scatter_add_(1, words, shares).mean(0)
    torch.testing.assert_close(mean, probs, atol=0.008, rtol=0)


def test_drawn_teachers_are_the_same_again(models, tmp_path):
    made = [ld.teach(models, SENTENCES, tmp_path / n, vocab=VOCAB, top=4, sample=True) for n in "ab"]
    assert all((one.ids == other.ids).all() for one, other in zip(*made, strict=True))
    for found in made[0]:
        used = found.ids >= 0
        np.testing.assert_allclose((np.exp(found.logprobs) * used).sum(-1), 1, atol=1e-3)
        assert all(len(set(ids[use])) == use.sum() for ids, use in zip(found.ids, used, strict=True))


def test_the_weight_by_em_is_that_of_the_mixture(models):
    valid = TEXT[7:20]
    expected = ld.Mixture(models[0], TABLE).fit(valid).weight
    assert TeacherModel([models[0]], VOCAB).fit_weight(TABLE, valid) == pytest.approx(expected, abs=1e-6)
    assert 0 < TeacherModel(models, VOCAB).fit_weight(TABLE, valid) < 1


def test_the_window_of_an_ensemble_is_the_shortest(models):
    assert Ensemble(models).config.trained_window == 64  # 64 and 128


class TestInterruption:
    @pytest.fixture(autouse=True)
    def small_shards(self, monkeypatch):
        monkeypatch.setattr(making, "ENTRIES", 60)  # 12 positions

    def test_a_killed_teacher_continues_to_the_same_bytes(self, models, tmp_path, monkeypatch):
        whole = ld.teach(models[0], SENTENCES, tmp_path / "whole", vocab=VOCAB, top=5)
        assert len(whole.shards) > 3
        made, shard = [], making._shard

        def interrupted(*given):
            if len(made) == 2:
                raise KeyboardInterrupt
            made.append(given[2])
            return shard(*given)

        monkeypatch.setattr(making, "_shard", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ld.teach(models[0], SENTENCES, tmp_path / "t", vocab=VOCAB, top=5)
        with pytest.raises(InputError, match=r"is not finished.*run the same command again"):
            ld.load_teacher(tmp_path / "t")
        (damaged := tmp_path / "t" / "shard-00001.safetensors").write_bytes(damaged.read_bytes()[:-2] + b"xy")
        made.pop()
        monkeypatch.setattr(making, "_shard", lambda *given: made.append(given[2]) or shard(*given))
        ld.teach(models[0], SENTENCES, tmp_path / "t", vocab=VOCAB, top=5)
        assert made == sorted(made, key=lambda numbers: numbers.start) and len(made) == len(whole.shards)
        files = [sorted(path for path in (tmp_path / name).iterdir() if path.is_file()) for name in ("whole", "t")]
        assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]

    def test_other_options_are_refused(self, models, tmp_path):
        ld.teach(models[0], SENTENCES, tmp_path / "t", vocab=VOCAB, top=5)
        for other in ({"top": 4}, {"temperature": 2.0}, {"sample": True}):
            with pytest.raises(InputError, match=r"has a teacher of other models, text or options.*another --output"):
                ld.teach(models[0], SENTENCES, tmp_path / "t", vocab=VOCAB, **{"top": 5, **other})
        with pytest.raises(InputError, match="of other models"):
            ld.teach(models[1], SENTENCES, tmp_path / "t", vocab=VOCAB, top=5)

    def test_damage(self, models, tmp_path):
        ld.teach(models[0], SENTENCES, tmp_path / "t", vocab=VOCAB, top=5)
        file = tmp_path / "t" / "shard-00001.safetensors"
        whole = file.read_bytes()
        file.write_bytes(whole[:-2] + b"xy")
        with pytest.raises(FileFormatError, match=r"shard-00001.safetensors has changed \(checksum\).*lidstone teach"):
            ld.load_teacher(tmp_path / "t")
        file.write_bytes(whole[:-30])
        with pytest.raises(FileFormatError, match="shard-00001"):
            ld.load_teacher(tmp_path / "t", verify=False)


def test_an_entry_takes_four_bytes(models, tmp_path):
    teacher = ld.teach(models[0], SENTENCES, tmp_path / "t", vocab=VOCAB, top=20)
    (shard,) = teacher.shards
    assert shard.ids.itemsize + shard.codes.itemsize == 4
    positions = len(shard.labels)
    assert (tmp_path / "t" / "shard-00000.safetensors").stat().st_size < positions * (20 * 4 + 4) + 1000


def test_sixteen_bits_are_wrong_by_the_stated_bound():
    logs = -np.linspace(0, 31.99, 10_001)
    codes = encode(logs, np.ones(len(logs), bool))
    assert np.abs(-codes.astype(float) / 2048 - logs).max() <= 1 / 4096
    assert encode(np.array([1e-7, -32.5]), np.ones(2, bool)).tolist() == [0, 65535]


@pytest.mark.parametrize("before", [[], [VOCAB.bos]])
@pytest.mark.parametrize("after", [[], [EOS]])
def test_rows_are_found_by_their_tokens(models, tmp_path, before, after):
    teacher = ld.teach(models[0], SENTENCES, tmp_path / "t", vocab=VOCAB, top=5)
    found, expected = teacher.find([*before, *TEXT[2], *after]), teacher[2]
    assert len(found.ids) == len(before) + len(TEXT[2]) + len(after)
    shift = len(before)
    assert (found.ids[:shift] == -1).all()
    assert (found.ids[shift:] == expected.ids[: len(found.ids) - shift]).all()
    with pytest.raises(InputError, match=r"a row of 2 tokens, \[3, 49\]..., is no sentence of the teacher"):
        teacher.find([3, 49])


def test_parquet_is_read_as_it_was_written(models, tmp_path):
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    teacher = ld.teach(models[0], SENTENCES, tmp_path / "t", vocab=VOCAB, top=5)
    teacher.save_parquet(tmp_path / "t.parquet")
    read = ld.load_teacher(tmp_path / "t.parquet")
    for found, expected in zip(read, teacher, strict=True):
        assert all((one == other).all() for one, other in zip(found, expected, strict=True))


AXOLOTL = {
    "input_ids": [4, 5, 6],
    "target_token_ids": [[7, 8], [8, 9]],
    "target_logprobs": [[-0.5, -1.5], [-1.0, float("-inf")]],
    "target_mask": [[1, 0], [1, 1]],
}
VLLM = {
    "prompt_token_ids": [4, 5],
    "prompt_logprobs": [None, {"9": {"logprob": -0.5, "rank": 1, "decoded_token": "a"}, "5": {"logprob": -2.0}}],
}


def written(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_columns_of_axolotl(tmp_path):
    """They may begin later than the tokens."""
    found = ld.load_teacher(written(tmp_path / "a.jsonl", AXOLOTL))[0]
    assert found.labels.tolist() == [4, 5, 6]
    assert found.ids[:, 0].tolist() == [-1, 7, 8] and (found.ids[:, 1:] == -1).all()
    assert found.logprobs[:, 0].tolist() == [0, -0.5, -1.0]


def test_columns_of_vllm(tmp_path):
    found = ld.load_teacher(written(tmp_path / "a.jsonl", VLLM))[0]
    assert found.labels.tolist() == [4, 5] and found.ids.tolist() == [[-1, -1], [9, 5]]
    assert found.logprobs[1].tolist() == [-0.5, -2.0]


def teach(models, tmp_path, sentences=SENTENCES, **options):
    return ld.teach(models, sentences, tmp_path / "t", **{"vocab": VOCAB, "top": 5, **options})


def broken(models):
    model = make_model("opt").eval()
    model.lm_head.weight.data[3] = torch.nan
    return model


OTHER = ld.Vocabulary(size=SIZE + 1, eos=EOS)


def row_of(word):
    return {"input_ids": [3], "target_token_ids": [[word]], "target_logprobs": [[-0.5]]}


MISTAKES = [
    (lambda m, t: teach(m, t, top=51), "51 words of a vocabulary of 50.*keep 1 to 50"),
    (lambda m, t: teach(m, t, top=0), "0 words of a vocabulary"),
    (lambda m, t: teach(m, t, []), "there are no sentences to teach"),
    (lambda m, t: teach(m, t, [[1, 99]]), "99"),
    (lambda m, t: teach(m, t, [[[1]]]), "sentence 1 is no row of ids"),
    (lambda m, t: teach([], t), "0 models"),
    (lambda m, t: teach(m, t, weights=(1,)), "2 models and 1 weights"),
    (lambda m, t: teach(m, t, weights=(1, -1)), r"the weights of the models are \[1, -1\]"),
    (lambda m, t: teach(m, t, temperature=0.0), "the temperature 0.0"),
    (lambda m, t: teach(m, t, tables=[TABLE]), "1 n-gram models have the weight 0.0"),
    (lambda m, t: teach(m, t, weight=0.5), "0 n-gram models have the weight 0.5"),
    (lambda m, t: teach(m, t, tables=[TABLE], weight=float("nan")), "weight of the n-gram model is nan"),
    (lambda m, t: teach(m[0], t, cross_fit=True), "one model per fold needs two models or more"),
    (lambda m, t: teach(m, t, vocab=OTHER), "the vocabulary has 51 ids, the model 50"),
    (lambda m, t: teach(broken(m), t), "hold NaN"),
    (lambda m, t: ld.load_teacher(t / "nothing"), "there is no teacher .*nothing"),
    (lambda m, t: ld.load_teacher(t), "is no teacher: it has no teacher.json"),
    (lambda m, t: ld.load_teacher(written(t / "a.jsonl", {"text": "a"})), "line 1: it is no row of a teacher.*vLLM"),
    (lambda m, t: ld.load_teacher(written(t / "a.jsonl", [1])), "line 1: it is no row"),
    (lambda m, t: ld.load_teacher(written(t / "a.jsonl", row_of(2**32 + 3))), "line 1: .*more than 31 bits"),
    (lambda m, t: ld.load_teacher(written(t / "a.jsonl", row_of(10**30))), "line 1: .*more than 31 bits"),
    (lambda m, t: ld.load_teacher(written(t / "a.jsonl")), "names no word"),
    (lambda m, t: ld.load_teacher(written(t / "a.jsonl", VLLM | {"prompt_token_ids": [4]})), "1 tokens have 2 entries"),
    (
        lambda m, t: ld.load_teacher(written(t / "a.jsonl", AXOLOTL | {"target_logprobs": [[0.5, 1], [1, 1]]})),
        "NaN or numbers above 0",
    ),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_mistakes_are_one_line_with_a_hint(mistake, message, models, tmp_path):
    with pytest.raises(LidstoneError, match=message) as caught:
        mistake(models, tmp_path)
    assert caught.value.hint and "\n" not in str(caught.value)


def test_json_that_is_cut_off_names_its_line(tmp_path):
    path = written(tmp_path / "a.jsonl", VLLM)
    path.write_text(path.read_text() + '{"prompt')
    with pytest.raises(FileFormatError, match=r"a.jsonl, line 2: it is not JSON"):
        ld.load_teacher(path)


def test_a_teacher_of_another_tokenizer(models, tmp_path):
    with pytest.raises(VocabularyMismatch, match=r"made with another tokenizer.*make it with the tokenizer"):
        teach(models, tmp_path).require(ld.Vocabulary(size=SIZE, eos=EOS))
