"""KenLM's programs by their old names: `lidstone lmplz`, `build-binary` and `query` take their flags.

`lidstone install-kenlm-names DIR` makes executables `lmplz`, `build_binary` and `query`, for scripts that call these.
Flags that only say how KenLM works are accepted without effect; others that lidstone does not have are errors.
"""

from __future__ import annotations

import argparse
import math
import shlex
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lidstone.cli.console import say
from lidstone.errors import InputError

if TYPE_CHECKING:
    from lidstone.ngram.counts import Counts
    from lidstone.ngram.scorer.scorer import Scorer
    from lidstone.ngram.table import BackoffTable

RAW: dict[str, Any] = {"ignore_unknown_options": True, "help_option_names": [], "allow_interspersed_args": False}
"""Everything after the verb is left to the parser of the program."""
ARGUMENTS = Annotated[list[str] | None, typer.Argument(metavar="[KENLM'S ARGUMENTS]")]


LEAST_MEMORY = 128 << 20
"""-S of lmplz is for sorting, beside the program itself."""


class _Parser(argparse.ArgumentParser):
    """A parser that says which flags lidstone lacks, and passes over empty arguments as KenLM's programs do."""

    def read(self, arguments: list[str] | None) -> Any:
        options, rest = self.parse_known_args([argument for argument in arguments or [] if argument])
        if rest:
            known = ", ".join(sorted(self._option_string_actions))
            raise InputError(f"{self.prog} does not know {' '.join(rest)}", hint=f"it takes {known}")
        return options

    def without_effect(self, *names: str, nargs: Any = None) -> None:
        """Flags that change nothing in lidstone."""
        more = {"action": "store_true"} if nargs == 0 else {}
        self.add_argument(*names, help="accepted, without effect", **more)  # type: ignore[arg-type]


def lmplz(arguments: ARGUMENTS = None) -> None:
    """Estimate a modified Kneser-Ney model from text on standard input, as KenLM's lmplz."""
    from lidstone.ngram.formats.arpa import write_arpa

    parser = _Parser("lidstone lmplz", description="Text on standard input; the model as ARPA on standard output.")
    parser.add_argument("-o", "--order", type=int, required=True)
    parser.add_argument("--text", default="-", help="read text from a file")
    parser.add_argument("--arpa", default="-", help="write the model to a file")
    parser.add_argument("--prune", type=int, nargs="+", default=[0], help="drop n-grams with these counts or less")
    parser.add_argument("--discount_fallback", type=float, nargs="*", help="discounts if text leaves them undefined")
    parser.add_argument("--limit_vocab_file", type=Path, help="drop n-grams with words that are not in this file")
    parser.add_argument("--vocab_pad", type=int, default=0, help="the size of the vocabulary, at least")
    parser.add_argument("-S", "--memory", help="count on disk, in this much memory; 80%% of it, for example")
    parser.add_argument("-T", "--temp_prefix", help="the folder for temporary files")
    for name in ("--minimum_block", "--sort_block", "--block_count", "--vocab_estimate"):
        parser.without_effect(name)
    options = parser.read(arguments)
    thresholds = [*options.prune, *options.prune[-1:] * (options.order - len(options.prune))]
    folder = options.temp_prefix and Path(options.temp_prefix)
    place = folder if folder and folder.is_dir() else folder and folder.parent
    with tempfile.TemporaryDirectory(prefix=".lmplz-", dir=place or None) as temporary:
        counts = _counts(options, thresholds, Path(temporary))
        write_arpa(_estimate(counts, options), options.arpa)


def _counts(options: Any, thresholds: list[int], folder: Path) -> Counts:
    """The counts of the text: on disk if memory is limited, but for a limited vocabulary."""
    from lidstone.ngram.counts import count_text
    from lidstone.ngram.disk.count_file import count_to_file
    from lidstone.ngram.disk.memory import resident
    from lidstone.ngram.formats.safetensors import load_counts

    more: dict[str, Any] = {"thresholds": thresholds if any(thresholds) else None, "blank": "count"}
    if options.memory is None or options.limit_vocab_file is not None:
        counts = count_text(options.text, options.order, **more)
    else:
        file, memory = folder / "text.counts", resident() + max(_bytes(options.memory), LEAST_MEMORY)
        count_to_file([options.text], options.order, file, memory=memory, temporary=folder, **more)
        counts = load_counts(file, verify=False)
    unknown = counts.vocab.unk
    if unknown is not None and counts.counts[unknown] > 0:
        raise InputError("the text has the word <unk>, which lmplz does not allow", hint="replace it in the text")
    return counts


