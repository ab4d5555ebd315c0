"""Make a teacher: the log-probabilities of networks, mixed with an n-gram model, at every position of a text.

    t(w) = (1 - weight) sum_i weights_i q_i(w | x) + weight p~(w | h),      then t(w)^(1/temperature), normalised

What is stored is its k most probable words, or k words drawn from it: a word that was drawn c times has c/k, and the
mean of these targets over all draws is t. With several tables sentence i meets table i mod K, and with `cross_fit` it
meets network i mod K alone: those that were made without it. The work is cut into shards, which are written one by one,
so that it continues after a kill.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lidstone.errors import FileFormatError, InputError, RunError, VocabularyMismatch
from lidstone.files import try_lock, write_errors
from lidstone.hf.mixture import Mixture
from lidstone.hf.perplexity import evaluating, window_of
from lidstone.hf.stored_teacher import (
    MANIFEST,
    Shard,
    StoredTeacher,
    encode,
    id_type,
    load_teacher,
    read_manifest,
    save_manifest,
)
from lidstone.ngram.formats.checked_tensors import read_arrays
from lidstone.ngram.table import BackoffTable
from lidstone.progress import progress
from lidstone.text.datasets import Ids, length_batches, padded, pieces
from lidstone.text.history import histories_of
from lidstone.text.vocabulary import Vocabulary

ENTRIES = 1 << 22  # in a shard, about: 16 MB
NUMBERS = 1 << 26  # of log-probabilities that are in memory at once, about


class Ensemble(nn.Module):
    """Causal language models over one vocabulary as one: its logits are the logarithm of their mean probability.

    >>> from types import SimpleNamespace as Outputs
    >>> class Fixed(nn.Linear):
    ...     def forward(self, input_ids): return Outputs(logits=self.bias.log()[None, None])
    >>> models = [Fixed(1, 2), Fixed(1, 2)]
    >>> for model, probs in zip(models, ([0.2, 0.8], [0.6, 0.4])): model.bias.data = torch.tensor(probs)
    >>> Ensemble(models)(input_ids=None).logits.exp().mul(10).round().tolist()
    [[[4.0, 6.0]]]
    """

    def __init__(self, models: Sequence[Any], weights: Sequence[float] = ()) -> None:
        super().__init__()
        if not models or (weights and len(weights) != len(models)):
            raise InputError(f"{len(models)} models and {len(weights)} weights", hint="give one weight for each model")
        if weights and not (min(weights) >= 0 and sum(weights) > 0):
            raise InputError(f"the weights of the models are {list(weights)}", hint="give positive numbers")
        self.models = nn.ModuleList(models)
        self.weights = [weight / sum(weights) for weight in weights] or [1 / len(models)] * len(models)
        windows = [window for window in map(window_of, models) if window is not None]
        self.config = SimpleNamespace(trained_window=min(windows, default=None))

    def forward(self, input_ids: Tensor) -> Any:
        """Outputs with `logits` (batch, time, V), which are log-probabilities."""
        total = None
        for model, weight in zip(self.models, self.weights, strict=True):
            logs = torch.log_softmax(model(input_ids=input_ids).logits.float(), -1) + np.log(max(weight, 1e-300))
            total = logs if total is None else torch.logaddexp(total, logs)
        return SimpleNamespace(logits=total)


@dataclass(frozen=True, eq=False)
class TeacherModel:
    """The models behind a teacher, and how they are put together.

    >>> TeacherModel([nn.Identity()], Vocabulary(size=3, eos=0), temperature=2.0).temperature
    2.0
    """

    models: Sequence[Any]
    vocab: Vocabulary
    weights: Sequence[float] = ()
    """of the models; equal by default"""
    tables: Sequence[BackoffTable] = ()
    """none; one; or one for each fold of the sentences"""
    weight: float = 0.0
    """of the tables"""
    temperature: float = 1.0
    cross_fit: bool = False
    """whether sentence i meets model i mod K alone, not the mean of all"""

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1 or not 0 < self.temperature < np.inf:
            values = f"the weight of the n-gram model is {self.weight}, the temperature {self.temperature}"
            raise InputError(values, hint="give a weight from 0 to 1, a temperature above 0")
        if bool(self.tables) != (self.weight > 0):
            raise InputError(
                f"{len(self.tables)} n-gram models have the weight {self.weight}", hint="give both or none"
            )
        if self.cross_fit and (len(self.models) < 2 or self.weights):
            raise InputError("one model per fold needs two models or more, without weights", hint="leave cross_fit out")
        for table in self.tables:
            table.require(self.vocab)
        if self.vocab.eos is None:
            raise InputError("a teacher needs a vocabulary with eos", hint="make the vocabulary with eos=")

    def fit_weight(self, table: BackoffTable, valid: Sequence[Ids]) -> float:
        """The weight of an n-gram model that fits sentences of validation text best, by EM; ids without eos."""
        return Mixture(Ensemble(self.models, self.weights), table).fit(valid).weight

    @property
    def signature(self) -> dict[str, Any]:
        """What determines its probabilities."""
        return {
            "tokenizer": self.vocab.token_fingerprint,
            "vocabulary": self.vocab.fingerprint,
            "size": self.vocab.size,
            "models": [fingerprint_of(model) for model in self.models],
            "weights": list(self.weights),
            "cross_fit": self.cross_fit,
            "tables": [table.signature for table in self.tables],
            "weight": self.weight,
            "temperature": self.temperature,
        }

    def log_rows(self, rows: Sequence[NDArray[np.int64]], numbers: Sequence[int]) -> Iterator[tuple[int, int, Tensor]]:
        """(row, position, log t (positions, V)) for rows of inputs and labels in one; `numbers` are their sentences."""
        window = Ensemble(self.models).config.trained_window
        longest = max(map(len, rows)) - 1
        cuts = [
            (row, *piece)
            for row, ids in enumerate(rows)
            for piece in pieces(len(ids) - 1, window or longest, (window or 0) // 2)
        ]
        tokens = max(1, NUMBERS // self.vocab.size)
        for batch in length_batches([end - start for _, start, _, end in cuts], tokens=tokens):
            chosen = [cuts[number] for number in batch]
            inputs = torch.from_numpy(padded([rows[row][start:end] for row, start, _, end in chosen], self.vocab.eos))
            logs = self._networks(inputs, np.array([numbers[row] for row, *_ in chosen]))
            for at, (row, start, new, end) in enumerate(chosen):
                yield row, new, self._mixed(logs[at, new - start : end - start], rows[row], new, end, numbers[row])

    def _networks(self, inputs: Tensor, numbers: NDArray[np.int64]) -> Tensor:
        """Log-probabilities of the networks, (batch, time, V)."""
        if not self.cross_fit:
            return self._run(Ensemble(self.models, self.weights), inputs)
        found = torch.empty(*inputs.shape, self.vocab.size)
        for fold in np.unique(numbers % len(self.models)):
            rows = torch.from_numpy(np.flatnonzero(numbers % len(self.models) == fold))
            found[rows] = self._run(Ensemble([self.models[fold]]), inputs[rows])
        return found

    def _run(self, model: Ensemble, inputs: Tensor) -> Tensor:
        with evaluating(model):
            logs: Tensor = model(input_ids=inputs.to(next(model.parameters()).device)).logits.cpu()
        if logs.shape[-1] != self.vocab.size:
            raise VocabularyMismatch(
                f"the vocabulary has {self.vocab.size} ids, the model {logs.shape[-1]}",
                hint="make the vocabulary with the model's tokenizer and size",
            )
        if bool(logs.isnan().any()):
            raise InputError("the teacher's log-probabilities hold NaN", hint="check the weights of the model")
        return logs

    def _mixed(self, logs: Tensor, row: NDArray[np.int64], start: int, end: int, number: int) -> Tensor:
        """Log t of the positions from start to end of a row."""
        if self.tables:
            table = self.tables[number % len(self.tables)]
            histories = histories_of(row[max(start - table.order, 0) : end].tolist(), self.vocab, table.order)
            ngram = torch.from_numpy(table.prob(histories[start - end :])).log() + np.log(self.weight)
            rest = np.log1p(-self.weight) if self.weight < 1 else -np.inf
            logs = torch.logaddexp(logs.double() + rest, ngram).float()
        return torch.log_softmax(logs / self.temperature, -1)


def teach(
    models: Sequence[Any] | Any,
    sentences: Sequence[Ids],
    output: str | Path,
    *,
    vocab: Vocabulary,
    top: int = 64,
    sample: bool = False,
    as_rows: bool = False,
    **options: Any,
) -> StoredTeacher:
    """Write what models say at every token and end of sentences of ids, given without eos, into the folder `output`.

    The `top` most probable words are kept; with `sample` so many are drawn. `as_rows` takes the sentences as rows that
    a trainer reads, with whatever they begin and end with; at their first token nothing is said. `options` are the
    fields of `TeacherModel`. What an interrupted call has written is kept.

    >>> import tempfile
    >>> class Uniform(nn.Linear):
    ...     def forward(self, input_ids):
    ...         return SimpleNamespace(logits=torch.zeros(*input_ids.shape, 4))
    >>> folder = Path(tempfile.mkdtemp()) / "teacher"
    >>> teach(Uniform(1, 1), [[1, 2], [3]], folder, vocab=Vocabulary(size=4, eos=0), top=2).k
    2
    """
    model = TeacherModel(models if isinstance(models, (list, tuple)) else [models], vocab, **options)
    if not 1 <= top <= vocab.size:
        raise InputError(f"{top} words of a vocabulary of {vocab.size}", hint=f"keep 1 to {vocab.size} words")
    if not len(sentences):
        raise InputError("there are no sentences to teach", hint="pass a text that is not empty")
    rows = [_row(sentence, vocab, as_rows, number) for number, sentence in enumerate(sentences, start=1)]
    kind = {"k": top, "sample": sample, "as_rows": as_rows}
    signature = {**model.signature, **kind, "text": _digest([row.tobytes() for row in rows]), "sentences": len(rows)}
    folder = Path(output)
    with write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with try_lock(folder, "teacher") as mine:
        if not mine:
            raise RunError(f"another process is writing the teacher {folder}", hint="wait until it has finished")
        _write(folder, signature, lambda numbers, seed: _shard(model, rows, numbers, kind, seed), rows, top)
    return load_teacher(folder, verify=False)


def _write(folder: Path, signature: dict[str, Any], make: Any, rows: Sequence[Ids], top: int) -> None:
    """Write the shards that are missing, then the manifest."""
    signature = json.loads(json.dumps(signature, default=str))
    if (folder / MANIFEST).is_file():
        manifest = read_manifest(folder)
        if manifest["signature"] != signature:
            hint = "give another --output, or delete it"
            raise InputError(f"{folder} has a teacher of other models, text or options", hint=hint)
        if manifest["complete"]:
            return
    save_manifest(folder, signature)
    key, names = _digest([json.dumps(signature, sort_keys=True).encode()]), []
    shards = length_limited([len(row) for row in rows], max(1, ENTRIES // top))
    for number, numbers in enumerate(progress(shards, "teaching")):
        path, mark = folder / f"shard-{number:05}.safetensors", {"signature": key}
        names.append(path.name)
        if not _is_written(path, key):
            make(numbers, zlib.crc32(f"{key} {number}".encode())).save(path, mark)
    save_manifest(folder, signature, names)


def _is_written(shard: Path, key: str) -> bool:
    """Whether a shard is there, sound, and of the teacher with this key."""
    try:
        return shard.is_file() and read_arrays(shard)[1].get("signature") == key
    except FileFormatError:
        return False


def length_limited(lengths: Sequence[int], limit: int) -> list[range]:
    """Cut a sequence into ranges whose lengths sum to at most `limit`, or that have one item.

    >>> length_limited([2, 3, 9, 1], limit=5)
    [range(0, 2), range(2, 3), range(3, 4)]
    """
    found, start, total = [], 0, 0
    for number, length in enumerate(lengths):
        if number > start and total + length > limit:
            found.append(range(start, number))
            start, total = number, 0
        total += length
    return [*found, range(start, len(lengths))]


def _row(sentence: Ids, vocab: Vocabulary, as_rows: bool, number: int) -> NDArray[np.int64]:
    """What the model reads, and the last label."""
    if np.ndim(sentence) != 1 or (as_rows and len(sentence) < 2):
        raise InputError(f"sentence {number} is no row of ids", hint="pass a list of sentences; rows need two ids")
    ids = vocab.check_ids(sentence) if len(sentence) else np.empty(0, np.int64)
    return ids if as_rows else np.concatenate([[vocab.eos], ids, [vocab.eos]])


def _shard(
    model: TeacherModel, rows: Sequence[NDArray[np.int64]], numbers: range, kind: dict[str, Any], seed: int
) -> Shard:
    own = [rows[number] for number in numbers]
    skip = 0 if kind["as_rows"] else 1  # whether the first id is one of the labels
    lengths = np.array([len(row) - skip for row in own], np.int32)
    starts, draw = np.cumsum(lengths) - lengths, torch.Generator().manual_seed(seed)
    ids, logprobs = np.zeros((lengths.sum(), kind["k"]), np.int64), np.full((lengths.sum(), kind["k"]), -np.inf)
    for row, new, logs in model.log_rows(own, numbers):
        at = starts[row] + new + 1 - skip + np.arange(len(logs))
        values, words = _drawn(logs, kind["k"], draw) if kind["sample"] else logs.topk(kind["k"])
        ids[at], logprobs[at] = words.numpy(), values.numpy()
    labels = np.concatenate([row[skip:] for row in own]).astype(np.int32)
    codes = encode(logprobs, logprobs > -np.inf)
    return Shard(ids.astype(id_type(model.vocab.size)), codes, labels, lengths)


def _drawn(logs: Tensor, k: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Log (c/k) of the words that k draws from each row give, c being how often a word was drawn; -inf where unused.

    >>> logs = torch.tensor([[0.0, 1.0]]).log()
    >>> _drawn(logs, 3, torch.Generator())
    (tensor([[0., -inf, -inf]]), tensor([[1, 1, 1]]))
    """
    words = torch.multinomial(logs.exp(), k, replacement=True, generator=draw).sort(-1).values
    first = torch.ones_like(words, dtype=torch.bool)
    first[:, 1:] = words[:, 1:] != words[:, :-1]
    times = torch.zeros(words.shape).scatter_add_(1, first.cumsum(-1) - 1, torch.ones(words.shape))
    own = times.gather(1, first.cumsum(-1) - 1)
    return torch.where(first, (own / k).log(), -torch.inf), words


def fingerprint_of(model: nn.Module) -> str:
    """A hash of all weights."""
    parts = (
        name.encode() + tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        for name, tensor in sorted(model.state_dict().items())
    )
    return _digest(parts)


def _digest(parts: Any) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:16]
