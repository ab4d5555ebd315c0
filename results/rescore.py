"""Add the n-gram model and the mixture to finished runs: `python results/rescore.py RUN...`.

A run must still have its `model/` folder, and must be a language model. Its own scores are computed again and must be
the same as those recorded.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

from lidstone.errors import InputError, LidstoneError
from lidstone.lab.corpus.prepare import prepare_corpus
from lidstone.lab.recipe.recipe import load_recipe
from lidstone.lab.run.record import SENTENCES, read_record, write_record
from lidstone.lab.run.saved import load_saved
from lidstone.lab.run.scoring import CorpusScorer

TOLERANCE = 1e-4  # nats per sentence, beyond the four digits that are kept


def rescore(folder: Path) -> str:
    """Add the scores to one run; what was found, in one line."""
    record, recipe = read_record(folder), load_recipe(folder)
    if record is None or recipe.task != "lm":
        raise InputError(f"{folder} is not a finished run of a language model", hint="give folders of such runs")
    prepared, model = prepare_corpus(recipe), load_saved(folder).model
    scores = CorpusScorer(recipe, prepared).test(model)
    kept = json.loads(gzip.decompress((folder / SENTENCES).read_bytes()))
    worst = max(abs(a - b) for a, b in zip(kept["nll"], scores.sentences["nll"], strict=True))
    if worst > TOLERANCE:
        raise InputError(f"the model in {folder} scores a sentence {worst} nats away from its record")
    write_record(folder, {**record, **scores.beside}, {**kept, **scores.sentences, "nll": kept["nll"]})
    return describe({**record, **scores.beside})


def describe(record: dict) -> str:
    """The three test perplexities."""
    ngram, mixture = record["ngram"], record["mixture"]
    return (
        f"{record['id']} {record['name']}: network {record['metrics']['test']['perplexity']:.2f}, "
        f"{ngram['order']}-gram {ngram['test']['perplexity']:.2f}, "
        f"mixture {mixture['test']['perplexity']:.2f} (weight {mixture['weight']:.3f})"
    )


def main(folders: list[str]) -> int:
    """Rescore every run named; 1 if one failed."""
    failed = 0
    for folder in folders:
        try:
            print(rescore(Path(folder)), flush=True)
        except LidstoneError as error:
            print(f"{folder}: {error}", file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
