"""The loss on a GPU: bytes moved, what they predict, the resources of the compiled kernels, and, where a GPU is, times.

    python benchmarks/gpu.py [--quick] [--docs]

Without a GPU it counts and compiles. `--docs` writes the tables into docs/gpu.md; `--quick` leaves corpus and compiler
out.
Bytes of torch's own losses are counted operation by operation on the meta device; those of the kernels follow from what
they read and write (see docs/gpu.md).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from _timing import write_results
from torch.utils._python_dispatch import TorchDispatchMode

import lidstone as ld

BANDWIDTH = {"A100": 2.04e12, "H100": 3.35e12, "B200": 8.0e12, "MI300X": 5.3e12}  # bytes a second, by the data sheets
VOCABULARIES, POSITIONS = (32_000, 50_000, 128_000), (8_192, 65_536)
SECTOR = 32  # bytes that a GPU fetches for one number out of its place
DOCS = Path(__file__).parents[1] / "docs" / "gpu.md"


class Traffic(TorchDispatchMode):
    """Adds up the bytes that operations read and write; views cost nothing."""

    VIEWS = (
        "view",
        "expand",
        "detach",
        "unsqueeze",
        "squeeze",
        "select",
        "slice",
        "alias",
        "t.default",
        "empty",
        "as_strided",
    )

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, operation: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        found = operation(*arguments, **(options or {}))
        if not any(word in str(operation) for word in self.VIEWS):
            outputs = found if isinstance(found, tuple) else (found,)
            inputs = () if "nll_loss" in str(operation) else arguments  # it reads the labels' entries alone
            self.bytes += sum(stored(each) for each in (*inputs, *outputs))
        return found


def stored(tensor: Any) -> int:
    """The bytes of a tensor, without what is repeated by a stride of 0."""
    if not isinstance(tensor, torch.Tensor):
        return 0
    sizes = [size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride]
    return int(np.prod(sizes, dtype=np.int64)) * tensor.element_size()


def torch_bytes(size: int, positions: int, label_smoothing: float) -> int:
    """Forward and backward of F.cross_entropy on bfloat16 logits."""
    logits = torch.empty(positions, size, dtype=torch.bfloat16, device="meta", requires_grad=True)
    labels = torch.empty(positions, dtype=torch.int64, device="meta")
    with Traffic() as traffic:
        F.cross_entropy(logits, labels, label_smoothing=label_smoothing).backward()
    return traffic.bytes


def our_bytes(size: int, positions: int, entries: float) -> tuple[int, int]:
    """Of the Triton programs, if gathered logits are in the cache, and if each costs a sector.

    The row is read in forward, read and written in backward. An n-gram's word and value, 4 bytes each, are read twice;
    its logit is read in forward, its gradient read and written in backward. The base stays in the cache.
    """
    rows, lists = 3 * 2 * size * positions, 2 * 8 * entries * positions
    return int(rows + lists), int(rows + lists + 3 * SECTOR * entries * positions)


def roofline(entries: dict[int, float]) -> list[dict[str, Any]]:
    """Bytes of a step by each method, from the n-grams per position of each vocabulary."""
    made = []
    for size in VOCABULARIES:
        for positions in POSITIONS:
            best, worst = our_bytes(size, positions, entries[size])
            methods = {
                "F.cross_entropy": torch_bytes(size, positions, 0.0),
                "label smoothing": torch_bytes(size, positions, 0.1),
                "Liger": 3 * 2 * size * positions,
                "lidstone, cached": best,
                "lidstone, uncached": worst,
            }
            made.append({"V": size, "positions": positions, "bytes": methods})
    return made


def distillation(k: int = 64) -> str:
    """Bytes of a target and of a step of distillation: a dense target, as Liger's losses read it, and k words.

    Dense, a step reads and writes the student's row as plain cross-entropy does, and reads the teacher's twice, all in
    bfloat16. A named word has 8 bytes of id and 4 of value, read twice; its logit is read, and its gradient read and
    written, each in a sector of its own.
    """
    lines = ["| V | positions | dense target | its step | top 64 | their step |", "|---|---|---|---|---|---|"]
    for size in VOCABULARIES:
        for positions in POSITIONS:
            dense, rows, named = 2 * size * positions, 3 * 2 * size * positions, 12 * k * positions
            step = rows + 2 * named + 3 * SECTOR * k * positions
            cells = (f"{value / 1e9:.2f} GB" for value in (dense, rows + 2 * dense, named, step))
            lines.append(f"| {size:,} | {positions:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def roofline_table(rows: list[dict[str, Any]]) -> str:
    names = list(rows[0]["bytes"])
    lines = ["| V | positions | " + " | ".join(names) + " |", "|---|---|" + "---|" * len(names)]
    for row in rows:
        cells = [f"{value / 1e9:.2f} GB, {value / BANDWIDTH['H100'] * 1e3:.2f} ms" for value in row["bytes"].values()]
        lines.append(f"| {row['V']:,} | {row['positions']:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def resource_table(compiled: list[Any]) -> str:
    lines = ["| program | logits | form | sm_80 | sm_90 | sm_100 | gfx942 |", "|---|---|---|---|---|---|---|"]
    groups: dict[tuple[str, str, str], dict[str, str]] = {}
    for each in compiled:
        form = "plain" if not each.order else f"order {each.order}, {each.form}"
        spilled = f" ({each.spilled} B spilled)" if each.spilled else ""
        groups.setdefault((each.program, each.dtype, form), {})[each.target] = f"{each.registers}{spilled}"
    for (program, dtype, form), found in sorted(groups.items()):
        logits = "" if program in ("plan_program", "probabilities_program") else dtype
        lines.append(f"| {program} | {logits} | {form} | " + " | ".join(found.values()) + " |")
    return "\n".join(lines)


def measured(rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds of forward and backward on this GPU; medians, methods interleaved."""
    found = {}
    for size in VOCABULARIES:
        methods = ways(size, POSITIONS[0])
        times: dict[str, list[float]] = {name: [] for name in methods}
        for number in range(rounds + 3):
            for name, run in methods.items():
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                run()
                end.record()
                end.synchronize()
                if number >= 3:
                    times[name].append(start.elapsed_time(end))
        found[str(size)] = {name: float(np.median(each)) for name, each in times.items()}
        print(f"V = {size:,}, {POSITIONS[0]:,} positions (ms):", found[str(size)])
    return found


