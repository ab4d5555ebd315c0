"""What the loss needs of a table: its arrays as tensors that follow the model's device and nothing else.

They are no buffers, for what torch does with buffers is wrong for a table: DistributedDataParallel would send them
around at every step, AveragedModel would average them, `.half()` would round them, `to_empty()` would lose them, and a
copy of the model would copy them. Here a copy shares them, and a module that was moved to the meta device has them
again when it comes back. `share` puts them into a file that the processes of a machine map into memory together.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lidstone.errors import InputError
from lidstone.files import atomic_write
from lidstone.loss.checks import Empirical
from lidstone.loss.kernels.protocol import (
    Coefficients,
    PlannedBatch,
    TableFacts,
    TableTensors,
    kernel_name,
    kernels_for,
)
from lidstone.loss.split import SignedSplit, signed_split, slot_shifts, whole_ngrams
from lidstone.ngram.counts import Counts
from lidstone.ngram.formats.checked_tensors import is_mapped
from lidstone.ngram.table import BackoffTable
from lidstone.ngram.trie import Trie
from lidstone.text.history import history_tokens


class ConstantTensors(nn.Module):
    """A module with constant tensors, each an attribute.

    >>> module = ConstantTensors()
    >>> module._keep("numbers", np.arange(3), torch.float32)
    >>> module.half().numbers
    tensor([0., 1., 2.])
    >>> list(module.buffers()), module.to("meta").to_empty(device="cpu").numbers
    ([], tensor([0., 1., 2.]))
    """

    def __init__(self) -> None:
        super().__init__()
        self._constants: tuple[str, ...] = ()
        self._before_meta: dict[str, Tensor] = {}
        self._file: Path | None = None

    def _keep(self, name: str, array: np.ndarray, dtype: torch.dtype, *, copy: bool = True) -> None:
        """Make an array a constant tensor, on the CPU even under `torch.device("meta")`.

        copy=False shares the memory of an array that has the right type.
        """
        given = torch.from_numpy(np.require(array, requirements=["C", "W"]))
        setattr(self, name, given.to(dtype, copy=copy and given.dtype == dtype))
        self._constants = (*dict.fromkeys((*self._constants, name)),)

    def constants(self) -> dict[str, Tensor]:
        """All constant tensors by name."""
        return {name: getattr(self, name) for name in self._constants}

    @property
    def resident_bytes(self) -> int:
        """Memory of all tensors."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.constants().values())

    def share(self, path: str | Path) -> None:
        """Map the tensors from a file, which is written if it is not there: processes then have them in common.

        Pickles of the module hold the file's name in place of the tensors.
        """
        file, tensors = Path(path).absolute(), {name: tensor.cpu() for name, tensor in self.constants().items()}
        identity = _identity(tensors)
        if not file.exists():
            _write(file, tensors, identity)
        for name, tensor in _mapped(file, identity).items():
            setattr(self, name, tensor.to(getattr(self, name).device))
        self._file, self._identity = file, identity

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: without the tensors where a file has them."""
        mapped = self._constants if self._file is not None else ()
        return {name: value for name, value in self.__dict__.items() if name not in mapped}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Undo `__getstate__`; the tensors of a file are on the CPU then."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if self._file is not None:
            self.__dict__.update(_mapped(self._file, self._identity))

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Follow the module to another device; whatever else `fn` does to tensors is left out."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if not self._constants:
            return self
        now = getattr(self, self._constants[0]).device
        device = fn(torch.empty(0, device=now)).device
        if device.type == "meta" and now.type != "meta":
            self._before_meta = self.constants()
        source = self._before_meta if now.type == "meta" else self.constants()
        for name, tensor in source.items():
            setattr(self, name, tensor.to(device))
        if device.type != "meta":
            self._before_meta = {}
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A module of its own that shares the tensors."""
        copied = self.__class__.__new__(self.__class__)
        memo[id(self)] = copied
        for name, value in self.__dict__.items():
            copied.__dict__[name] = value.copy() if isinstance(value, dict) else value
        return copied


class Columns(NamedTuple):
    """The words whose logits are here, `start..stop-1`, and the name of the process group that has the others."""

    start: int
    stop: int
    group: str


