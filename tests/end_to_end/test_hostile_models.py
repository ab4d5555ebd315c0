"""Model folders of strangers: their code never runs, whatever standard input says, and the refusal is one line."""

from __future__ import annotations

import io
import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.tiny import lm_values, recipe, write_texts

from lidstone.cli.main import app
from lidstone.errors import RunError

pytest.importorskip("transformers")

CLASSES = {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil", "AutoModelForSeq2SeqLM": "evil.Evil"}
TOKENIZER = {"tokenizer_class": "Evil", "auto_map": {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}}


class Payload:
    """Unpickling it makes the folder `ran`."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


@pytest.fixture(params=["code", "code of a run", "tokenizer", "pickle"])
def hostile(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A model folder that makes the folder `ran` if any of its code runs."""
    from transformers import GPT2Config

    folder, mark = tmp_path / "model", tmp_path / "ran"
    folder.mkdir()
    (folder / "evil.py").write_text(f"import os\nos.mkdir({str(mark)!r})\nclass Evil: pass\n")
    small = GPT2Config(n_layer=1, n_embd=8, n_head=2, n_positions=16, vocab_size=8)
    if request.param.startswith("code"):
        (folder / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": CLASSES}))
    elif request.param == "tokenizer":
        from transformers import GPT2LMHeadModel

        GPT2LMHeadModel(small).save_pretrained(folder)
    else:
        small.save_pretrained(folder)
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(mark)))
    if request.param == "code of a run":
        (folder / "lidstone.json").write_text(json.dumps({"format": 1, "task": "lm"}))
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER))
    return folder


VERBS = {
    "evaluate": ["evaluate", "MODEL", "TEXT"],
    "evaluate --mix": ["evaluate", "MODEL", "TEXT", "--mix", "TEXT"],
    "generate": ["generate", "MODEL"],
    "translate": ["translate", "MODEL"],
    "train": ["train", "RECIPE", "--output", "OUT"],
    "train tokenizer": ["train", "RECIPE", "--output", "OUT", "--set", "tokenizer.kind=checkpoint"],
    "train configuration": ["train", "RECIPE", "--output", "OUT", "--set", "model.checkpoint=MODEL/config.json"],
    "sweep": ["sweep", "RECIPE", "--output", "OUT"],
    "count --tokenizer": ["count", "TEXT", "-n", "2", "--tokenizer", "MODEL", "-o", "OUT/counts"],
    "teach": ["teach", "MODEL", "TEXT", "--output", "OUT/teacher"],
    "data prepare": ["data", "prepare", "RECIPE", "--set", "tokenizer.kind=checkpoint"],
}


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_runs_code_of_a_model_folder(
    hostile: Path, verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 50))
    files = write_texts(tmp_path, (20, 5, 5))
    values = lm_values(files, max_steps=1) | {"model": {"kind": "auto", "checkpoint": str(hostile)}}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(values))
    places = {"MODEL": hostile, "TEXT": files["test"]["target"], "RECIPE": tmp_path / "recipe.yaml", "OUT": tmp_path}
    arguments = VERBS[verb]
    for name, place in places.items():
        arguments = [argument.replace(name, str(place)) for argument in arguments]
    with pytest.raises(SystemExit) as end:
        app(arguments, prog_name="lidstone")
    error = capsys.readouterr().err
    assert not (tmp_path / "ran").exists()
    configuration_is_sound = verb == "train configuration" and hostile.joinpath("config.json").stat().st_size > 300
    assert (end.value.code or 0) == (0 if configuration_is_sound else 1), error
    assert configuration_is_sound or ("hint:" in error and "Traceback" not in error)


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_a_pickle_in_a_checkpoint_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lidstone.lab.run.checkpoints import write_checksums
    from lidstone.lab.run.run import train

    def stop(_: Any) -> None:
        if next(tmp_path.glob("runs/*/checkpoints/*"), None):
            raise KeyboardInterrupt

    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path / "cache"))
    values = recipe(lm_values(write_texts(tmp_path, (20, 5, 5)), max_steps=4, eval_every=2))
    with pytest.raises(KeyboardInterrupt):
        train(values, tmp_path / "runs", watch=stop)
    (checkpoint,) = tmp_path.glob("runs/*/checkpoints/*")
    (checkpoint / name).write_bytes(pickle.dumps(Payload(tmp_path / "ran"), protocol=2))
    write_checksums(checkpoint)
    with pytest.raises(RunError, match=r"cannot go on from .*hint: delete this folder") as error:
        train(values, tmp_path / "runs", resume=True)
    assert "\n" not in str(error.value) and not (tmp_path / "ran").exists()


def test_the_refusals_name_the_reason(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    from lidstone.errors import FileFormatError
    from lidstone.lab.run.models import load_model

    (tmp_path / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": CLASSES}))
    with pytest.raises(FileFormatError, match="needs Python code of its own, which lidstone does not run"):
        load_model(tmp_path)
    small = GPT2Config(n_layer=1, n_embd=8, n_head=2, n_positions=16, vocab_size=8)
    GPT2LMHeadModel(small).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(small.to_dict() | {"n_layer": 2**31}))
    with pytest.raises(FileFormatError, match="has 2147483648 layers and 16 tensors"):
        load_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    GPT2Config().save_pretrained(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(tmp_path / "ran")))
    with pytest.raises(FileFormatError, match="has pickled weights, which could run code"):
        load_model(tmp_path)
