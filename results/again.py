"""Train a run of this folder again and compare the metrics: `python results/again.py results/wikitext2/ID`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from lidstone.lab.recipe.recipe import load_recipe
from lidstone.lab.run.run import train


def main(folder: Path) -> int:
    """0 if every metric is the same to the last digit."""
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    with TemporaryDirectory() as output:
        again = train(load_recipe(folder), output).record
    same = again["id"] == record["id"] and again["metrics"] == record["metrics"]
    print(f"{record['id']}, {record['name']}, seed {record['seed']}: {'the same' if same else 'not the same'}")
    if not same:
        print(f"then {record['metrics']}\nnow  {again['metrics']}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
