"""How `lidstone count` counts (in memory, on disk or on a cluster), and the summary it prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lidstone.cli.console import print_json, print_table, say, signature_line
from lidstone.errors import InputError

if TYPE_CHECKING:
    from lidstone.ngram.counts import Counts
    from lidstone.text.reading.inputs import Input
    from lidstone.text.vocabulary import Vocabulary
    from lidstone.text.words import Blank


class Settings(NamedTuple):
    """The options of the command line, for all kinds of counting."""

    inputs: list[Input]
    order: int
    output: Path
    vocab: Vocabulary | None
    threshold: list[int] | None
    memory: str | None
    temporary: Path | None
    skip_bad: bool
    blank: Blank

    def bytes(self, default: int = 0) -> int:
        """The memory in bytes."""
        from lidstone.ngram.disk.memory import parse_size

        return default if self.memory is None else parse_size(self.memory)

    def readable(self) -> list[Input]:
        """The inputs to count: all, or with --skip-bad those that can be read."""
        from lidstone.text.reading.inputs import readable

        if not self.skip_bad:
            return self.inputs
        return readable(self.inputs, self.vocab, lambda error: say(f"skipped: {error.message}"))


def count_in_memory(settings: Settings) -> dict[str, Any]:
    """Count with everything in memory."""
    from lidstone.ngram.counts import count_text
    from lidstone.ngram.formats.safetensors import save

    inputs = settings.readable()
    sources = [item.open() for item in inputs]
    counts = count_text(
        sources, settings.order, vocab=settings.vocab, thresholds=settings.threshold, blank=settings.blank, show=True
    )
    save(counts, settings.output)
    return {**summary(counts), **_skipped(settings, len(inputs))}


def count_as_run(settings: Settings, run: Path) -> dict[str, Any]:
    """Count text as the network of a run reads it: its tokenization, its merges, its ids."""
    from lidstone.lab.run.saved import load_pipeline
    from lidstone.ngram.counts import count
    from lidstone.ngram.formats.safetensors import save
    from lidstone.text.corpora import read_lines

    pipeline = load_pipeline(run)
    lines = [line for item in settings.inputs for line in read_lines(item.open())]
    ids = [found for found in pipeline.encode(lines) if len(found)]
    if not ids:
        raise InputError("there is nothing to count: no line has a word", hint="pass a text that is not empty")
    counts = count(ids, pipeline.vocabulary, settings.order, thresholds=settings.threshold, append_eos=True)
    save(counts, settings.output)
    return summary(counts)


def count_on_disk(settings: Settings) -> dict[str, Any]:
    """Count on disk, in limited memory."""
    from lidstone.ngram.disk.external import count_to_file

    inputs = settings.readable()
    count_to_file(
        [item.open() for item in inputs],
        settings.order,
        settings.output,
        memory=settings.bytes(),
        vocab=settings.vocab,
        thresholds=settings.threshold,
        temporary=settings.temporary,
        blank=settings.blank,
        show=True,
    )
    return {**summary_of_file(settings.output), **_skipped(settings, len(inputs))}


def count_on_cluster(settings: Settings, engine: str, address: str | None) -> dict[str, Any]:
    """Count on a Ray cluster, into a folder of parts."""
    from lidstone.ngram.cluster.counting import DEFAULT_MEMORY, count_on_ray
    from lidstone.ngram.cluster.parted import count_types
    from lidstone.ray_cluster import connect

    if engine != "ray":
        raise InputError(f"there is no engine {engine!r}", hint="use --engine ray")
    ray = connect(address)
    try:
        parts, counted = count_on_ray(
            settings.inputs,
            settings.order,
            settings.output,
            memory=settings.bytes(DEFAULT_MEMORY),
            vocab=settings.vocab,
            thresholds=settings.threshold,
            skip_bad=settings.skip_bad,
            blank=settings.blank,
            report=say,
        )
    finally:
        ray.shutdown()
    identity = {"thresholds": parts.thresholds} if any(parts.thresholds) else {}
    facts = _facts(parts.vocab, parts.unigrams, count_types(parts), identity)
    return {**facts, **_skipped(settings, counted)}


def summary(counts: Counts, fingerprint: str | None = None) -> dict[str, Any]:
    """Sizes and signature of counts."""
    levels = counts.trie.levels
    sizes = [int(levels[k] - levels[k - 1]) for k in range(2, counts.order + 1)]
    identity = {"thresholds": counts.thresholds or None, "counts": fingerprint or counts.fingerprint}
    return _facts(counts.vocab, counts.counts, sizes, identity)


def summary_of_file(path: Path) -> dict[str, Any]:
    """Sizes and signature of a count file, without reading it into memory."""
    from lidstone.ngram.disk.output.identity import file_fingerprint
    from lidstone.ngram.formats.safetensors import load_counts

    return summary(load_counts(path, verify=False), file_fingerprint(path))


def print_summary(facts: dict[str, Any], as_json: bool) -> None:
    """Print sizes and signature."""
    if as_json:
        print_json(facts)
        return
    print(f"{facts['tokens']:,} tokens in {facts['sentences']:,} sentences, vocabulary {facts['vocabulary']:,}")
    print_table(
        ["order", "distinct n-grams"],
        [[str(order), f"{types:,}"] for order, types in enumerate(facts["ngrams"], start=1)],
    )
    print(facts["signature"])


def _facts(vocab: Vocabulary, unigrams: Any, sizes: Sequence[int], identity: dict[str, Any]) -> dict[str, Any]:
    from lidstone import __version__

    tokens = int(unigrams[: vocab.size].sum())
    made_from = {"order": len(sizes) + 1, "vocab": vocab.event_count, "tokens": tokens}
    return {
        "tokens": tokens,
        "sentences": int(unigrams[vocab.bos]),
        "vocabulary": vocab.event_count,
        "ngrams": [int((unigrams[: vocab.size] > 0).sum()), *sizes],
        "signature": signature_line({**made_from, **identity, "lidstone": __version__}),
    }


def _skipped(settings: Settings, counted: int) -> dict[str, int]:
    return {"skipped": len(settings.inputs) - counted} if settings.skip_bad else {}
