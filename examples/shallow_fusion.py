"""Shallow fusion: a table joins a Hugging Face model at every step of generation, log q + weight * log p~.

pip install 'lidstone[train]'
python examples/shallow_fusion.py

The network here is small and untrained, so that the example takes seconds: what it writes is noise, and with a weight
the table turns it into text. Works with greedy search, sampling and beam search.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LogitsProcessor, LogitsProcessorList

import lidstone as ld


class NgramFusion(LogitsProcessor):
    """Add `weight` times the table's log-probabilities to the scores of the next token."""

    def __init__(self, table: ld.BackoffTable, weight: float, start: int) -> None:
        self.table, self.weight, self.start = table, weight, start

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        probs = torch.from_numpy(self.table.next_probs(self.states(input_ids.cpu().numpy()))).to(scores)
        return scores.log_softmax(dim=-1) + self.weight * probs.log()  # (rows, vocabulary)

    def states(self, ids: np.ndarray) -> np.ndarray:
        """The state of every row.

        The last n - 1 tokens say all, so nothing is kept between steps and a beam search may reorder its rows.
        """
        states = np.full(len(ids), -1)
        for column in ids[:, max(ids.shape[1] - self.table.order + 1, 0) :].T:
            _, states = self.table.advance(states, column)
            states = np.where(column == self.start, self.table.start(), states)
        return states


def make_table(sentences: int, order: int = 3) -> ld.BackoffTable:
    """A table over the network's vocabulary: words, and the token that begins its inputs, which is never predicted."""
    text = [words for words in ld.embedded_corpus() if len(words) > 5 and all(word.isalpha() for word in words[:-1])]
    text = text[:sentences]
    counts = Counter(word for words in text for word in words)
    tokens = ["<unk>", "</s>", *(word for word, count in counts.items() if count > 2), "<start>"]
    start = len(tokens) - 1
    vocab = ld.Vocabulary(size=len(tokens), eos=1, unk=0, unpredictable=(start,), tokens=tokens)
    return ld.ModifiedKneserNey().fit(ld.count([vocab.encode(words) for words in text], vocab, order))


def make_network(vocab: ld.Vocabulary) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    sizes = {"n_positions": 64, "n_embd": 32, "n_layer": 1, "n_head": 2}
    start = vocab.size - 1
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=vocab.size, bos_token_id=start, eos_token_id=vocab.eos, **sizes)
    ).eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--beams", type=int, default=4)
    args = parser.parse_args()
    table = make_table(sentences=300 if args.smoke else 3000)
    model, start = make_network(table.vocab), table.vocab.size - 1
    for weight in (0.0, 1.0):
        processors = LogitsProcessorList([NgramFusion(table, weight, start)] if weight else [])
        ids = model.generate(
            torch.tensor([[start]]), attention_mask=torch.ones(1, 1), max_new_tokens=12, num_beams=args.beams,
            do_sample=False, no_repeat_ngram_size=2, suppress_tokens=[table.vocab.unk], pad_token_id=table.vocab.eos,
            logits_processor=processors,
        )[0, 1:]  # fmt: skip
        words = [token for token in ids.tolist() if token not in (start, table.vocab.eos)]
        print(f"weight {weight}: {table.perplexity([words])}\n    {' '.join(table.vocab.tokens[w] for w in words)}")


if __name__ == "__main__":
    main()
