"""Use a trained model: score text, translate lines, continue prompts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from lidstone.errors import InputError
from lidstone.hf.mixture import Mixture
from lidstone.hf.perplexity import score_sentences, window_of
from lidstone.lab.corpus.pipeline import encode_pieces
from lidstone.lab.evaluation.translation import check_source_lengths, translate_ids
from lidstone.lab.recipe.sections import Beam
from lidstone.lab.run.mix import mixed_perplexities, signature_of
from lidstone.lab.run.saved import SavedModel
from lidstone.lab.run.scoring import translation_metrics
from lidstone.progress import progress_bar
from lidstone.text.corpora import aligned
from lidstone.text.reader import read_lines
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
    ids = _encode_words(saved, kept)
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


def _encode_words(saved: SavedModel, words: Sequence[str]) -> list[Any]:
    """Ids of lines that are tokenized already."""
    if saved.target.checkpoint is not None:
        return saved.target.encode(words)
    return [encode_pieces(pieces, saved.target.vocabulary) for pieces in saved.target.pieces(words)]


def _plain(saved: SavedModel, references: Sequence[str]) -> list[str]:
    """References in the form of translations: read like the training text, tokenization undone."""
    return [saved.target.join(line.split(" ")) for line in saved.target.words(references)]