def ways(size: int, positions: int) -> dict[str, Callable[[], None]]:
    draw = np.random.default_rng(0)
    ids = (draw.zipf(1.3, 400_000) % (size - 1) + 1).astype(np.int32)
    vocab = ld.Vocabulary(size=size, eos=0)
    table = ld.WittenBell().fit(ld.count([ids.tolist()], vocab, order=3))
    loss = ld.SmoothedCrossEntropy(table, gamma=0.1).to("cuda")
    logits = torch.randn(1, positions, size, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    stream = torch.tensor(ids[: positions + 1].astype(np.int64), device="cuda")[None]
    inputs, labels = stream[:, :-1].contiguous(), stream[:, 1:].contiguous()

    def step(value: Callable[[], torch.Tensor]) -> Callable[[], None]:
        def run() -> None:
            logits.grad = None
            value().backward()

        return run

    return {
        "F.cross_entropy": step(lambda: F.cross_entropy(logits[0], labels[0])),
        "label smoothing": step(lambda: F.cross_entropy(logits[0], labels[0], label_smoothing=0.1)),
        "lidstone": step(lambda: loss(logits, labels, inputs).total),
    }


def write_docs(tables: dict[str, str]) -> None:
    text = DOCS.read_text(encoding="utf-8")
    for name, table in tables.items():
        pattern = rf"(<!-- {name} -->\n).*?(\n<!-- end -->)"
        text = re.sub(pattern, lambda found, table=table: f"{found[1]}{table}{found[2]}", text, flags=re.S)
    DOCS.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    if options.docs:
        write_docs({"distillation": distillation()})
    if not options.quick:
        from _gpu_entries import TEXT, entries_by_vocabulary
        from _gpu_targets import compile_all

        lists = entries_by_vocabulary(VOCABULARIES)
        means = {size: lists[str(size)]["orders"]["3"]["mean"] for size in VOCABULARIES}
        figures["ngrams"] = {"text": TEXT, "vocabularies": lists}
        figures["roofline"] = roofline(means)
        compiled = list(compile_all())
        figures["compiled"] = [each._asdict() for each in compiled]
        said = ", ".join(f"{mean:,.0f} at V = {size:,}" for size, mean in means.items())
        tokens = lists[str(VOCABULARIES[0])]["tokens"]
        note = f"\n\nN-grams per position, order 3: {said} ({TEXT}: {tokens:,} tokens)."
        tables = {"roofline": roofline_table(figures["roofline"]) + note, "resources": resource_table(compiled)}
        print(*tables.values(), sep="\n\n")
        if options.docs:
            write_docs(tables)
    if torch.cuda.is_available():
        figures["milliseconds"] = measured(options.rounds)
        figures["gpu"] = torch.cuda.get_device_name()
    else:
        print("No GPU is here: nothing was timed.")
    if not options.quick:
        print("written:", write_results("gpu", figures))


if __name__ == "__main__":
    main()
