"""What the first call costs in a fresh environment, where nothing is compiled: `python benchmarks/coldstart.py`.

    --python PATH      an interpreter that has lidstone, instead of a new environment with this checkout
    --rounds 3         every figure is the least of so many processes

Each process has an empty folder for numba's compiled code (cold), or that of the process before it (warm). The model is
a trigram model of WikiText-2. Seconds are by the wall clock, which other programs disturb, and of processors: of the
process that the user waits for, and with those that it lets compile beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _timing import write_results
from kenlm_module import texts

ROOT = Path(__file__).parents[1]
VERB = "from lidstone.cli.main import app; app({arguments!r}.split(), standalone_mode=False)"
MODEL = "import lidstone.kenlm as kenlm; model = kenlm.Model({name!r})"
TASKS = {
    "count": VERB.format(arguments="count train.txt --order 3 --output counts"),
    "fit": VERB.format(arguments="fit counts --output table.safetensors"),
    "score": VERB.format(arguments="score table.safetensors valid.txt"),
    "kenlm.Model, a table": MODEL.format(name="table.safetensors"),
    "kenlm.Model, a table, and score": MODEL.format(name="table.safetensors") + "; model.score('the cat')",
    "kenlm.Model, a probing binary, and score": MODEL.format(name="model.bin") + "; model.score('the cat')",
}
USED = """
import resource, sys
used = [sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print("used", *used, file=sys.stderr)
"""


def new_environment(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", str(ROOT)], check=True)
    return python


def installed_size(python: Path) -> int:
    """Bytes of the packages, without pip and setuptools."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    place = Path(subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip())
    tools = ("pip", "setuptools", "pkg_resources", "_distutils_hack")
    packages = [path for path in place.iterdir() if not path.name.startswith(tools)]
    files = [file for path in packages for file in (path.rglob("*") if path.is_dir() else [path])]
    return sum(file.stat().st_size for file in files if file.is_file())


def measure(python: Path, code: str, folder: Path, cache: Path) -> dict[str, float]:
    own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "NUMBA_CPU_NAME")}
    start = time.perf_counter()
    done = subprocess.run([python, "-c", code + USED], cwd=folder, env={**own, "NUMBA_CACHE_DIR": str(cache)},
                          capture_output=True, text=True, check=True)  # fmt: skip
    seconds = time.perf_counter() - start
    waiting, beside = map(float, done.stderr.splitlines()[-1].split()[1:])
    return {"seconds": seconds, "waiting": waiting, "all": waiting + beside}


def least(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: min(run[name] for run in runs) for name in runs[0]}


def compare(python: Path, folder: Path, rounds: int) -> dict[str, Any]:
    cache, figures = folder / "cache", {}
    for name, code in TASKS.items():
        cold, warm = [], []
        for _ in range(rounds):
            shutil.rmtree(cache, ignore_errors=True)
            cold.append(measure(python, code, folder, cache))
            warm.append(measure(python, code, folder, cache))
        figures[name] = {"cold": least(cold), "warm": least(warm)}
        print(f"{name:42}", json.dumps(figures[name]))
        if name == "fit":
            convert = VERB.format(arguments="convert table.safetensors model.bin")
            measure(python, convert, folder, cache)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, help="an interpreter that has lidstone")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the text, one round, nothing kept")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, load = Path(name), os.getloadavg()[0]
        python = args.python.absolute() if args.python else new_environment(folder / "environment")
        for part, lines in texts(args.quick).items():
            (folder / f"{part}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        figures: dict[str, Any] = {"megabytes": installed_size(python) / 1e6, "load_average_at_start": load}
        print(f"installed: {figures['megabytes']:.0f} MB; load average {load:.1f}")
        figures["rounds"] = 1 if args.quick else args.rounds
        figures["tasks"] = compare(python, folder, figures["rounds"])
        figures["load_average_at_end"] = os.getloadavg()[0]
    if not args.quick:
        print(f"written to {write_results('coldstart', figures)}")


if __name__ == "__main__":
    main()
