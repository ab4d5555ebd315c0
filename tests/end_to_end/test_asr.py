"""Models of tokens for speech decoders: what NeMo's script makes, and what KenLM, flashlight and lidstone load."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import lidstone as ld
from lidstone import kenlm as ours
from lidstone.cli.main import app
from lidstone.errors import InputError
from lidstone.text.raw import RawText

pytestmark = pytest.mark.filterwarnings("ignore::lidstone.ngram.smoothers.base.FallbackUsed")
TEXT = """\
the quick brown fox jumps over the lazy dog
a quick dog sleeps

the fox and the dog are friends
jumps and sleeps over and over
the lazy fox sleeps over there
dogs are lazy and foxes are quick
over there a friend of the fox sleeps
"""


def run(*arguments: object, code: int = 0) -> Result:
    found = CliRunner().invoke(app, ["asr", *map(str, arguments)])
    assert found.exit_code == code, found.output
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text, a model of SentencePiece, and a tokenizer of Hugging Face in a folder."""
    spm = pytest.importorskip("sentencepiece")
    tokenizers = pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("asr")
    (folder / "text").write_text(TEXT, encoding="utf-8")
    spm.SentencePieceTrainer.train(
        input=str(folder / "text"), model_prefix=str(folder / "spm"), vocab_size=38, minloglevel=2, num_threads=1
    )
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    bpe.train_from_iterator(TEXT.splitlines(), tokenizers.trainers.BpeTrainer(vocab_size=70, special_tokens=["<unk>"]))
    (folder / "hf").mkdir()
    bpe.save(str(folder / "hf" / "tokenizer.json"))
    return folder


def nemo_lines(folder: Path) -> list[str]:
    """The text as NeMo's kenlm_utils writes it for KenLM: `chr(token + 100)` for each id, spaces between."""
    spm = pytest.importorskip("sentencepiece")
    processor = spm.SentencePieceProcessor(model_file=str(folder / "spm.model"))
    return [" ".join(chr(token + 100) for token in processor.encode(line)) for line in TEXT.splitlines()]


def test_tokens_are_written_as_nemo_writes_them(folder: Path) -> None:
    raw = RawText(sentencepiece=str(folder / "spm.model"), offset=100)
    assert [line.decode() for line in raw.words(TEXT.splitlines())] == nemo_lines(folder)
    assert raw.identity != RawText(sentencepiece=str(folder / "spm.model")).identity


@pytest.mark.parametrize("suffix", ["bin", "trie"])
def test_a_model_for_nemo_is_that_of_its_script(folder: Path, tmp_path: Path, suffix: str) -> None:
    """Loaded by the compiled kenlm module, it gives what lmplz and build_binary make of the same tokens."""
    kenlm = pytest.importorskip("kenlm")
    model = tmp_path / f"lm.{suffix}"
    run(folder / "spm.model", folder / "text", "--tokens", "nemo", "--order", 4, "--output", model)
    found, lines = kenlm.Model(str(model)), [line for line in nemo_lines(folder) if line]
    assert found.order == 4
    assert [found.score(line) for line in lines] == [ours.Model(model).score(line) for line in lines]
    words = [length for line in lines for _, length, unknown in found.full_scores(line) if not unknown]
    assert len(words) == sum(len(line.split(" ")) + 1 for line in lines) and max(words) == 4
    if shutil.which("lmplz") and shutil.which("build_binary"):
        arpa, binary = tmp_path / "nemo.arpa", tmp_path / "nemo.bin"
        command = ["lmplz", "-o", "4", "--arpa", str(arpa), "--discount_fallback", "-S", "1G", "-T", str(tmp_path)]
        subprocess.run(command, input="".join(f"{line}\n" for line in lines).encode(), capture_output=True, check=True)
        subprocess.run(["build_binary", "trie", str(arpa), str(binary)], capture_output=True, check=True)
        judge = kenlm.Model(str(binary))
        for line in [*lines, lines[0][::-1]]:
            assert found.score(line) == pytest.approx(judge.score(line), abs=2e-3)


