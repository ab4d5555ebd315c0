"""Build, load and measure models: the paper's two Transformers, as fairseq has them, and any causal model by name.

The two are Hugging Face's classes; the one difference to fairseq is the dropout on the embeddings of the language
model, which OPT's class does not support. `auto` loads a checkpoint or builds a model from a configuration. Hugging
Face reads what `save_pretrained` writes, without lidstone: the sinusoids are saved as OPT's position weights.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lidstone.errors import FileFormatError, InputError, VocabularyMismatch
from lidstone.lab.corpus.pipeline import load_pretrained, model_folder
from lidstone.lab.recipe.sections import ModelSpec

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module
    from transformers import PreTrainedModel


BOS, PAD, EOS = 0, 1, 2
"""The special ids of lidstone's own vocabularies."""
LAYERS = ("num_hidden_layers", "encoder_layers", "decoder_layers", "num_decoder_layers")


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

    if not any(Path(path).glob("*.safetensors")) and any(Path(path).glob("*.bin")):
        raise FileFormatError(
            f"{path} has pickled weights, which could run code, and no model.safetensors",
            hint="save the model again with save_pretrained of transformers",
        )
    try:
        config = load_pretrained(AutoConfig, path)
        _check_layers(config, Path(path))
        auto = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
        model = load_pretrained(auto, path, use_safetensors=True)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"cannot load the checkpoint {path}: {reason}", hint="use a folder made by save_pretrained"
        ) from error
    if getattr(config, "sinusoid_positions", False):
        freeze_positions(model, model.model.decoder.embed_positions.weight.detach())
    return model


def _check_layers(config: Any, folder: Path) -> None:
    """Refuse a configuration with more layers than its weights have tensors: to build them might not end."""
    from safetensors import safe_open

    tensors = 0
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as weights:
            tensors += len(weights.keys())
    layers = [getattr(config, name, 0) for name in LAYERS]
    if most := max((number for number in layers if isinstance(number, int) and number > tensors > 0), default=0):
        raise FileFormatError(f"{folder} has {most} layers and {tensors} tensors", hint="copy its config.json again")


def parameter_count(model: Module) -> int:
    """Number of trainable parameters, tied ones counted once."""
    return sum(weight.numel() for weight in model.parameters() if weight.requires_grad)


def _auto(spec: ModelSpec, vocab_size: int) -> PreTrainedModel:
    path = Path(str(spec.checkpoint))
    if path.is_dir():
        return _checkpoint(model_folder(path), vocab_size)
    from transformers import AutoConfig, AutoModelForCausalLM

    ids = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}
    values = {**ids, **spec.options, "vocab_size": vocab_size}
    make = partial(load_pretrained, AutoConfig) if path.suffix == ".json" else AutoConfig.for_model
    try:
        plain = make(str(path))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{spec.checkpoint} is not a checkpoint folder, configuration file or known model type",
            hint="use a folder made by save_pretrained, a config.json, or a type such as gpt2, llama or opt",
        ) from error
    unknown = [option for option in spec.options if not hasattr(plain, option)]
    if unknown:
        raise InputError(f"{spec.checkpoint} has no option {unknown[0]!r}", hint="see model.options")
    try:
        return AutoModelForCausalLM.from_config(make(str(path), **values), trust_remote_code=False)
    except Exception as error:  # each architecture raises its own
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"{spec.checkpoint} cannot be built: {reason}", hint="see model.options") from error


def _checkpoint(path: Path, vocab_size: int) -> PreTrainedModel:
    model = load_model(path)
    size = model.get_output_embeddings().weight.shape[0]
    if size != vocab_size:
        raise VocabularyMismatch(
            f"the checkpoint {path} has {size} ids, the data's vocabulary {vocab_size}",
            hint="prepare the data with the tokenizer of the checkpoint",
        )
    return model


