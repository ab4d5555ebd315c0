"""The tables of docs/benchmarks.md and docs/scale.md, from the newest figures of each benchmark.

    python benchmarks/tables.py            # write them; --check says which are not those of the newest figures

A table stands between `<!-- name -->` and `<!-- end of name -->`. Sentences are written by people.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import compact
import cores
import scale
from _timing import newest, newest_run, put_between

DOCS = Path(__file__).parents[1] / "docs"
ORDERS = (2, 3, 5)
ESTIMATORS = {
    "lidstone": "lidstone",
    "lmplz": "lmplz",
    "counter": "`collections.Counter`, counting alone",
    "nltk, extrapolated from 1000 lines": "NLTK, extrapolated from 1,000 lines",
    "lmplz, recorded elsewhere": "lmplz, *recorded* on another machine of this kind",
}
LOSSES = {
    "F.cross_entropy": ("`F.cross_entropy`", ""),
    "F.cross_entropy(label_smoothing)": ("`F.cross_entropy(label_smoothing)`", ""),
    "transformers LabelSmoother": ("transformers' `LabelSmoother`", ""),
    "ours, order 2, exact/token": ("bigrams, exact/token", "1.05"),
    "ours, order 2, published/ngram": ("bigrams, published/ngram", "1.05"),
    "ours, order 2, linear": ("bigrams, linear", ""),
    "ours, order 3, exact/token": ("trigrams, exact/token", "1.15"),
    "ours, order 3, published/ngram": ("trigrams, published/ngram", "1.15"),
    "ours, order 3, linear": ("trigrams, linear", ""),
    "dense V x V, order 2": ("dense V x V rows, as in the paper", ""),
}


COLD_AIMS = {
    "count": "4 s",
    "score": "3 s",
    "kenlm.Model, a table": "3 s",
    "kenlm.Model, a table, and score": "3 s",
    "kenlm.Model, a probing binary, and score": "3 s",
}


def short(value: float | None) -> str:
    """About three digits; nothing where nothing was measured."""
    if value is None:
        return ""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """A Markdown table whose first columns are text and whose others are numbers."""
    line = "|---" * texts + "|---:" * (len(head) - texts) + "|"
    return "\n".join([f"| {' | '.join(head)} |", line, *(f"| {' | '.join(row)} |" for row in rows)])


def estimation() -> str:
    """Processor seconds from text to model, and how many times as long lmplz takes."""
    found, rows = newest("ngram")["estimation"], []
    for corpus in ("wikitext-2", "all corpora"):
        runs = [found[f"{corpus}, order {order}"] for order in ORDERS]
        seconds = {name: [run.get(name, {}).get("cpu_seconds") for run in runs] for name in ESTIMATORS}
        for name, values in seconds.items():
            if any(values):
                rows.append([f"{corpus}: {ESTIMATORS[name]}", *map(short, values)])
            if name == "lmplz":
                ratios = [other / ours for other, ours in zip(values, seconds["lidstone"], strict=True)]
                rows.append([f"{corpus}: **ratio**", *(f"**{ratio:.1f}**" for ratio in ratios)])
    return table(["", *(f"order {order}" for order in ORDERS)], rows)


def ngrams() -> str:
    """Scoring, rows, loading and the start of the program."""
    found = newest("ngram")
    loading = found["loading"]

    def rate(name: str) -> str:
        return " / ".join(f"{found['scoring'][f'order {n}'][name]['tokens_per_second'] / 1e6:.1f} M" for n in (3, 5))

    rows = [
        ["scoring ids, order 3 / 5, two threads, tokens per second", rate("lidstone, ids"), "5 M"],
        ["scoring text, order 3 / 5", rate("lidstone, from text"), ""],
        ["the kenlm module, `score`, order 3 / 5", rate("kenlm module, model.score"), ""],
        ["the kenlm module, `full_scores`, order 3 / 5", rate("kenlm module, model.full_scores"), ""],
        ["a full row p(.\\|h), V = 160,000, order 3, median / 95 %",
         " / ".join(short(one["milliseconds"]) for one in found["rows"].values()) + " ms", "0.3 ms"],
        [f"loading {loading['gigabytes']:.2f} GB, verified / unverified",
         " / ".join(short(loading[way]["seconds"]) for way in ("verified", "unverified")) + " s", "1 s"],
        ["`lidstone --help`", f"{found['help']['lidstone --help']['seconds']:.2f} s", "0.15 s"],
    ]  # fmt: skip
    return table(["", "", "aim"], rows)


def memory() -> str:
    """Bytes per distinct n-gram while a table is made."""
    found, rows = newest("ngram")["memory"], []
    for corpus in ("wikitext-2", "all corpora"):
        runs = [found[f"{corpus}, order {order}"] for order in ORDERS]
        label = f"{corpus} ({runs[0]['tokens'] / 1e6:.1f} M tokens)"
        rows.append([label, *(f"{run['bytes_per_ngram_beside_ids']:.0f}" for run in runs)])
    return table(["", *(f"order {order}" for order in ORDERS)], rows)


def losses() -> str:
    """Seconds of each loss over those of label smoothing."""
    runs = {run["positions"]: run["seconds"] for run in newest("loss")["projection_and_loss"] if run["threads"] == 2}
    rows = []
    for name, (label, aim) in LOSSES.items():
        ratios = [one.get(name, 0) / one["F.cross_entropy(label_smoothing)"] or None for one in runs.values()]
        rows.append([label, *map(short, ratios), aim])
    return table(["", *(f"{positions:,} positions, 2 threads" for positions in runs), "aim"], rows)


def training() -> str:
    """The network of a recipe, with and without the regularizer, and beside a bare loop."""
    found = newest("training")
    steps, beam, preparation = found["steps"], found["beam"]["sentences_per_cpu_second"], found["preparation"]
    rows = [
        ["tokens per second, regularized / plain, short trainings alternately", short(steps["regularised_over_plain"]),
         "0.97"],
        ["the same, neighbouring updates of one training", short(found["alternating"]["regularised_over_plain"]),
         "0.97"],
        ["time of the pipeline / a bare PyTorch loop with `CrossEntropyLoss`", short(steps["pipeline_over_bare_loop"]),
         "1.05"],
        [f"preparing WikiText-2: reading, learning {preparation['merges']:,} merges, encoding",
         f"{preparation['first']['seconds']:.0f} s", "20 s"],
        ["the same from the cache", f"{preparation['again']['seconds']:.1f} s", ""],
        ["beam search of width 5, a batch of 48 sentences / one by one, sentences per second",
         f"{beam['batched']:.0f} / {beam['one by one']:.1f}", ""],
    ]  # fmt: skip
    return table(["", "", "aim"], rows)


def sweeps() -> str:
    """What a cell costs, and what two jobs gain."""
    found = newest("sweep")
    cost, gain = found["overhead_seconds_per_cell"], found["speedup_of_two_jobs"]
    rows = [
        ["what a cell costs beyond its training, grid / search",
         f"{1000 * cost['grid']:.0f} / {1000 * cost['tpe']:.0f} ms", "1 s"],
        ["two jobs with one thread each, over one after the other with one thread", short(gain["over one core"]),
         "1.6"],
        ["two jobs with one thread each, over one after the other with two threads", short(gain["over all cores"]), ""],
    ]  # fmt: skip
    return table(["", "", "aim"], rows)


def single() -> str:
    """Calls of the kenlm module's methods, one after the other, beside those of the compiled module."""
    found = newest("kenlm_module")

    def ratio(name: str) -> str:
        return f"{found[name]['ratio']:.1f}"

    rows = [
        [f"`{name}`", *(f"{found[name]['microseconds'][module]:.2f} \u00b5s" for module in ("kenlm", "lidstone")),
         ratio(name), ratio(f"{name}, mapped binary"), aim]
        for name, aim in (("BaseScore", "1"), ("full_scores", "1.5"), ("score", "3"))
    ]  # fmt: skip
    return table(["", "kenlm", "lidstone", "**times as fast**", "with the binary mapped", "aim"], rows)