def test_a_tokenizer_of_hugging_face_and_flashlight(folder: Path, tmp_path: Path) -> None:
    """The model that flashlight's decoder without a lexicon asks for its tokens."""
    decoder = pytest.importorskip("flashlight.lib.text.decoder.kenlm")
    dictionary = pytest.importorskip("flashlight.lib.text.dictionary").Dictionary
    model, tokens = tmp_path / "lm.bin", RawText(tokenizer=str(folder / "hf"))
    run(folder / "hf", folder / "text", "--order", 3, "--output", model)
    vocabulary = sorted(
        {token for line in tokens.words(TEXT.splitlines()) for token in line.decode().split(" ")} - {""}
    )
    names = dictionary(vocabulary)
    lm, judge = decoder.KenLM(str(model), names), ours.Model(model)
    state, total = lm.start(False), 0.0
    line = tokens.words(["the quick dog jumps"])[0].decode()
    for token in line.split(" "):
        state, score = lm.score(state, names.get_index(token))
        total += score
    total += lm.finish(state)[1]
    assert total == pytest.approx(judge.score(line), abs=1e-4)


def test_letters_of_wav2vec2(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    letters = {
        piece: i for i, piece in enumerate(["<pad>", "<s>", "</s>", "<unk>", "|", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ"])
    }
    (tmp_path / "vocab.json").write_text(json.dumps(letters), encoding="utf-8")
    transformers.Wav2Vec2CTCTokenizer(str(tmp_path / "vocab.json")).save_pretrained(tmp_path)
    (tmp_path / "text").write_text(TEXT.upper(), encoding="utf-8")
    assert not (tmp_path / "tokenizer.json").exists()
    run(tmp_path, tmp_path / "text", "--order", 3, "--output", tmp_path / "lm.arpa")
    assert ours.Model(tmp_path / "lm.arpa").score("T H E | F O X") > ours.Model(tmp_path / "lm.arpa").score(
        "X O F | E H T"
    )
    (tmp_path / "small").write_text(TEXT * 3, encoding="utf-8")
    told = run(tmp_path, tmp_path / "small", "--order", 2, "--output", tmp_path / "small.arpa").stderr
    assert " % of 6" in told and "unknown to the tokenizer: its letters may be of another case" in told


def test_the_arpa_file_is_what_count_and_fit_make(folder: Path, tmp_path: Path) -> None:
    run(
        folder / "spm.model", folder / "text", "--order", 3, "--prune", 0, "--prune", 1, "--output", tmp_path / "a.arpa"
    )
    source = RawText(sentencepiece=str(folder / "spm.model")).source(folder / "text")
    counts = ld.count_text(source, 3, thresholds=(0, 1))
    ld.write_arpa(ld.ModifiedKneserNey(fallback=(0.5, 1.0, 1.5)).fit(counts), tmp_path / "b.arpa")
    assert (tmp_path / "a.arpa").read_bytes() == (tmp_path / "b.arpa").read_bytes()


def test_json_has_sizes_and_signature(folder: Path, tmp_path: Path) -> None:
    found = json.loads(
        run(folder / "hf", folder / "text", "--order", 2, "--output", tmp_path / "lm.bin", "--json").stdout
    )
    assert found["ngrams"][1] > found["ngrams"][0] > 10 and "modified-kneser-ney" in found["signature"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("hf", "text", "--order", 1), "decoders do not load models of order 1"),
        (("hf", "text", "--order", 7), "decoders do not load models of order 7"),
        (("hf", "text", "--tokens", "ids"), "tokens are not written as 'ids'"),
        (("text", "text"), "is not a model of SentencePiece"),
        (("nothing.json", "text"), "there is no such file"),
        (("empty", "text"), "has no tokenizer"),
        (("hf", "nothing"), "nothing"),
        (("hf", "text", "--output", "lm.txt"), "the suffix .txt is unknown"),
    ],
)
def test_bad_input_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[object, ...], said: str
) -> None:
    (folder / "empty").mkdir(exist_ok=True)
    monkeypatch.chdir(folder)
    output = () if "--output" in arguments else ("--output", "lm.bin")
    found = run(*arguments, *output, code=1)
    assert said in found.stderr and found.stderr.count("\n") == 2 and "Traceback" not in found.stderr


def test_tokens_that_are_no_characters_are_refused() -> None:
    from lidstone.text.raw import _characters

    assert _characters(55196, 100)[-1] == chr(55295).encode()
    with pytest.raises(InputError, match="55,197 tokens cannot be written as one character each: the limit is 55,196"):
        _characters(55197, 100)
