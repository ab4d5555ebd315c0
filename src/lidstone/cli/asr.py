"""`lidstone asr`: from raw text to the model of tokens that a speech decoder loads, in one step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from lidstone.cli.console import print_model, print_table, say
from lidstone.cli.inputs import JSON, NORMALIZE, TEXTS, check_model_output, kenlm_format, write_table
from lidstone.errors import InputError

NEMO_OFFSET = 100
FORMATS = ("pieces", "nemo")


def asr(
    tokenizer: Annotated[
        str,
        Argument(
            metavar="TOKENIZER",
            help="That of the acoustic model: a model of SentencePiece, or a folder, file or name of Hugging Face.",
        ),
    ],
    texts: TEXTS,
    output: Annotated[
        Path,
        Option("--output", "-o", help="*.arpa; or a KenLM binary: *.trie is a trie, *.bin and so on a probing model."),
    ],
    order: Annotated[int, Option("--order", "-n", help="Length of the longest n-grams, 2 to 6.")] = 6,
    tokens: Annotated[
        str,
        Option(
            metavar="pieces|nemo",
            help="How tokens are written: as they are, or as NeMo reads them, token 0 as the character 100.",
        ),
    ] = "pieces",
    prune: Annotated[
        list[int] | None,
        Option(help="Drop n-grams that occur this often or less: repeated, one per order, lowest first."),
    ] = None,
    column: Annotated[str | None, Option(help="The column of Parquet or JSON lines files to read.")] = None,
    normalize: NORMALIZE = None,
    as_json: JSON = False,
) -> None:
    """Make the token-level language model of a speech decoder: modified Kneser-Ney of the tokens of raw text."""
    from lidstone.ngram.counts import count_text
    from lidstone.ngram.scorer.write import write_kenlm
    from lidstone.ngram.smoothers.modified_kneser_ney import FALLBACK, ModifiedKneserNey
    from lidstone.text.inputs import expand
    from lidstone.text.raw import foreign_pieces, is_sentencepiece, raw_text

    if tokens not in FORMATS:
        raise InputError(f"tokens are not written as {tokens!r}", hint=f"choose one of {', '.join(FORMATS)}")
    if not 2 <= order <= 6:
        raise InputError(f"decoders do not load models of order {order}", hint="choose an order from 2 to 6")
    form = kenlm_format(output)
    if form is None:
        check_model_output(output)
    kind = "sentencepiece" if is_sentencepiece(tokenizer) else "tokenizer"
    raw = raw_text(normalize, **{kind: tokenizer}, offset=NEMO_OFFSET if tokens == "nemo" else None)
    counts = count_text([item.open() for item in expand(texts, column, raw)], order, thresholds=prune, show=True)
    unknown = int(counts.counts[counts.vocab.unk or 0])
    if foreign_pieces(unknown, counts.tokens):
        share = f"{100 * unknown / counts.tokens:.1f} % of {counts.tokens:,} tokens"
        say(f"warning: {share} are unknown to the tokenizer: its letters may be of another case or script")
    table = ModifiedKneserNey(fallback=FALLBACK).fit(counts)
    write_table(table, output) if form is None else write_kenlm(table, output, form)
    sizes = [table.vocab.event_count, *(int(size) for size in table.trie.levels[2:] - table.trie.levels[1:-1])]
    rows = [[str(k), f"{size:,}"] for k, size in enumerate(sizes, start=1)]
    facts = {"output": str(output), "tokens": counts.tokens, "ngrams": sizes}
    print_model(table, output, facts, as_json, lambda: print_table(["order", "n-grams"], rows))
