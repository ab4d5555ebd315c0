"""results/blimp.json: minimal pairs (BLiMP) under the networks of a study, its n-gram model and their mixtures.

    python results/blimp.py BLIMP.jsonl RUN...

Runs need their `model/` folder and their corpus. What was measured before is kept.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lidstone.files import write_text
from lidstone.lab.run.saved import load_saved
from lidstone.lab.run.use import evaluate_pairs, make_mixture, own_ngram

FILE = Path(__file__).parent / "blimp.json"


def main(pairs: str, runs: list[str]) -> None:
    """Measure every run named."""
    kept = json.loads(FILE.read_text()) if FILE.is_file() else {}
    for run in runs:
        record = json.loads((Path(run) / "run.json").read_text())
        saved, (table, weight) = load_saved(run, task="lm"), own_ngram(run)
        found = evaluate_pairs(saved, pairs, make_mixture(saved, table, weight))
        kept[record["id"]] = {"name": record["name"], "seed": record["seed"], **found}
        shown = [found["accuracy"], found["ngram"]["accuracy"], found["mixture"]["accuracy"]]
        print(record["id"], record["name"], *(f"{100 * value:.2f}" for value in shown), flush=True)
        write_text(FILE, json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
