"""The perplexity of raw text as a stage of a pipeline: of datasets, of datatrove, of Ray Data.

pip install lidstone 'lidstone[raw]' datasets datatrove 'ray[data]'
python examples/corpus_filter.py datasets

Each stage is a few lines: take those of your pipeline. The model here is made of five sentences; with CCNet's models
give `MODEL` and `RULES` the two files of a language, `de.arpa.bin` and `sentencepiece="de.sp.model"`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import lidstone as ld
from lidstone import kenlm

TEXTS = ["The cat sat on the mat.", "THE DOG SAT ON THE MAT!", "BUY $$$ NOW 99,99 €", "A cat saw the dog — twice."]
RULES = {"normalize": "ccnet"}
MODEL, LIMIT = str(Path(tempfile.gettempdir()) / "corpus_filter.arpa"), 15.0


def with_datasets(texts: list[str]) -> list[str]:
    """`map` over batches, then `filter`."""
    import datasets

    model = kenlm.Model(MODEL)

    def add_perplexity(batch: dict[str, list[str]]) -> dict[str, Any]:
        return {"perplexity": model.perplexities(batch["text"], **RULES)}

    data = datasets.Dataset.from_dict({"text": texts})
    data = data.map(add_perplexity, batched=True, batch_size=10_000)
    return list(data.filter(lambda row: row["perplexity"] <= LIMIT)["text"])


def with_datatrove(texts: list[str]) -> list[str]:
    """A filter block; `Documents` reach it in batches and keep their perplexity as metadata."""
    from datatrove.data import Document
    from datatrove.pipeline.filters.base_filter import BaseFilter

    class PerplexityFilter(BaseFilter):
        name = "perplexity"

        def __init__(self, path: str, limit: float, batch_size: int = 10_000, **rules: str) -> None:
            super().__init__(batch_size=batch_size)
            self.path, self.limit, self.rules = path, limit, rules
            self.model: kenlm.Model | None = None  # opened where the block runs

        def filter_batch(self, batch: list[Document]) -> list[bool | tuple[bool, str]]:
            self.model = self.model or kenlm.Model(self.path)
            found = self.model.perplexities([document.text for document in batch], **self.rules)
            for document, perplexity in zip(batch, found.tolist(), strict=True):
                document.metadata["perplexity"] = perplexity
            return [bool(value <= self.limit) or (False, "perplexity") for value in found]

        def filter(self, document: Document) -> bool | tuple[bool, str]:
            return self.filter_batch([document])[0]

    block = PerplexityFilter(MODEL, LIMIT, **RULES)
    kept: Iterable[Document] = block.run(Document(text, str(i)) for i, text in enumerate(texts))
    return [document.text for document in kept]


def with_ray(texts: list[str]) -> list[str]:
    """`map_batches` with a function; a binary of KenLM is mapped, not read, so each batch may open it."""
    import numpy as np
    import ray

    def add_perplexity(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        model = kenlm.Model(MODEL)
        found = model.perplexities(batch["text"].tolist(), threads=1, **RULES)  # Ray has a worker on each core
        return {**batch, "perplexity": found}

    data = ray.data.from_items([{"text": text} for text in texts])
    data = data.map_batches(add_perplexity, batch_size=10_000)
    return [row["text"] for row in data.filter(lambda row: row["perplexity"] <= LIMIT).take_all()]


STAGES: dict[str, Callable[[list[str]], list[str]]] = {
    "datasets": with_datasets,
    "datatrove": with_datatrove,
    "ray": with_ray,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    lines = [*(line.lower().strip(".!") for line in TEXTS[:2]), "a cat saw the dog", "the dog sat", "the cat saw a mat"]
    vocab = ld.Vocabulary.from_words(sorted({word for line in lines for word in line.split()}))
    table = ld.WittenBell().fit(ld.count([vocab.encode(line.split()) for line in lines], vocab, order=2))
    ld.write_arpa(table, MODEL)
    if args.smoke and args.stage == "ray":  # a cluster of its own; without this Ray takes one that runs already
        import ray

        ray.init(address="local", num_cpus=2, include_dashboard=False)
    for text in STAGES[args.stage](TEXTS):
        print(f"kept: {text}")


if __name__ == "__main__":
    main()
