"""The loss in other processes: forked, spawned, pickled, copied, saved; and one table in memory for all of them."""

from __future__ import annotations

import copy
import io
import multiprocessing
import os
import pickle
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import lidstone as ld
from lidstone.errors import InputError

SIZE = 400


def table(order: int = 3) -> ld.BackoffTable:
    generator = torch.Generator().manual_seed(0)
    text = torch.randint(2, SIZE, (300, 9), generator=generator).tolist()
    return ld.KneserEssenNey(discount=0.6).fit(ld.count(text, ld.Vocabulary(size=SIZE, eos=1), order, append_eos=True))


class Model(nn.Module):
    """A model that holds a loss."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss, self.embedding = loss, nn.Embedding(SIZE, SIZE)

    def value(self) -> float:
        generator = torch.Generator().manual_seed(1)
        logits = torch.randn(4, 32, SIZE, generator=generator).requires_grad_()
        labels = torch.randint(2, SIZE, (4, 32), generator=generator)
        total = self.loss(logits, labels).total
        total.backward()
        return total.item() + logits.grad.abs().sum().item()


@pytest.fixture
def model() -> Model:
    return Model(ld.SmoothedCrossEntropy(table(), gamma=0.3))


@pytest.fixture
def threads() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def wait(pid: int, seconds: float) -> int | None:
    """The status of a child, or None if it hangs; it is ended then."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_after_threads_were_used(model: Model, threads: Any) -> None:
    """The parent's pool and torch's own threads do not exist in the child, which must not wait for them."""
    expected = model.value()
    pid = os.fork()
    if not pid:
        os._exit(0 if abs(model.value() - expected) < 1e-3 else 1)
    assert wait(pid, 30) == 0


class Losses(Dataset):
    """Computes the loss in a worker, as data sets that score or filter their rows do."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> float:
        return self.model.value()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_data_loader_workers(model: Model, threads: Any, method: str) -> None:
    if method not in multiprocessing.get_all_start_methods() or (method == "fork" and not hasattr(os, "fork")):
        pytest.skip(f"no {method} on this system")
    expected = model.value()
    found = list(DataLoader(Losses(model), num_workers=1, multiprocessing_context=method, timeout=120))
    assert [value.item() for value in found] == pytest.approx([expected] * 2, rel=1e-5)


def test_pickle_deepcopy_and_torch_save(model: Model) -> None:
    expected = model.value()
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    others = pickle.loads(pickle.dumps(model)), copy.deepcopy(model), torch.load(buffer, weights_only=False)
    assert [other.value() for other in others] == [expected] * 3


def private_kilobytes(file: Path) -> list[int]:
    """Memory of each mapping of a file that this process has for itself alone."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    starts = [number for number, line in enumerate(lines) if line.endswith(str(file))]
    blocks = [lines[start : start + 25] for start in starts]
    return [int(line.split()[1]) for block in blocks for line in block if line.startswith("Private_Dirty")]


def child(pickled: bytes, file: Path, answers: Any) -> None:
    model = pickle.loads(pickled)
    answers.put((model.value(), private_kilobytes(file)))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_shared_table_is_in_memory_once(model: Model, tmp_path: Path) -> None:
    expected, whole = model.value(), len(pickle.dumps(model.loss))
    file = tmp_path / "table.loss"
    assert model.loss.share(file) is model.loss
    assert model.value() == expected
    pickled = pickle.dumps(model.loss)
    assert len(pickled) < whole / 5
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=child, args=(pickle.dumps(model), file, answers))
    process.start()
    value, private = answers.get(timeout=120)
    process.join(60)
    assert value == pytest.approx(expected, rel=1e-6)
    assert private and set(private) == {0}  # mapped, and no page of it copied
    assert set(private_kilobytes(file)) == {0}


def test_sharing_again_maps_the_same_file(model: Model, tmp_path: Path) -> None:
    expected = model.value()
    model.loss.share(tmp_path / "t")
    written = (tmp_path / "t").stat().st_mtime_ns
    other = Model(ld.SmoothedCrossEntropy(table(), gamma=0.3).share(tmp_path / "t"))
    assert other.value() == expected
    assert (tmp_path / "t").stat().st_mtime_ns == written
    with pytest.raises(InputError, match="holds the tensors of another loss"):
        ld.SmoothedCrossEntropy(table(order=2), gamma=0.3).share(tmp_path / "t")


def test_a_file_that_went_away(model: Model, tmp_path: Path) -> None:
    pickled = pickle.dumps(model.loss.share(tmp_path / "t"))
    (tmp_path / "t").unlink()
    with pytest.raises(InputError, match="cannot map"):
        pickle.loads(pickled)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch's own, inside jvp
@pytest.mark.parametrize("transform", ["grad", "vmap", "jvp"])
def test_torch_func_is_refused(model: Model, transform: str) -> None:
    """jvp would give a derivative of zero in silence, for the gradient is the operator's own."""
    logits, labels = torch.randn(1, 3, SIZE), torch.tensor([[2, 3, 4]])

    def value(z: torch.Tensor) -> torch.Tensor:
        return model.loss(z, labels).total

    reason = "no forward-mode derivative" if transform == "jvp" else r"torch\.func \(grad, vmap, jvp\)"
    with pytest.raises(InputError, match=reason):
        if transform == "jvp":
            torch.func.jvp(value, (logits,), (logits,))
        elif transform == "vmap":
            torch.func.vmap(value)(logits[None])
        else:
            torch.func.grad(value)(logits)
