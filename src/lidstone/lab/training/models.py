"""Build, load and measure models: the paper's two Transformers, and any causal model by name.

`transformer-lm` and `transformer-mt` are in `training/architectures.py`; `auto` loads a checkpoint or
builds a model from a configuration. Hugging Face's classes read what `save_pretrained` writes, without
lidstone: the sinusoids are saved as OPT's position weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lidstone.errors import InputError, VocabularyMismatch
from lidstone.lab.training.architectures import (
    BOS,
    EOS,
    PAD,
    freeze_positions,
    language_model,
    sinusoids,
    translation_model,
)
from lidstone.lab.training.settings import ModelSpec

if TYPE_CHECKING:
    from torch.nn import Module
    from transformers import PreTrainedModel

__all__ = ["ModelSpec", "build_model", "load_model", "parameter_count", "sinusoids"]


def build_model(
    spec: ModelSpec,
    vocab_size: int,
    *,
    source_vocab_size: int | None = None,
    shared_vocabulary: bool = False,
) -> PreTrainedModel:
    """Make an untrained model (or load a checkpoint, for `auto`) over `vocab_size` target ids.

    Under `torch.device("meta")` nothing is allocated. Seed torch before the call to fix the weights.

    >>> import torch
    >>> with torch.device("meta"):
    ...     parameter_count(build_model(ModelSpec(layers=1, width=8, heads=2, ffn=16, max_positions=4), 10))
    680
    """
    if spec.kind == "auto":
        return _auto(spec, vocab_size)
    if spec.kind == "transformer-lm":
        return language_model(spec, vocab_size)
    return translation_model(spec, source_vocab_size or vocab_size, vocab_size, shared_vocabulary)


def load_model(path: str | Path) -> PreTrainedModel:
    """Read what `save_pretrained` wrote; sinusoid positions stay fixed in further training."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

    config = AutoConfig.from_pretrained(path)
    auto = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    model = auto.from_pretrained(path)
    if getattr(config, "sinusoid_positions", False):
        freeze_positions(model, model.model.decoder.embed_positions.weight.detach())
    return model


def parameter_count(model: Module) -> int:
    """Number of trainable parameters, tied ones counted once."""
    return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)


def _auto(spec: ModelSpec, vocab_size: int) -> PreTrainedModel:
    path = Path(str(spec.checkpoint))
    if path.is_dir():
        return _checkpoint(path, vocab_size)
    from transformers import AutoConfig, AutoModelForCausalLM

    ids = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}
    values = {**ids, **spec.options, "vocab_size": vocab_size}
    make = AutoConfig.from_pretrained if path.suffix == ".json" else AutoConfig.for_model
    try:
        plain = make(spec.checkpoint)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{spec.checkpoint} is not a checkpoint folder, configuration file or known model type",
            hint="use a folder made by save_pretrained, a config.json, or a type such as gpt2, llama or opt",
        ) from error
    unknown = [option for option in spec.options if not hasattr(plain, option)]
    if unknown:
        raise InputError(f"{spec.checkpoint} has no option {unknown[0]!r}", hint="see model.options")
    try:
        return AutoModelForCausalLM.from_config(make(spec.checkpoint, **values))
    except Exception as error:  # each architecture raises its own
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"{spec.checkpoint} cannot be built: {reason}", hint="see model.options") from error


def _checkpoint(path: Path, vocab_size: int) -> PreTrainedModel:
    try:
        model = load_model(path)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"cannot load the checkpoint {path}: {reason}", hint="use a folder made by save_pretrained"
        ) from error
    size = model.get_output_embeddings().weight.shape[0]
    if size != vocab_size:
        raise VocabularyMismatch(
            f"the checkpoint {path} has {size} ids, the data's vocabulary {vocab_size}",
            hint="prepare the data with the tokenizer of the checkpoint",
        )
    return model
