"""A trained model with everything needed to use it: weights, vocabulary, merges, the search settings.

model/  config.json  model.safetensors  ...      what `from_pretrained` of transformers reads
        lidstone.json                            the task, how to search, checksums of the other files
        target.json, source.json                 from text to ids and back
        residual.json, residual.safetensors      the n-gram table of a model that was trained as its residual
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lidstone.errors import FileFormatError, InputError, LidstoneError, VocabularyMismatch
from lidstone.files import file_checksums, read_object, verify_files, with_checksum
from lidstone.lab.corpus.pipeline import TextPipeline, model_folder, saved_pipeline
from lidstone.lab.methods.base import residual_of
from lidstone.lab.recipe.sections import Beam

_BEAM_KEYS = {
    "beams": "beam",
    "length_penalty": "length_penalty",
    "factor": "max_length_factor",
    "extra": "max_length_extra",
    "batch_size": "batch_size",
}  # the names of the fields of `Beam` in a file

_HINT = "train again, or copy the model folder again"


@dataclass(frozen=True)
class SavedModel:
    """A model, ready to read text."""

    task: str
    model: Any
    target: TextPipeline
    source: TextPipeline | None
    beam: Beam
    name: str
    """its name in output: the folder it was loaded from"""

    def save(self, folder: Path) -> None:
        """Write everything into a folder."""
        self.model.save_pretrained(folder)
        if (residual := residual_of(self.model)) is not None:
            residual.save(folder)
        for side, pipeline in (("target", self.target), ("source", self.source)):
            if pipeline is not None:
                if pipeline.checkpoint is not None:
                    pipeline.tokenizer.save_pretrained(folder)
                    pipeline = replace(pipeline, checkpoint=".")
                _write(folder / f"{side}.json", pipeline.to_dict())
        beam = {key: getattr(self.beam, field) for key, field in _BEAM_KEYS.items()}
        files = file_checksums(folder, sorted(path.name for path in folder.iterdir()))
        facts = {"format": 1, "task": self.task, "name": self.name, "beam": beam, "files": files}
        _write(folder / "lidstone.json", with_checksum(facts))


def load_saved(path: str | Path, *, task: str | None = None, window: int | None = None) -> SavedModel:
    """Load a run's model, a model folder of lidstone, or any causal checkpoint of transformers with its tokenizer.

    `window` is the longest row that a language model should read; by default the longest it was trained on, if its
    folder says so, else the longest that its configuration allows.
    """
    import torch

    folder = model_folder(path)
    try:
        saved = _ours(folder) if (folder / "lidstone.json").is_file() else _foreign(folder)
    except LidstoneError:
        raise
    except Exception as error:  # whatever transformers and torch raise at a configuration that cannot be
        reason = " ".join(str(error).split())[:200]
        raise FileFormatError(f"the model in {folder} cannot be loaded: {reason}", hint=_HINT) from error
    saved.model.eval()
    if torch.cuda.is_available():
        saved.model.to("cuda")
    size, expected = saved.model.get_output_embeddings().weight.shape[0], saved.target.vocabulary.size
    if size != expected:
        raise VocabularyMismatch(
            f"the model in {folder} has {size} ids, its tokenizer {expected}",
            hint="use the tokenizer it was trained with",
        )
    if task is not None and saved.task != task:
        wanted = {"lm": "a language model", "mt": "a translation model"}[task]
        raise InputError(f"{path} is not {wanted}", hint="see `task` in its run.json")
    if window is not None:
        _set_window(saved, window)
    return saved


def _set_window(saved: SavedModel, window: int) -> None:
    longest = getattr(saved.model.config, "max_position_embeddings", None)
    if saved.task != "lm" or (longest is not None and window > longest):
        reason = f"{saved.name} reads at most {longest} tokens" if saved.task == "lm" else "a translation has no window"
        raise InputError(f"a window of {window} tokens is not possible: {reason}", hint="leave --window out")
    saved.model.config.trained_window = window


def load_pipeline(path: str | Path) -> TextPipeline:
    """How the (target) text of a run or model folder of lidstone becomes ids, without its weights."""
    folder = model_folder(path)
    pipeline = saved_pipeline(folder)
    if pipeline is None:
        raise InputError(f"{folder} is not a model of lidstone", hint="pass a folder of runs/")
    return pipeline


def _ours(folder: Path) -> SavedModel:
    from lidstone.lab.run.models import load_model

    facts = read_object(folder / "lidstone.json", "settings", _HINT)
    _verify(folder, facts.get("files", {}))
    model = load_model(folder)
    if (folder / "residual.json").is_file():
        from lidstone.lab.methods.residual import load_residual

        load_residual(model, folder)
    sides = {side: saved_pipeline(folder, side) for side in ("target", "source")}
    if sides["target"] is None:
        raise FileFormatError(f"{folder} has no target.json", hint="copy all files of the model folder")
    beam = Beam(**{_BEAM_KEYS[key]: value for key, value in facts["beam"].items()})
    return SavedModel(facts["task"], model, sides["target"], sides["source"], beam, str(facts["name"]))


def _foreign(folder: Path) -> SavedModel:
    from lidstone.lab.run.models import load_model
    from lidstone.text.vocabulary import Vocabulary

    model = load_model(folder)
    if model.config.is_encoder_decoder:
        raise InputError(f"{folder} is not a model of lidstone", hint="translation models need a lidstone.json")
    pipeline = TextPipeline(checkpoint=str(folder))
    size = model.get_output_embeddings().weight.shape[0]
    vocab = Vocabulary.from_tokenizer(pipeline.tokenizer, size=size)
    return SavedModel("lm", model, replace(pipeline, vocab=vocab), None, Beam(), folder.name)


def _verify(folder: Path, files: dict[str, str]) -> None:
    """Check the files of a model; those of older versions have no checksums."""
    try:
        verify_files(folder, files)
    except ValueError as error:
        hint = 'copy the folder again; if you changed it yourself, remove "files" and "checksum" from lidstone.json'
        raise FileFormatError(f"the model in {folder} is damaged: {error}", hint=hint) from error


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