def language_model(spec: ModelSpec, vocab_size: int) -> PreTrainedModel:
    """Fairseq's `transformer_lm` as `OPTForCausalLM`: post-norm, relu, tied, sinusoid positions."""
    from transformers import OPTConfig, OPTForCausalLM

    config = OPTConfig(
        vocab_size=vocab_size,
        hidden_size=spec.width,
        word_embed_proj_dim=spec.width,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        ffn_dim=spec.ffn,
        do_layer_norm_before=False,
        sinusoid_positions=True,
        bos_token_id=EOS,  # fairseq starts a sequence with its end-of-sentence id
        **_common(spec),
    )
    model = OPTForCausalLM(config)
    _initialise(model, spec.width)
    # OPT does not multiply embeddings by sqrt(width) as fairseq does: dividing the sinusoids keeps their
    # ratio. Its position table has two unused rows in front.
    freeze_positions(model, sinusoids(spec.max_positions + 2, spec.width) / math.sqrt(spec.width))
    return model


def translation_model(spec: ModelSpec, source_size: int, target_size: int, shared: bool) -> PreTrainedModel:
    """Fairseq's `transformer_iwslt_de_en` as `MarianMTModel`, with one vocabulary or two."""
    from transformers import MarianConfig, MarianMTModel

    if shared and source_size != target_size:
        raise VocabularyMismatch(
            f"a shared vocabulary cannot have {source_size} source and {target_size} target ids",
            hint="build one vocabulary from both sides, or set shared_vocabulary to false",
        )
    config = MarianConfig(
        vocab_size=source_size,
        decoder_vocab_size=target_size,
        share_encoder_decoder_embeddings=shared,
        d_model=spec.width,
        encoder_layers=spec.layers,
        decoder_layers=spec.layers,
        encoder_attention_heads=spec.heads,
        decoder_attention_heads=spec.heads,
        encoder_ffn_dim=spec.ffn,
        decoder_ffn_dim=spec.ffn,
        activation_dropout=0.0,
        scale_embedding=True,
        bos_token_id=BOS,
        decoder_start_token_id=EOS,
        forced_eos_token_id=None,
        **_common(spec),
    )
    model = MarianMTModel(config)
    _initialise(model, spec.width)
    return model


def _common(spec: ModelSpec) -> dict[str, Any]:
    """What the configurations of both networks have."""
    return {
        "dropout": spec.dropout,
        "attention_dropout": spec.attention_dropout,
        "max_position_embeddings": spec.max_positions,
        "tie_word_embeddings": spec.tied,
        "activation_function": "relu",
        "eos_token_id": EOS,
        "pad_token_id": PAD,
    }


def sinusoids(positions: int, width: int) -> Tensor:
    """Fairseq's fixed positions, shape (positions, width): sines in the first half, cosines in the second.

    angle(t, i) = t / 10000^(i / (width/2 - 1))

    >>> [round(value, 4) for value in sinusoids(2, 4)[1].tolist()]   # sin 1, sin 1e-4, cos 1, cos 1e-4
    [0.8415, 0.0001, 0.5403, 1.0]
    """
    import torch

    half = width // 2
    rates = torch.exp(torch.arange(half, dtype=torch.float64) * -(math.log(10000) / max(half - 1, 1)))
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * rates
    waves = torch.cat([angles.sin(), angles.cos(), torch.zeros(positions, width % 2, dtype=torch.float64)], 1)
    return waves.float()


def _initialise(model: PreTrainedModel, width: int) -> None:
    """Draw weights as fairseq does: Xavier for matrices, N(0, 1/width) for embeddings, zero for padding."""
    import torch
    from torch import nn

    outputs = model.get_output_embeddings()
    for module in model.modules():
        if isinstance(module, nn.Linear) and module is not outputs:
            nn.init.xavier_uniform_(module.weight)
        elif isinstance(module, nn.Embedding) and module.weight.requires_grad:
            nn.init.normal_(module.weight, std=width**-0.5)
            if module.padding_idx is not None:
                with torch.no_grad():
                    module.weight[module.padding_idx].zero_()
    if outputs.weight is not model.get_decoder().get_input_embeddings().weight:
        nn.init.normal_(outputs.weight, std=width**-0.5)


def freeze_positions(model: PreTrainedModel, weights: Tensor) -> None:
    """Make OPT's position table a buffer of the same name: saved with the model, never trained."""
    table = model.model.decoder.embed_positions
    device = table.weight.device
    del table._parameters["weight"]
    table.register_buffer("weight", weights.to(device))