def _bytes(size: str) -> int:
    """An amount of memory as sort takes it: K is the default unit, % is of the machine's memory."""
    import os

    from lidstone.ngram.disk.memory import parse_size

    if size.endswith("%"):
        return int(float(size[:-1]) / 100 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return int(size[:-1]) if size.endswith("b") else parse_size(f"{size}K" if size[-1:].isdigit() else size)


def _estimate(counts: Counts, options: Any) -> BackoffTable:
    """The table, its unigrams as `--vocab_pad` and `--limit_vocab_file` have them."""
    import numpy as np

    from lidstone.ngram.smoothers.modified_kneser_ney import FALLBACK, ModifiedKneserNey

    fallback = options.discount_fallback
    if fallback is not None:
        fallback = fallback or [*FALLBACK]
        fallback = (fallback + fallback[-1:] * 2)[:3]
    allowed = np.append(counts.vocab.events, True)
    if options.limit_vocab_file is not None:
        words = set(options.limit_vocab_file.read_text(encoding="utf-8").split())
        allowed[:-1] &= [word in words or word in ("<unk>", "</s>") for word in counts.vocab.tokens or ()]
        counts = _limited(counts, allowed)
    table = ModifiedKneserNey(fallback=fallback).fit(counts)
    return _with_unigrams(table, allowed[:-1], options.vocab_pad)


def _limited(counts: Counts, allowed: Any) -> Counts:
    """Without the n-grams, from bigrams on, that have another word; their mass goes to the order below."""
    import numpy as np

    from lidstone.ngram.trie import restrict

    trie, keep = counts.trie, np.ones(counts.trie.size, bool)
    good = allowed.copy()
    good.resize(trie.size)
    for order in range(2, trie.order + 1):
        level = trie.level(order)
        good[level] = keep[level] = good[trie.parents[level]] & allowed[trie.words[level]]
    return replace(
        counts, trie=restrict(trie, keep), counts=counts.counts[keep], stored=counts.derived.restricted(keep)
    )


def _with_unigrams(table: BackoffTable, allowed: Any, pad: int) -> BackoffTable:
    """The uniform distribution over `pad` words, if that is more; with the mass of words that are not allowed.

    base(w) = discounted(w) + gamma / V, and discounted(<unk>) = 0. So with other words taken out, and N words,
    base(w) - gamma / V + (gamma + their discounted) / N.
    """
    import numpy as np

    floor = table.base[table.vocab.unk]
    discounted = np.where(table.vocab.events, table.base - floor, 0.0)
    mass = floor * table.vocab.event_count + discounted[~allowed].sum()
    base = np.where(allowed, discounted + mass / max(pad, int(allowed.sum())), 0.0)
    vocab = replace(table.vocab, unpredictable=tuple(np.flatnonzero(~allowed).tolist()))
    return replace(table, base=base, vocab=vocab)


def build_binary(arguments: ARGUMENTS = None) -> None:
    """Write a model as a binary of KenLM, as its build_binary: [options] [probing|trie] ARPA OUTPUT."""
    from lidstone.ngram.scorer.write import write_kenlm

    parser = _Parser("lidstone build-binary", usage="%(prog)s [options] [probing|trie] ARPA OUTPUT")
    parser.add_argument("-q", type=int, metavar="BITS", help="bits of probabilities in a trie")
    parser.add_argument("-b", type=int, metavar="BITS", help="bits of backoffs in a trie; by default as -q")
    parser.add_argument("-a", type=int, metavar="BITS", help="compress the pointers of a trie")
    parser.add_argument("-u", type=float, default=-100.0, help="log10 p of unknown words of a model without <unk>")
    parser.add_argument("-p", type=float, default=1.5, help="slots per n-gram in hash tables")
    parser.add_argument("-v", action="store_true", help="leave out the words")
    for name in ("-T", "-S", "-w", "-t", "-m"):
        parser.without_effect(name)
    parser.without_effect("-s", nargs=0)  # models without <s> are refused with a message of their own
    parser.add_argument("files", nargs="+")
    options = parser.read(arguments)
    if len(options.files) == 1:
        raise InputError("lidstone's build_binary does not estimate sizes", hint="name the output too")
    *form, arpa, output = options.files
    chosen: Any = form[0] if len(form) == 1 else " ".join(form) or "probing"
    bits = {"bits": options.q, "backoff_bits": options.b, "array_bits": options.a}
    write_kenlm(arpa, output, chosen, multiplier=options.p, unknown=options.u, words=not options.v, **bits)
    say("SUCCESS")


def query(arguments: ARGUMENTS = None) -> None:
    """Score the lines of standard input, as KenLM's query prints it."""
    parser = _Parser("lidstone query", description="Text on standard input; scores on standard output.")
    parser.add_argument("-n", action="store_true", help="do not wrap lines in <s> and </s>")
    levels = ["summary", "sentence", "word", "0", "1", "2"]
    parser.add_argument("-v", action="append", choices=levels, help="what is printed; may be repeated")
    parser.without_effect("-b", nargs=0)
    parser.without_effect("-l")
    parser.add_argument("model")
    options = parser.read(arguments)
    wanted = set(options.v or ["2"])
    printed = {
        "word": bool(wanted & {"word", "2"}),
        "sentence": bool(wanted & {"sentence", "1", "2"}),
        "summary": bool(wanted & {"summary", "0", "1", "2"}),
    }
    total, unknown_total, tokens, oov = 0.0, 0.0, 0, 0
    scorer = _scorer_for_query(options.model)
    for line, complete in _lines():
        scored = scorer.score_words(line, not options.n, complete and not options.n)
        unknown = [log10 for log10, _, is_unknown in scored if is_unknown]
        single = _sum(log10 for log10, _, _ in scored)
        tokens, unknown_total = tokens + len(scored), unknown_total + sum(unknown)
        if printed["word"]:
            sys.stdout.write(_words(scorer, line, scored))
        if complete:  # KenLM leaves a last line without its end out of the sums
            total, oov = total + single, oov + len(unknown)
            if printed["sentence"]:
                sys.stdout.write(f"Total: {_shortest(single, True)} OOV: {len(unknown)}\n")
    if printed["summary"]:
        print(f"Perplexity including OOVs:\t{_shortest(_perplexity(total, tokens))}")
        print(f"Perplexity excluding OOVs:\t{_shortest(_perplexity(total - unknown_total, tokens - oov))}")
        print(f"OOVs:\t{oov}\nTokens:\t{tokens}")


def _scorer_for_query(path: str) -> Scorer:
    """A scorer whose ids are those of KenLM."""
    from lidstone.ngram.scorer.build import pack
    from lidstone.ngram.scorer.models import load_model, scorer_of_binary
    from lidstone.ngram.scorer.scorer import Scorer
    from lidstone.ngram.scorer.write import in_order
    from lidstone.text.source import kind_of_file

    if Path(path).is_file() and kind_of_file(path)[0] == "kenlm":
        return scorer_of_binary(path)
    return Scorer(pack(in_order(load_model(path))))


def _lines() -> Iterator[tuple[bytes, bool]]:
    """The lines of standard input, and whether each has its end."""
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n"), line.endswith(b"\n")


def _words(scorer: Scorer, line: bytes, scored: list[tuple[float, int, bool]]) -> str:
    words = [*line.split(), b"</s>"]
    fields: list[str] = []
    for word, (log10, length, _) in zip(words, scored, strict=False):
        number = scorer.eos if len(fields) == len(words) - 1 else scorer.index(word)
        fields.append(f"{word.decode(errors='replace')}={number} {length} {_shortest(log10, True)}\t")
    return "".join(fields)


def _sum(numbers: Any) -> float:
    """The float32 sum, one after the other."""
    import numpy as np

    total = np.float32(0.0)
    for number in numbers:
        total += np.float32(number)
    return float(total)


def _perplexity(log10: float, tokens: int) -> float:
    return 10.0 ** (-log10 / tokens) if tokens else math.nan


def _shortest(number: float, single: bool = False) -> str:
    """The fewest digits that give the number back, of a float32 or a float64, as KenLM prints them.

    >>> _shortest(-2.7955417633056641, True), _shortest(1e-5), _shortest(3.0), _shortest(math.nan)
    ('-2.7955418', '0.00001', '3', 'NaN')
    """
    import numpy as np

    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else str(number)
    return np.format_float_positional(np.float32(number) if single else np.float64(number), trim="-")


for program in (lmplz, build_binary, query):
    program.context_settings = RAW  # type: ignore[attr-defined]

PROGRAMS = {"lmplz": "lmplz", "build_binary": "build-binary", "query": "query"}


def install_kenlm_names(folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write to.")]) -> None:
    """Write executables lmplz, build_binary and query that call lidstone, for scripts that expect KenLM's."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, verb in PROGRAMS.items():
        file = folder / name
        if file.exists() and "lidstone" not in file.read_bytes()[:300].decode(errors="replace"):
            raise InputError(f"{file} is there already, and is not lidstone's", hint="choose another folder")
        file.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m lidstone {verb} "$@"\n', encoding="utf-8")
        file.chmod(0o755)
    say(f"wrote {', '.join(PROGRAMS)} to {folder}")
