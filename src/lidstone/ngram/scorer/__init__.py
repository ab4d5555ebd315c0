"""Scoring text in compiled code, with KenLM's numbers: any model is kept the way KenLM's probing format keeps it.

    models   a `Scorer` of any file or table; `build` gives n-grams their keys and packs them into `hash_tables`
    scorer   the class: sentences, lists of sentences, single words after a state
    blocks   the compiled loops over lines; `step`: one word after one state

A scorer answers in float32, log10, to the last bit as KenLM does: `lidstone.kenlm` and `lidstone filter` ask it. A
`BackoffTable` answers in float64, natural logarithms: `table.logprob`, `token_logprobs`, `advance` and `lidstone score`
(`query.py`). The two walk different arrays, because neither serves for both:

    a table   sorted children and suffix links: rows, whole distributions, mapped, packed and quantised files, float64
    a scorer  one hash look-up per n-gram, and no look-up waits for the one before it in another sentence: on WikiText-2
              (4-grams, one core) about 50 ns a word from text, where a table takes about 240 ns a word from ids

So a scorer made from tables' arrays would be some five times slower, and a table made from a scorer's would have no
rows and 24 of 53 bits. They share the reading of text (`text/tokens`), ids, and the meaning of a state.
"""