class Targets(ConstantTensors):
    """A table as tensors that move with `.to` and are never part of a checkpoint.

    Class weights `weight`, one per word, multiply every value. With `columns` the n-grams of the top order and the base
    are kept only for these words; all other n-grams may be histories, and stay, with values of 0.
    """

    base: Tensor
    dense_minus: Tensor
    predicted: Tensor
    strengths: Tensor
    zs: Tensor
    first: Tensor
    words: Tensor
    suffixes: Tensor
    rows: Tensor
    backoffs: Tensor

    def __init__(
        self,
        table: BackoffTable,
        counts: Counts | None,
        empirical: Empirical,
        weight: NDArray[np.float64] | None = None,
        columns: Columns | None = None,
    ) -> None:
        super().__init__()
        self.empirical: Empirical = empirical
        self.signature = table.signature
        parts = signed_split(table, counts) if empirical == "ngram" and counts is not None else None
        table = table if parts is None else parts.table
        if table.trie.size > torch.iinfo(torch.int32).max:
            raise InputError(
                f"the loss takes tables of at most {torch.iinfo(torch.int32).max:,} n-grams, not {table.trie.size:,}",
                hint="prune the table, or count with thresholds or a lower order",
            )
        self.order, self.vocab = table.order, table.vocab
        start, stop, group = columns or (0, table.vocab.size, "")
        dense = weight is not None or columns is not None
        self.facts = TableFacts(self.order, empirical == "ngram", search_steps(table.trie), start, dense, group)
        part = _Part(slice(start, stop), _factors(table.vocab.size, weight, columns), table.trie)
        self._keep_table(table, part, with_top=parts is None)
        self._keep_split(table, parts, part)
        self._keep("weight", np.empty(0) if weight is None else weight, torch.float32)
        self.strengths, self._strengths = torch.zeros(2, device="cpu"), (0.0, 0.0)

    def _keep_table(self, table: BackoffTable, part: _Part, with_top: bool) -> None:
        trie, mapped = table.trie, with_top and part.factors is None and stands_in_a_file(table)
        self._keep("first", part.places(trie.first), torch.int32, copy=not mapped)
        self._keep("words", part.kept(trie.words), torch.int32, copy=not mapped)
        # in ngram form the rows of the top order are replaced by `plus`, so they are not kept
        end = trie.size if with_top else trie.num_histories
        rows = part.kept(part.scaled(table.rows[:end], slice(0, end)), slice(0, end))
        self._keep(
            "suffixes", trie.suffixes if mapped else trie.suffixes[: trie.num_histories], torch.int32, copy=False
        )
        self._keep("rows", rows, torch.float32, copy=False)
        self._keep("backoffs", table.backoffs, torch.float32, copy=False)
        if not mapped:
            self._add_ends()
        self._keep("tokens", history_tokens(table.vocab), torch.int32)
        self._keep("predicted", predicted_words(table), torch.bool)

    def _add_ends(self) -> None:
        """Add the values of node -1, "no history", which the loops of the CPU do not read: this copies the tensors."""
        self.suffixes = nn.functional.pad(self.suffixes[: len(self.backoffs)], (0, 1), value=-1)
        self.rows, self.backoffs = (
            nn.functional.pad(tensor, (0, 1), value=value) for tensor, value in ((self.rows, 0.0), (self.backoffs, 1.0))
        )

    def _keep_split(self, table: BackoffTable, parts: SignedSplit | None, part: _Part) -> None:
        none: NDArray[Any] = np.empty(0)
        base, dense_minus, plus, minus, masses, levels, shifts = table.base, none, none, none, none, none, none
        if (
            parts is not None and self.order == 1
        ):  # then Z p+ and Z p- are dense, and the one history, node -1, is whole
            base, dense_minus = parts.plus, part.column(parts.minus)
            masses = torch.from_numpy(parts.minus).float().sum()[None].numpy()
        elif parts is not None:
            nodes = whole_ngrams(table.trie)
            plus, minus = (part.kept(part.scaled(values, nodes), nodes) for values in (parts.plus, parts.minus))
            masses = np.append(history_masses(parts), -1.0)
            levels, shifts = table.trie.levels[:-1], np.array(slot_shifts(table.trie))
        self._keep("base", part.column(base), torch.float32)
        for name, values in (("dense_minus", dense_minus), ("plus", plus), ("minus", minus), ("zs", masses)):
            self._keep(name, values, torch.float32)
        self._keep("levels", levels, torch.int64)
        self._keep("shifts", shifts, torch.int64)

    def set_strengths(self, plus: float, minus: float) -> None:
        """Set gamma_plus, and gamma_minus with its sign, without waiting for the device."""
        if (plus, minus) != self._strengths:
            self._strengths = (plus, minus)
            self.strengths = torch.cat([torch.full((1,), value, device=self.device) for value in (plus, minus)])

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Follow the module to another device; the strengths too."""
        super()._apply(fn, recurse)
        plus, minus = self._strengths
        self._strengths = (math.nan, math.nan)
        self.set_strengths(plus, minus)
        return self

    def histories(self, contexts: Tensor) -> tuple[Tensor, Tensor]:
        """Node and slot shift of each history, (positions,); contexts (batch, time) hold the token before each."""
        none = torch.zeros_like(contexts).reshape(-1)
        batch = PlannedBatch(none, none, table=self.table, facts=self.facts)
        found = kernels_for(contexts.device, self.facts).plan(contexts, batch)
        return found.states, found.shifts if len(found.shifts) else torch.full_like(found.states, -1)

    def add_sparse_rows(self, total: Tensor, states: Tensor, shifts: Tensor, scale: Tensor) -> None:
        """Add scale (positions,) times the sparse part of p~(.|state) to float32 numbers (positions, V), in place."""
        plan = Coefficients(states, shifts, states >= 0, scale, scale)
        batch = PlannedBatch(states, scale, plan, None, self.table, self.facts)
        kernels_for(total.device, self.facts).scatter(total, batch, -scale, torch.zeros_like(scale))

    @property
    def table(self) -> TableTensors:
        """The tensors, as the operators take them."""
        if len(self.backoffs) < len(self.first) and kernel_name(self.device) != "cpu":
            self._add_ends()
        return TableTensors(*(getattr(self, name) for name in TableTensors._fields))

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.base.device


def table_of_base(base: Tensor) -> TableTensors:
    """A table of order 1 as tensors: one distribution (V,) after every history."""
    ids, values = base.new_empty(0, dtype=torch.int32), base.new_empty(0)
    tensors = dict.fromkeys(("first", "words", "suffixes", "tokens"), ids)
    tensors |= dict.fromkeys(("rows", "plus", "minus", "dense_minus", "zs", "strengths", "weight"), values)
    tensors |= dict.fromkeys(("levels", "shifts"), ids.long())
    return TableTensors(**tensors, base=base, backoffs=base.new_ones(1), predicted=base > 0)


def history_entropies(table: BackoffTable) -> NDArray[np.float64]:
    """The entropy of p~(.|h) for every node that can be a history, and at the end for the empty one, in nats.

    Words that are not listed after h have b p~(w|h'), b being the backoff, so their part follows from that of h':

        E(h) = sum_listed e(p~(w|h)) + b (E(h') - sum_listed e(p~(w|h'))) + e(b) (1 - sum_listed p~(w|h')),

    where e(p) = - p log p.
    """
    trie, probs = table.trie, table.ngram_probs
    found = np.zeros(trie.num_histories + 1)
    found[-1] = _entropy(table.base).sum()
    for length in range(1, table.order):
        histories, listed = trie.level(length), trie.level(length + 1)
        bounds = trie.first[histories.start : histories.stop + 1] - listed.start
        lower, backoffs = probs[trie.suffixes[listed]], np.asarray(table.backoffs[histories], np.float64)
        own, shorter, mass = _sums((_entropy(probs[listed]), _entropy(lower), lower), bounds)
        above = found[trie.suffixes[histories]]
        found[histories] = own + backoffs * (above - shorter) + _entropy(backoffs) * (1 - mass)
    return found


def _sums(columns: Iterable[NDArray[Any]], bounds: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
    """Of each column, the sums of its parts between these bounds."""
    for values in columns:
        yield np.diff(np.append(0.0, np.cumsum(values))[bounds])


def _entropy(values: NDArray[Any]) -> NDArray[np.float64]:
    """- p log p of each p."""
    probs = np.asarray(values, np.float64)
    return -probs * np.log(np.where(probs > 0, probs, 1.0))


class _Part(NamedTuple):
    """Some columns of a table, times class weights."""

    columns: slice
    factors: NDArray[np.float64] | None
    """of each word, 0 where it is not one of the columns; (V + 1,); None: the whole table as it is"""
    trie: Trie

    def scaled(self, values: NDArray[Any], nodes: Any) -> NDArray[Any]:
        """Values of these nodes times the factors of their words."""
        return values if self.factors is None else values * self.factors[self.trie.words[nodes]]

    def column(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values of all words (V,) for the columns."""
        return values if self.factors is None else (values * self.factors[:-1])[self.columns]

    def kept(self, values: NDArray[Any], nodes: Any = slice(None)) -> NDArray[Any]:
        """Values of these nodes without those of the n-grams that are left out."""
        return values if self._all else values[self._keep[nodes]]

    def places(self, first: NDArray[Any]) -> NDArray[Any]:
        """Where nodes stand among those that are kept."""
        return first if self._all else np.append(0, np.cumsum(self._keep))[first]

    @property
    def _all(self) -> bool:
        return self.columns == slice(0, self.trie.vocab_size) or self.trie.order == 1

    @property
    def _keep(self) -> NDArray[np.bool_]:
        """All that can be histories, and of the top order the n-grams that end in one of the columns."""
        inside: NDArray[np.bool_] = (self.trie.words >= self.columns.start) & (self.trie.words < self.columns.stop)
        inside[: self.trie.num_histories] = True
        return inside


def _factors(size: int, weight: NDArray[np.float64] | None, columns: Columns | None) -> NDArray[np.float64] | None:
    if weight is None and columns is None:
        return None
    factors = np.append(np.ones(size) if weight is None else weight, 0.0)
    if columns is not None:
        factors[: columns.start], factors[columns.stop :] = 0.0, 0.0
    return factors


def stands_in_a_file(table: BackoffTable) -> bool:
    """Whether the arrays of a table are parts of a mapped file that the loss can use as they are: plain float32."""
    plain = table.codes is None and table.trie.packed is None and table.trie.node_type == np.int32
    return plain and table.rows.dtype == table.backoffs.dtype == np.float32 and is_mapped(table.rows)


def search_steps(trie: Trie) -> int:
    """How many halvings find a word among the children of any node; single words have the most children."""
    return max(int(np.diff(trie.first[: trie.levels[1] + 1]).max(initial=0)), 1).bit_length()


def predicted_words(table: BackoffTable) -> np.ndarray:
    """Which words the table predicts at all; (V,) bool.

    Not those of probability 0, nor those that the text of the n-grams never had: no n-gram holds them, and each is less
    probable than any word that some n-gram holds. Where n-grams were dropped, that would be true of words of the text.
    """
    trie = table.trie
    if not holds_all_ngrams(table.signature):
        return table.base > 0
    held = trie.words[trie.level(2)] if table.order > 1 else trie.words[:0]  # longer n-grams end in no other words
    least = table.base[held].min(initial=np.inf) if len(held) else 0.0
    known = (table.base > 0) & (table.base >= least)
    known[held] = table.base[held] > 0
    return known


def holds_all_ngrams(signature: Mapping[str, Any]) -> bool:
    """Whether a table has every n-gram of its text: it was fitted to counts, without thresholds, and is not pruned."""
    if "parts" in signature:
        return all(map(holds_all_ngrams, signature["parts"]))
    return "counts" in signature and not any(signature.get("thresholds") or ()) and "pruned" not in signature


def history_masses(parts: SignedSplit) -> np.ndarray:
    """Z of each node that can be a history; -1 for one that is not whole or that the text never continues."""
    trie = parts.table.trie
    masses = np.full(trie.num_histories, -1.0)
    for histories, shift in zip(trie.whole_histories(), slot_shifts(trie)[1:], strict=True):
        bounds = trie.first[histories.start : histories.stop + 1] - shift
        minus, empirical = _sums((parts.minus, parts.empirical), bounds)
        masses[histories] = np.where(empirical > 0.5, np.maximum(minus, 0.0), -1.0)
    return masses


def shift_right(tensor: Tensor, fill: float) -> Tensor:
    """Each position gets its left neighbour's value; (batch, time)."""
    return nn.functional.pad(tensor, (1, 0), value=fill)[:, :-1]


def _identity(tensors: dict[str, Tensor]) -> str:
    """16 hex digits that tell sets of tensors apart."""
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in sorted(tensors.items()):
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def _write(file: Path, tensors: dict[str, Tensor], identity: str) -> None:
    from safetensors.torch import save_file

    with atomic_write(file) as temporary:
        save_file(tensors, temporary, {"format": "lidstone-loss", "identity": identity})


def _mapped(file: Path, identity: str) -> dict[str, Tensor]:
    """The tensors of a file, as views of its pages."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "pt") as opened:
            if (opened.metadata() or {}).get("identity") == identity:
                return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"cannot map {file}: {error}", hint="call share again with a path that all processes see"
        ) from error
    raise InputError(f"{file} holds the tensors of another loss", hint="remove it, or share under another name")
