"""Verbs that read a model: `convert`, `mix` and `prune` write another, `sample` and `explain` show what it knows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from lidstone.cli.console import print_json, print_model, print_pairs, print_table, say, table_signature
from lidstone.cli.inputs import (
    ADDRESS,
    JSON,
    MODEL,
    MODEL_FILES,
    MODEL_OUTPUT,
    check_counts_input,
    check_engine,
    check_folder,
    check_model_output,
    is_arpa,
    kenlm_format,
    ray_cluster,
    read_table,
    write_table,
)
from lidstone.errors import InputError, LidstoneError

if TYPE_CHECKING:
    from lidstone.loss.split import Explanation
    from lidstone.ngram.counts import Counts
    from lidstone.ngram.table import BackoffTable
    from lidstone.text.vocabulary import Vocabulary

COLUMNS = ("p", "p~", "p+", "p-")


def convert(
    source: MODEL,
    target: Annotated[str, Argument(metavar="OUTPUT", help=f"{MODEL_FILES} *.bin and so on, a KenLM binary.")],
    single: Annotated[
        bool, Option("--float32", help="Write a table in single precision, with 4 bytes per value.")
    ] = False,
    bits: Annotated[
        int, Option(metavar="8|16|32|64", help="Bits per value of a table; 8 and 16 are rounded codes.")
    ] = 64,
    pack: Annotated[
        bool, Option("--pack", help="Write words and pointers of a table in as few bits as they need.")
    ] = False,
    kenlm: Annotated[
        str | None, Option(metavar="probing|trie", help="Write a binary of KenLM; *.trie is a trie.")
    ] = None,
    quantize: Annotated[int | None, Option("-q", help="KenLM trie: bits of probabilities.")] = None,
    backoffs: Annotated[int | None, Option("-b", help="KenLM trie: bits of backoffs; as -q.")] = None,
    arrays: Annotated[int | None, Option("-a", help="KenLM trie: compress pointers, up to 255.")] = None,
    unknown: Annotated[float | None, Option(help="KenLM: log10 p of unknown words of a model without <unk>.")] = None,
    engine: Annotated[
        str | None, Option(help="ray: let workers of a Ray cluster compute the lines of an ARPA file.")
    ] = None,
    address: ADDRESS = None,
    as_json: JSON = False,
) -> None:
    """Turn a model into an ARPA file, into a compact table, or into a binary of KenLM for decoders that load one."""
    check_engine(engine, address)
    form = kenlm or kenlm_format(target)
    if form is not None:
        from lidstone.ngram.scorer.write import write_kenlm

        check_folder(Path(target))
        more = {"bits": quantize, "backoff_bits": backoffs, "array_bits": arrays, "unknown": unknown}
        write_kenlm(source, target, form, **more)  # type: ignore[arg-type]
        if as_json:
            print_json({"output": target, "format": form})
        return
    if (quantize, backoffs, arrays, unknown) != (None, None, None, None):
        raise LidstoneError("-q, -b, -a and --unknown are of KenLM's binaries", hint="name the output *.bin or *.trie")
    check_model_output(target)
    if single and bits not in (32, 64):
        raise LidstoneError(f"--float32 and --bits {bits} contradict each other", hint="give one of them")
    if engine is None:
        table = read_table(source).compact(32 if single else bits, pack=pack)
        write_table(table, target)
    else:
        with ray_cluster(engine, address):
            table = convert_on_ray(source, target)
    if as_json and target != "-":
        print_json({"output": target, "signature": table_signature(table)})
    else:
        say(table_signature(table))


def convert_on_ray(source: str, target: str) -> BackoffTable:
    """Write a table as ARPA by the workers of a cluster."""
    from lidstone.text.source import kind_of_file

    if not is_arpa(target) or not Path(source).is_file() or kind_of_file(source) != ("table", False):
        raise LidstoneError("workers write ARPA files of tables", hint="leave out --engine")
    from lidstone.ngram.disk.executors import TASK_MEMORY, RayExecutor
    from lidstone.ngram.disk.fit import write_arpa_by_tasks

    return write_arpa_by_tasks(source, target, RayExecutor(), memory=TASK_MEMORY)


def mix(
    tables: Annotated[
        list[str], Argument(metavar="TABLE", help="Two models or more: tables, ARPA files or KenLM tries.")
    ],
    output: MODEL_OUTPUT,
    weights: Annotated[
        str | None,
        Option("--weights", "-w", help="One per model, such as 0.7,0.3, or em to learn them; equal if left out."),
    ] = None,
    text: Annotated[
        list[str] | None, Option("--text", metavar="TEXT", help="The text that em learns the weights from.")
    ] = None,
    as_json: JSON = False,
) -> None:
    """Mix models linearly into one: exact for every n-gram that any of them lists."""
    from lidstone.ngram.mixing import mix as mix_tables

    check_model_output(output)
    shares = parse_weights(weights)
    mixed = mix_tables([read_table(path) for path in tables], shares, text=text or None)
    learnt = mixed.signature["parameters"]["weights"]
    facts = {"weights": learnt, "models": tables, "ngrams": mixed.trie.size}
    shown = {name: f"{weight:.6f}" for name, weight in zip(tables, learnt, strict=True)}
    write_table(mixed, output)
    print_model(mixed, output, facts, as_json, lambda: print_pairs({**shown, "n-grams": f"{mixed.trie.size:,}"}))


def parse_weights(text: str | None) -> Any:
    """Numbers separated by commas, or `em`.

    >>> parse_weights("0.7,0.3"), parse_weights("em"), parse_weights(None)
    ([0.7, 0.3], 'em', None)
    """
    if text is None or text == "em":
        return text
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(f"--weights {text} are not numbers", hint="use numbers such as 0.7,0.3, or em") from error


def prune(
    table: MODEL,
    output: MODEL_OUTPUT,
    entropy: Annotated[
        float | None, Option(help="Drop n-grams that change the perplexity by less than this fraction: 1e-8 is usual.")
    ] = None,
    size: Annotated[int | None, Option(help="Or keep this many n-grams at most, all orders together.")] = None,
    as_json: JSON = False,
) -> None:
    """Drop the least important n-grams by relative entropy (Stolcke 1998); the result still sums to one."""
    from lidstone.ngram.prune import prune as prune_table

    check_model_output(output)
    whole = read_table(table)
    pruned = prune_table(whole, entropy=entropy, size=size)
    before, after = (
        [int(found.trie.levels[k] - found.trie.levels[k - 1]) for k in range(1, found.order + 1)]
        for found in (whole, pruned)
    )
    sizes = zip(range(1, whole.order + 1), before, after, strict=True)
    rows = [[str(order), f"{b:,}", f"{a:,}"] for order, b, a in sizes]
    facts = {"before": before, "after": after}
    write_table(pruned, output)
    print_model(pruned, output, facts, as_json, lambda: print_table(["order", "before", "after"], rows))


def sample(
    table: MODEL,
    number: Annotated[int, Option("--number", "-N", min=1, help="How many sentences.")] = 1,
    seed: Annotated[int, Option(min=0, help="The same seed draws the same sentences.")] = 0,
    limit: Annotated[int, Option(min=1, help="The longest sentence, in words.")] = 100,
    as_json: JSON = False,
) -> None:
    """Draw sentences from a model, one per line; the signature goes to stderr."""
    model = read_table(table)
    sentences = draw(model, number, seed, limit)
    signature = f"{table_signature(model)}|seed:{seed}"
    if as_json:
        print_json({"sentences": list(sentences), "signature": signature})
        return
    for sentence in sentences:
        print(sentence)
    say(signature)


def draw(table: BackoffTable, number: int, seed: int, limit: int) -> Iterator[str]:
    """Sentences as text; each has its own seed, so the first ones do not depend on `number`."""
    import numpy as np

    tokens = table.vocab.tokens or [str(token) for token in range(table.vocab.size)]
    seeds = np.random.default_rng(seed)
    for _ in range(number):
        sentence = table.sample(seed=int(seeds.integers(2**63)), limit=limit)
        yield " ".join(tokens[word] for word in sentence)


def explain(
    table: MODEL,
    counts: Annotated[str, Option(help="The counts that the table was fitted to.")],
    history: Annotated[str, Option(help="The words before, such as 'of the'; <s> starts a sentence.")],
    number: Annotated[int, Option("--number", "-N", min=1, help="How many words to show.")] = 10,
    as_json: JSON = False,
) -> None:
    """Show p, the smoothed p~, and the two parts of their difference: p~ - p = Z (p+ - p-).

    Words are sorted by the larger of p and p~.
    """
    from lidstone.loss.split import explain as explain_history
    from lidstone.ngram.formats.safetensors import load_counts

    check_counts_input(counts)
    model, counted = read_table(table), load_counts(counts)
    found = explain_history(model, counted, encode_history(history, model.vocab, model.order))
    facts = {"history": history, **explanation(found, counted, number), "signature": table_signature(model)}
    print_json(facts) if as_json else _print_explanation(facts)


def encode_history(text: str, vocab: Vocabulary, order: int) -> list[int]:
    """The ids of a history; `<s>` may open it, unknown words become `<unk>`."""
    words = text.split()
    if len(words) >= order:
        raise InputError(
            f"the history has {len(words)} words, but a model of order {order} sees {order - 1}",
            hint=f"use the last {order - 1}" if order > 1 else "use an empty history: ''",
        )
    if "<s>" in words[1:]:
        raise InputError("<s> is only possible as the first word of a history", hint="remove the words before it")
    start = [vocab.bos] if words[:1] == ["<s>"] else []
    return [*start, *map(int, vocab.encode(words[len(start) :]))]


def explanation(found: Explanation, counts: Counts, number: int) -> dict[str, Any]:
    """Z and the leading words with their c, p, p~, p+ and p-; of an unseen history only p~ is defined."""
    from lidstone.loss.split import followers_of

    seen = found.count > 0
    often = followers_of(counts, found.history)[found.leading(number)].tolist()
    words = []
    for (word, *values), times in zip(found.top(number, counts.vocab.tokens), often, strict=True):
        numbers = {name: value if seen or name == "p~" else None for name, value in zip(COLUMNS, values, strict=True)}
        words.append({"word": word, "c": times, **numbers})
    note = {"note": found.note} if found.note else {}
    return {"count": found.count, "z": found.z if seen else None, "words": words, **note}


def _print_explanation(facts: dict[str, Any]) -> None:
    seen = f"seen {facts['count']:,} times" if facts["count"] else "never seen: only p~ is defined"
    moved = "" if facts["z"] is None else f"; Z = {facts['z']:.6f} of the mass is moved"
    print(f"after '{facts['history']}' ({seen}{moved})")
    rows = [
        [row["word"], str(row["c"]), *("-" if row[name] is None else f"{row[name]:.6f}" for name in COLUMNS)]
        for row in facts["words"]
    ]
    print_table(["word", "c", *COLUMNS], rows)
    print(facts["signature"])
    if "note" in facts:
        say(f"note: {facts['note']}")
