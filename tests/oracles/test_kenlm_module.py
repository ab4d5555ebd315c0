"""`lidstone.kenlm` beside the kenlm module: the same program, the same numbers.

Programs written for kenlm are run with either module and must give equal results, to the last bit.
"""

from __future__ import annotations

import copy
import itertools
import json
import lzma
import pickle
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.oracles.test_kenlm import BY_HAND, DIALECTS, REFUSED

import lidstone as ld
import lidstone.kenlm as ours

kenlm = pytest.importorskip("kenlm", reason="the kenlm module is not installed")

FILES = Path(__file__).parents[1] / "golden" / "files" / "kenlm"
MODELS = [*sorted(path.name for path in FILES.glob("*.bin")), "model.arpa"]
SENTENCES = [
    "the cat sees a dog",
    "",
    "   ",
    "zebra",
    "the zebra the zebra green green café",
    "\tthe\ncat\x0bsees\x0ca\rdog ",
    "</s>",
    "<s> the cat </s>",
    "<unk> <UNK> the",
    "the\x01cat sees",
    "the\u00a0cat the\u3000cat",
    "the " * 200,
]
FLAGS = list(itertools.product([True, False], repeat=2))


def both(path: Path) -> tuple[Any, Any]:
    return kenlm.Model(str(path)), ours.Model(str(path))


@pytest.mark.parametrize("name", MODELS)
def test_scores_are_equal_to_the_last_bit(name: str) -> None:
    theirs, mine = both(FILES / name)
    for sentence, (bos, eos) in itertools.product([*SENTENCES, *(s.encode() for s in SENTENCES)], FLAGS):
        assert mine.score(sentence, bos, eos) == theirs.score(sentence, bos=bos, eos=eos)
        assert list(mine.full_scores(sentence, bos, eos)) == list(theirs.full_scores(sentence, bos=bos, eos=eos))
    for sentence in SENTENCES:
        assert mine.perplexity(sentence) == theirs.perplexity(sentence)
    assert mine.order == theirs.order and mine.path == theirs.path and repr(mine) == repr(theirs)


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name not in REFUSED])
def test_models_by_hand_are_equal_to_the_last_bit(tmp_path: Path, dialect: str) -> None:
    """Pruned models, in which KenLM inserts the n-grams that longer ones need."""
    (tmp_path / "m.arpa").write_text(DIALECTS[dialect])
    theirs, mine = both(tmp_path / "m.arpa")
    words = ["rain", "on", "the", "roof", "again", "snow"]
    draw = np.random.default_rng(1)
    for length in [*range(12)] * 20:
        sentence = " ".join(draw.choice(words, length))
        for bos, eos in FLAGS:
            assert list(mine.full_scores(sentence, bos, eos)) == list(theirs.full_scores(sentence, bos=bos, eos=eos))


@pytest.mark.parametrize("name", MODELS)
def test_words_are_known_to_both(name: str) -> None:
    theirs, mine = both(FILES / name)
    for word in ["the", "café", "zebra", "<unk>", "<s>", "</s>", "<UNK>", "", "the cat", b"the", b"\xff"]:
        assert (word in mine) == (word in theirs), word


def walk(module: Any, model: Any, words: list[str]) -> list[Any]:
    """States along a sentence, and all that can be asked of them."""
    state, out = module.State(), module.State()
    seen: list[Any] = []
    for start in (model.BeginSentenceWrite, model.NullContextWrite):
        start(state)
        for word in words:
            seen.append(model.BaseScore(state, word, out))
            full = model.BaseFullScore(state, word, out)
            seen.append((full.log_prob, full.ngram_length, full.oov, repr(full)))
            state, out = out, state
            seen.append(copy.copy(state))
    return seen


@pytest.mark.parametrize("name", MODELS)
def test_states_score_and_compare_alike(name: str) -> None:
    theirs, mine = both(FILES / name)
    sentence = "the cat sees a dog zebra a dog the cat the cat runs green green green </s> the <s> the"
    words = sentence.split()
    expected, found = walk(kenlm, theirs, words), walk(ours, mine, words)
    plain = [(a, b) for a, b in zip(expected, found, strict=True) if not isinstance(b, ours.State)]
    assert all(a == b for a, b in plain) and len(plain) == 4 * len(words)
    pairs = [(a, b) for a, b in zip(expected, found, strict=True) if isinstance(b, ours.State)]
    for (their_one, my_one), (their_other, my_other) in itertools.product(pairs, repeat=2):
        assert (my_one == my_other) == (their_one == their_other)
        assert (my_one != my_other) == (their_one != their_other)
        assert (my_one < my_other) or (my_one > my_other) or my_one == my_other
        if my_one == my_other:
            assert hash(my_one) == hash(my_other)
    assert len({b for _, b in pairs}) == len({a for a, _ in pairs}) > 3


def readme(module: Any, path: Path) -> list[Any]:
    """What python/example.py and the README of kenlm do, step by step."""
    model = module.LanguageModel(str(path))
    found: list[Any] = [model.order, model.score("this is a sentence .", bos=True, eos=True)]
    sentence = "language modeling is fun ."
    found.append(model.score(sentence))
    assert abs(sum(p for p, _, _ in model.full_scores(sentence)) - model.score(sentence)) < 1e-3
    words = ["<s>", *sentence.split(), "</s>"]
    for i, (prob, length, oov) in enumerate(model.full_scores(sentence)):
        found.append((prob, length, oov, " ".join(words[i + 2 - length : i + 2])))
    found += [word for word in words if word not in model]
    state, state2 = module.State(), module.State()
    model.BeginSentenceWrite(state)
    total = model.BaseScore(state, "a", state2)
    total += model.BaseScore(state2, "sentence", state)
    assert abs(total - model.score("a sentence", eos=False)) < 1e-3
    total += model.BaseScore(state, "</s>", state2)
    assert abs(total - model.score("a sentence")) < 1e-3
    return [*found, total]


