"""`lidstone.kenlm` beside the kenlm module: `python benchmarks/kenlm_module.py [--quick]`.

A trigram model of WikiText-2 (lmplz where it is on the PATH, else lidstone's own) scores its held-out lines, eight
times over. The kenlm module has its fastest format, probing, where build_binary is on the PATH; ours reads the ARPA
file, and maps the same binary. Methods take turns; medians of processor time are compared, but for all cores, whose
time is that of the clock on the wall.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kenlm as theirs
import numpy as np
from _timing import interleaved, wall_and_cpu, write_results

import lidstone as ld
import lidstone.kenlm as ours
from lidstone.text.reader import read_lines

HYPOTHESES = 10_000
REPEATS = 8
"""How often the held-out lines are scored in one call: 43,000 lines, as pipelines have them."""


def texts(quick: bool) -> dict[str, list[str]]:
    folder = Path(os.environ.get("LIDSTONE_DATA", Path(__file__).parents[2] / "shared" / "data")) / "wikitext-2"
    if not folder.is_dir():
        sys.exit("error: the corpora are not here\nhint: set LIDSTONE_DATA to the folder that holds them")
    parts = {}
    for part in ("train", "valid", "test"):
        lines = (line.replace("<unk>", "UNK_").strip() for line in read_lines(next(folder.glob(f"*{part}*"))))
        parts[part] = [line for line in lines if line][:: 20 if quick else 1]
    return parts


def make_models(train: list[str], folder: Path) -> tuple[Path, Path]:
    """An ARPA file, and what the kenlm module loads."""
    text, arpa, binary = folder / "train.txt", folder / "model.arpa", folder / "model.probing"
    text.write_text("\n".join(train) + "\n", encoding="utf-8")
    if shutil.which("lmplz"):
        with text.open("rb") as source, arpa.open("wb") as target:
            command = ["lmplz", "-o", "3", "-S", "1G", "-T", str(folder)]
            subprocess.run(command, stdin=source, stdout=target, stderr=subprocess.DEVNULL, check=True)
    else:
        ld.write_arpa(ld.ModifiedKneserNey().fit(ld.count_text(text, 3)), arpa)
    if not shutil.which("build_binary"):
        return arpa, arpa
    subprocess.run(["build_binary", "probing", str(arpa), str(binary)], capture_output=True, check=True)
    return arpa, binary


def step_through(module: Any, model: Any, words: list[str]) -> None:
    state, after, score = module.State(), module.State(), model.BaseScore
    model.BeginSentenceWrite(state)
    for word in words:
        score(state, word, after)
        state, after = after, state


def exhaust(model: Any, lines: list[str]) -> None:
    for line in lines:
        for _ in model.full_scores(line):
            pass


def compare(mine: ours.Model, judge: Any, lines: list[str], rounds: int) -> dict[str, Any]:
    """Seconds for all lines, and how many times faster ours is."""
    words = [word for line in lines[:: max(len(lines) // 400, 1)] for word in line.split()]
    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any], int]] = {
        "score": (lambda: [mine.score(x) for x in lines], lambda: [judge.score(x) for x in lines], len(lines)),
        "full_scores": (lambda: exhaust(mine, lines), lambda: exhaust(judge, lines), len(lines)),
        "BaseScore": (
            lambda: step_through(ours, mine, words), lambda: step_through(theirs, judge, words), len(words)
        ),
        "lines, all cores": (lambda: mine.score_lines(lines), lambda: [judge.score(x) for x in lines], len(lines)),
        "lines, one core": (
            lambda: mine.score_lines(lines, threads=1), lambda: [judge.score(x) for x in lines], len(lines)
        ),
    }  # fmt: skip
    figures = {}
    for name, (one, other, calls) in pairs.items():
        clock = "seconds" if name == "lines, all cores" else "cpu_seconds"
        found = wall_and_cpu({"lidstone": one, "kenlm": other}, rounds)
        microseconds = {module: times[clock] * 1e6 / calls for module, times in found.items()}
        ratio = microseconds["kenlm"] / microseconds["lidstone"]
        figures[name] = {"microseconds": microseconds, "ratio": ratio, "calls": calls}
    return figures


def states(table: ld.BackoffTable, lines: list[str], rounds: int) -> dict[str, float]:
    """Microseconds per step of the native state: one word a call, and thousands of hypotheses a call."""
    ids = np.concatenate([table.vocab.encode(line.split()) for line in lines])[: 50 * HYPOTHESES]
    ids = ids[: len(ids) // 50 * 50].reshape(50, -1)
    singles = ids[:, 0].tolist() * 20

    def one_by_one() -> None:
        state = table.start()
        for word in singles:
            _, state = table.advance(state, word)

    def at_once() -> None:
        hypotheses = np.full(ids.shape[1], table.start())
        for column in ids:
            _, hypotheses = table.advance(hypotheses, column)

    found = interleaved({"one": one_by_one, "many": at_once}, rounds)
    return {"one word a call": found["one"] * 1e6 / len(singles), "many words a call": found["many"] * 1e6 / ids.size}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the text, three rounds, nothing kept")
    parser.add_argument("--rounds", type=int, default=11, help="how often everything is repeated (11)")
    args = parser.parse_args()
    rounds, parts = 3 if args.quick else args.rounds, texts(args.quick)
    lines = (parts["valid"] + parts["test"]) * REPEATS
    with tempfile.TemporaryDirectory() as folder:
        arpa, binary = make_models(parts["train"], Path(folder))
        mine, judge = ours.Model(arpa), theirs.Model(str(binary))
        assert mine.score_lines(lines).tolist() == [judge.score(line) for line in lines]  # the same numbers
        figures = compare(mine, judge, lines, rounds)
        if binary != arpa:
            mapped = compare(ours.Model(binary), judge, lines, rounds)
            figures |= {f"{name}, mapped binary": found for name, found in mapped.items()}
        load = {"lidstone": lambda: ours.Model(arpa), "kenlm": lambda: theirs.Model(str(arpa), _quiet())}
        figures["loading the ARPA file"] = {"seconds": interleaved(load, 3)}
        figures["native states, microseconds a step"] = states(mine.table, lines, rounds)
    for name, found in figures.items():
        ratio = f"{found['ratio']:6.2f} x kenlm" if "ratio" in found else ""
        print(f"{name:36s} {ratio:16s} {found.get('microseconds', found)}")
    if not args.quick:
        kept = {"lines": len(lines), "rounds": rounds, "kenlm format": binary.name, **figures}
        print(f"written to {write_results('kenlm_module', kept)}")


def _quiet() -> Any:
    config = theirs.Config()
    config.show_progress, config.arpa_complain = False, theirs.ARPALoadComplain.NONE
    return config


if __name__ == "__main__":
    main()
