"""Use a trained model, alone or mixed with an n-gram model: score text and pairs, translate, continue prompts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lidstone.errors import InputError, LidstoneError
from lidstone.hf.mixture import Mixture, ThreeScores
from lidstone.hf.perplexity import score_sentences, window_of
from lidstone.lab.evaluation.minimal_pairs import pair_scores, parse_pairs, summarize
from lidstone.lab.evaluation.translation import check_source_lengths, translate_ids
from lidstone.lab.recipe.sections import Beam
from lidstone.lab.run.saved import SavedModel
from lidstone.lab.run.scoring import translation_metrics
from lidstone.ngram.table import BackoffTable
from lidstone.progress import progress_bar
from lidstone.text.datasets import Ids
from lidstone.text.reader import aligned, read_lines
from lidstone.text.source import Source, name_of


def evaluate_files(saved: SavedModel, texts: Sequence[Source], mixture: Mixture | None = None) -> dict[str, Any]:
    """Perplexity of texts under a language model; BLEU and chrF of (source, reference) under a translation model.

    With a `mixture` of the language model and an n-gram model, their perplexities as well.
    """
    if saved.task == "lm":
        lines = [line for text in texts for line in read_lines(text)]
        return {**perplexity_of(saved, lines, mixture), "signature": signature_of(saved, lines, mixture)}
    if len(texts) != 2:
        raise InputError(
            f"a translation model is evaluated on two files, not {len(texts)}", hint="pass the source and the reference"
        )
    pairs = aligned([read_lines(text) for text in texts], [name_of(text) for text in texts])
    if not pairs:
        raise InputError("there are no lines to translate", hint="pass a text that is not empty")
    sources, references = (list(side) for side in zip(*pairs, strict=True))
    found = translate_lines(saved, sources)
    return {
        **translation_metrics(found, _plain(saved, references)),
        "sentences": len(found),
        "signature": signature_of(saved, [*sources, *references]),
    }


def perplexity_of(saved: SavedModel, lines: Iterable[str], mixture: Mixture | None = None) -> dict[str, Any]:
    """Perplexity per token and per word of the lines that have words, with both denominators."""
    kept = [words for words in saved.target.words(lines) if words.strip()]
    if not kept:
        raise InputError("there is nothing to score: no line has a word", hint="pass a text that is not empty")
    vocab = saved.target.vocabulary
    ids = saved.target.encode_words(kept)
    words = sum(map(saved.target.word_count, kept))
    if mixture is not None:
        found = mixed_perplexities(mixture, ids, words)
    else:
        with progress_bar(None, "scoring") as advance:
            scores = score_sentences(saved.model, ids, eos=vocab.eos, advance=advance)
        found = scores.summary(words)
    unknown = 0 if vocab.unk is None else sum(int((sentence == vocab.unk).sum()) for sentence in ids)
    return {**found, "sentences": len(kept), "oov": unknown, "vocabulary": vocab.event_count}


def translate_lines(saved: SavedModel, lines: Sequence[str], beam: Beam | None = None, first: int = 1) -> list[str]:
    """Translations of lines; an empty line stays empty. `first` is the number of the first line, for errors."""
    assert saved.source is not None
    sources = saved.source.encode(lines)
    check_source_lengths(sources, saved.model, first)
    wanted = [number for number, ids in enumerate(sources) if len(ids)]
    with progress_bar(len(wanted), "translating") as advance:
        found = translate_ids(
            saved.model,
            [sources[number] for number in wanted],
            saved.target.vocabulary,
            beam or saved.beam,
            source_eos=saved.source.vocabulary.eos,
            advance=advance,
        )
    result = [""] * len(lines)
    for number, ids in zip(wanted, found, strict=True):
        result[number] = saved.target.decode(ids)
    return result


def continue_prompt(
    saved: SavedModel,
    prompt: str = "",
    *,
    number: int = 1,
    seed: int = 0,
    temperature: float = 1.0,
    top_k: int = 0,
    limit: int = 100,
    mixture: Mixture | None = None,
) -> list[str]:
    """Draw `number` continuations of a prompt, up to the end of the sentence or `limit` tokens; prompt included.

    With a `mixture` of the model and an n-gram model, draw from that.
    """
    import torch

    from lidstone.lab.methods.residual import generating

    vocab = saved.target.vocabulary
    ids = [vocab.eos, *saved.target.encode([prompt])[0].tolist()]
    window = window_of(saved.model)
    room = limit if window is None else window - len(ids)
    if room < 1:
        raise InputError(
            f"the prompt has {len(ids)} tokens, the model was trained on rows of at most {window}",
            hint="use a shorter prompt",
        )
    torch.manual_seed(seed)
    with torch.inference_mode(), generating(saved.model, mixture) as processors:
        output = saved.model.generate(
            logits_processor=processors,
            input_ids=torch.tensor([ids], device=saved.model.device),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long, device=saved.model.device),
            do_sample=True,
            num_return_sequences=number,
            temperature=temperature,
            top_k=top_k,
            max_new_tokens=min(limit, room),
            eos_token_id=vocab.eos,
            pad_token_id=vocab.eos,
            suppress_tokens=list(vocab.unpredictable) or None,
        )
    return [saved.target.decode(row) for row in output.tolist()]


def _plain(saved: SavedModel, references: Sequence[str]) -> list[str]:
    """References in the form of translations: read like the training text, tokenization undone."""
    return [saved.target.join(line.split(" ")) for line in saved.target.words(references)]


def make_mixture(
    saved: SavedModel, table: BackoffTable, weight: float | None = None, valid: Source | None = None
) -> Mixture:
    """Mix a saved language model with a table; the weight as given, or by EM on validation text."""
    table.require(saved.target.vocabulary)
    if (weight is None) == (valid is None):
        raise InputError("a mixture needs one weight", hint="use --weight, or validation text with --fit-weight")
    mixture = Mixture(saved.model, table, 0.5 if weight is None else weight)
    return mixture if valid is None else mixture.fit(encoded(saved, read_lines(valid)))


def own_ngram(run: str | Path) -> tuple[BackoffTable, float]:
    """The n-gram model of a run's own training text and the weight of the mixture, as its `run.json` has them."""
    from lidstone.lab.corpus.prepare import prepare_corpus
    from lidstone.lab.recipe.recipe import load_recipe
    from lidstone.lab.run.record import read_record
    from lidstone.lab.run.scoring import fit_ngram

    folder = Path(run).parent if Path(run).is_file() else Path(run)
    record = read_record(folder) if folder.is_dir() else None
    if record is None or "ngram" not in record:
        raise InputError(f"{run} has no n-gram model of its training text", hint="pass a table instead of 'train'")
    try:
        prepared = prepare_corpus(load_recipe(folder))
    except LidstoneError as error:
        hint = "run this where it was trained: paths of a recipe are relative"
        raise InputError(f"the training text of {run} cannot be read again: {error.message}", hint=hint) from error
    table = fit_ngram(prepared, int(record["ngram"]["order"]))
    if table.signature["counts"] != record["ngram"]["table"]["counts"]:
        raise InputError(f"the training text of {run} has changed", hint="put it back, or pass a table and --weight")
    return table, float(record["mixture"]["weight"])


