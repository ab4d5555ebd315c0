"""results/ngrams.json: the n-gram model alone on the text of every study of language models.

    python results/ngrams.py

Modified Kneser-Ney of the training text, order 2 to 5 by all of the validation text; `valid_perplexity` is that of the
sentences that the networks' settings were chosen on. The same ids, test text and denominators as the
networks of the study, through the code that scores every run.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from lidstone.files import write_text
from lidstone.hf.mixture import ngram_nll
from lidstone.lab.corpus.prepare import prepare_corpus
from lidstone.lab.recipe.recipe import Recipe, load_recipe
from lidstone.lab.run.scoring import choose_ngram

HERE = Path(__file__).parent
FILE = HERE / "ngrams.json"
TEXTS = {
    "wikitext2": ("wikitext2.yaml",),
    "wikitext2 0.05": ("wikitext2.yaml", "corpus.fraction=0.05"),
    "wikitext2 0.1": ("wikitext2.yaml", "corpus.fraction=0.1"),
    "wikitext2 0.3": ("wikitext2.yaml", "corpus.fraction=0.3"),
    "tatoeba": ("tatoeba.yaml",),
}


def score(recipe: Recipe) -> dict[str, Any]:
    """The n-gram model of one training text."""
    prepared = prepare_corpus(recipe)
    choice = choose_ngram(prepared, recipe.evaluation.ngram_orders)
    assert choice is not None
    nll = ngram_nll(choice.table, list(prepared.test.target))
    limit = recipe.evaluation.valid_limit
    valid = ngram_nll(choice.table, list(prepared.valid.target)[:limit])
    words = int(prepared.test.words.sum()) + len(prepared.test)
    return {
        "order": choice.order,
        "valid_by_order": {str(order): value for order, value in choice.perplexities.items()},
        "valid_perplexity": math.exp(valid.mean()),
        "perplexity": choice.table.perplexity(prepared.test.target.stream).value,
        "word_perplexity": math.exp(float(nll.sum()) / words),
        "tokens": len(nll),
        "train_sentences": len(prepared.train),
        "vocabulary": prepared.vocab.fingerprint,
        "test": prepared.signature["test"],
    }


def main(names: list[str]) -> None:
    """Score the texts named, or all, and keep the others as they are."""
    kept = json.loads(FILE.read_text()) if FILE.is_file() else {}
    for name in names or TEXTS:
        file, *overrides = TEXTS[name]
        recipe = load_recipe(HERE / file, overrides)
        kept[name] = score(recipe)
        print(f"{name}: {kept[name]['perplexity']:.2f} (order {kept[name]['order']})", flush=True)
        write_text(FILE, json.dumps({name: kept[name] for name in TEXTS if name in kept}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