@pytest.mark.parametrize("name", MODELS)
def test_the_readme_gives_the_same_results(name: str) -> None:
    assert readme(ours, FILES / name) == readme(kenlm, FILES / name)


def test_the_modules_have_the_same_names() -> None:
    mine = {
        "ARPALoadComplain": ours.ARPALoadComplain,
        "Config": ours.Config(),
        "FullScoreReturn": ours.FullScoreReturn(0.0, 1, False),
        "LanguageModel": ours.LanguageModel(FILES / "trie.bin"),
        "LoadMethod": ours.LoadMethod,
        "Model": ours.Model(FILES / "trie.bin"),
        "State": ours.State(),
    }
    assert set(mine) == {name for name in dir(kenlm) if name[0].isupper()}
    for name, thing in mine.items():
        assert {member for member in dir(getattr(kenlm, name)) if not member.startswith("_")} <= set(dir(thing))
    for name in ("LAZY", "POPULATE_OR_LAZY", "POPULATE_OR_READ", "READ", "PARALLEL_READ"):
        assert getattr(ours.LoadMethod, name) == getattr(kenlm.LoadMethod, name)
    assert vars(ours.Config()) == {name: getattr(kenlm.Config(), name) for name in vars(ours.Config())}


def test_a_model_is_pickled_by_its_path() -> None:
    theirs, mine = both(FILES / "trie.bin")
    assert pickle.loads(pickle.dumps(mine)).score("the cat") == pickle.loads(pickle.dumps(theirs)).score("the cat")


def test_both_refuse_the_same_files_with_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no model")
    (tmp_path / "binary").write_bytes((FILES / "trie.bin").read_bytes()[:300])
    (tmp_path / "no start").write_text(BY_HAND.replace("<s>", "<start>"))
    for name in ("text", "binary", "no start", "absent"):
        for module in (kenlm, ours):
            with pytest.raises(OSError, match="Cannot read model"):
                module.Model(str(tmp_path / name))


@pytest.fixture(scope="module")
def wikitext(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """An order-3 model of a tenth of WikiText-2 and lines of its validation text, unknown words among them."""
    folder = tmp_path_factory.mktemp("wikitext")
    texts = {}
    for part in ("train", "valid"):
        packed = next((data_dir / "wikitext-2").glob(f"*{part}*")).read_bytes()
        text = lzma.decompress(packed).decode()
        texts[part] = [line for line in text.replace("<unk>", "UNK_").split("\n") if line.strip()]
    (folder / "train").write_text("\n".join(texts["train"][::10]), encoding="utf-8")
    if shutil.which("lmplz"):
        with (folder / "train").open() as text, (folder / "m.arpa").open("w") as arpa:
            command = ["lmplz", "-o", "3", "-S", "200M", "-T", str(folder)]
            subprocess.run(command, stdin=text, stdout=arpa, stderr=subprocess.DEVNULL, check=True)
    else:
        ld.write_arpa(ld.ModifiedKneserNey().fit(ld.count_text(folder / "train", 3)), folder / "m.arpa")
    return folder / "m.arpa", texts["valid"][::8]


def test_wikitext_by_arpa(wikitext: tuple[Path, list[str]]) -> None:
    path, lines = wikitext
    theirs, mine = both(path)
    assert sum(oov for line in lines for _, _, oov in theirs.full_scores(line)) > 500
    for line in lines:
        assert list(mine.full_scores(line)) == list(theirs.full_scores(line))
    assert mine.score_lines(lines).tolist() == [theirs.score(line) for line in lines]


def test_wikitext_by_a_table_of_lidstone(wikitext: tuple[Path, list[str]], tmp_path: Path) -> None:
    """The table has float64 numbers, so single words may differ in the last digit of a float32."""
    path, lines = wikitext
    ld.read_arpa(path).save(tmp_path / "m.safetensors")
    theirs, mine = kenlm.Model(str(path)), ours.Model(tmp_path / "m.safetensors")
    for line in lines[:100]:
        expected, found = list(theirs.full_scores(line)), list(mine.full_scores(line))
        assert [rest for _, *rest in found] == [rest for _, *rest in expected]
        np.testing.assert_allclose([p for p, *_ in found], [p for p, *_ in expected], rtol=0, atol=1e-5)
    np.testing.assert_allclose(mine.score_lines(lines), [theirs.score(line) for line in lines], rtol=1e-6)


def test_pyctcdecode_gives_the_same_beams(tmp_path: Path) -> None:
    """In processes of their own: pyctcdecode imports the module named kenlm."""
    pytest.importorskip("pyctcdecode", reason="pyctcdecode is not installed (its pins exclude numpy 2)")
    program = Path(__file__).with_name("pyctcdecode_beams.py")
    printed = [
        subprocess.run(["python", program, name, FILES], capture_output=True, text=True, check=True).stdout
        for name in ("kenlm", "lidstone.kenlm")
    ]
    beams = [json.loads(text.split("\n")[-2]) for text in printed]
    assert beams[0] == beams[1] and len(beams[0]) > 50