def mixed_perplexities(mixture: Mixture, ids: Sequence[Ids], words: int) -> dict[str, Any]:
    """Perplexities of the n-gram model and of the mixture, in addition to those of the network."""
    scores = mixture.score(ids)
    return {
        **scores.network.summary(words),
        "ngram": {"order": mixture.table.order, **scores.ngram.summary(words)},
        "mixture": {"weight": mixture.weight, **scores.mixture.summary(words)},
    }


def evaluate_pairs(saved: SavedModel, file: Source, mixture: Mixture | None = None) -> dict[str, Any]:
    """The share of minimal pairs whose good sentence is likelier; with a mixture for all three models."""
    lines = list(read_lines(file))
    pairs = parse_pairs(lines, name_of(file))
    good, bad = (encoded(saved, [getattr(p, side) for p in pairs], keep_blank=True) for side in ("good", "bad"))
    if mixture is None:
        eos = saved.target.vocabulary.eos
        scores = pair_scores(good, bad, lambda ids: score_sentences(saved.model, ids, eos=eos).nll)
        return {**summarize(pairs, scores), "signature": signature_of(saved, lines)}
    three: list[ThreeScores] = []

    def network(ids: Sequence[Ids]) -> Any:
        three.append(mixture.score(ids))
        return three[0].network.nll

    result = summarize(pairs, pair_scores(good, bad, network))
    result["ngram"] = summarize(pairs, pair_scores(good, bad, lambda ids: three[0].ngram.nll))
    result["mixture"] = summarize(pairs, pair_scores(good, bad, lambda ids: three[0].mixture.nll))
    return {**result, "signature": signature_of(saved, lines, mixture)}


def encoded(saved: SavedModel, lines: Iterable[str], *, keep_blank: bool = False) -> list[Ids]:
    """Lines as ids, read as the training text was; lines without words are left out, or are empty."""
    ids: list[Ids] = [np.asarray(found, dtype=np.int64) for found in saved.target.encode(list(lines))]
    return ids if keep_blank else [found for found in ids if len(found)]


def signature_of(saved: SavedModel, lines: Sequence[str], mixture: Mixture | None = None) -> str:
    """What a result was made from: the model, its vocabulary, the text and, where there is one, the mixture."""
    from lidstone import __version__

    mixed = ""
    if mixture is not None:
        table = _hash(json.dumps(mixture.table.signature, sort_keys=True, default=str))
        mixed = f"|mix:{table}|weight:{mixture.weight:.4g}"
    model = f"model:{saved.name}|vocab:{saved.target.vocabulary.fingerprint}"
    if saved.task == "lm":
        model += f"|window:{window_of(saved.model)}"
    return f"{model}|text:{_hash(chr(10).join(lines))}{mixed}|lidstone:{__version__}"


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