def cold() -> str:
    """First and later calls of fresh processes in a new environment."""
    found, rows = newest("coldstart"), []
    for name, times in found["tasks"].items():
        first, later = times["cold"], times["warm"]
        beside = first["all"] - first["waiting"]
        cells = [first["waiting"], beside if beside > 0.05 else None, first["seconds"], later["all"], later["seconds"]]
        rows.append([f"`{name}`" if " " not in name else name, *map(short, cells), COLD_AIMS.get(name, "")])
    head = ["", "first call", "and beside it", "on the wall", "later calls", "on the wall", "aim"]
    return table(head, rows)


def raw_text() -> str:
    """Filtering raw text by perplexity, beside datatrove."""
    found, rows = newest("raw"), []
    for kind in ("probing", "trie"):
        for name in ("lidstone filter", "lidstone filter, one thread"):
            times = found[kind][name]
            rows.append([f"{kind}: {name}", short(times["seconds"]), short(times["ratio"]), short(times["cpu_ratio"])])
        slow = found[kind]["datatrove get_perplexity, loop"]["seconds"]
        rows.append([f"{kind}: datatrove `get_perplexity`, loop", short(slow), "1", "1"])
    return table(["", "seconds", "times as fast", "in processor time"], rows)


def mixing() -> str:
    """Scoring and generating with a mixture, over the network alone."""
    found = newest("mixture")
    steps = found["generation"]
    rows = [
        ["scoring: the mixture, with the scores of network and n-gram model", short(found["over_network"]["mixture"]),
         "1.1"],
        ["scoring: the residual", short(found["over_network"]["residual"]), ""],
        *([f"generating, {name}: the mixture", short(ratio), "1.1"] for name, ratio in steps.items()),
    ]  # fmt: skip
    return table(["", "over the network alone", "aim"], rows)


TABLES: dict[Path, dict[tuple[str, str], Callable[[], str]]] = {
    DOCS / "benchmarks.md": {
        (f"<!-- {make.__name__} -->", f"<!-- end of {make.__name__} -->"): make
        for make in (estimation, ngrams, single, cold, raw_text, memory, losses, training, mixing, sweeps)
    },
    DOCS / "scale.md": {
        compact.MARKS: lambda: compact.tables(newest("compact")),
        cores.MARKS: lambda: cores.as_table(newest("cores")["runs"]),
        scale.MARKS: lambda: scale.tables(newest("scale"), newest_run("scale")["machine"]),
    },
}


def page(path: Path, made: dict[tuple[str, str], Callable[[], Any]]) -> str:
    """The text of a page with its tables made anew."""
    text = path.read_text(encoding="utf-8")
    for marks, make in made.items():
        text = put_between(marks, make(), text)
    return text


def main() -> int:
    """Write the pages, or name those that are not as they should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a table would change")
    given = parser.parse_args()
    changed = {path: text for path, made in TABLES.items() if (text := page(path, made)) != path.read_text("utf-8")}
    for path, text in changed.items():
        print(f"{path.name}: {'not the newest figures' if given.check else 'written'}")
        if not given.check:
            path.write_text(text, encoding="utf-8")
    return int(given.check and bool(changed))


if __name__ == "__main__":
    raise SystemExit(main())
