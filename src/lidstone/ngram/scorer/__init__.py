"""Scoring text in compiled code, with KenLM's numbers: any model is kept the way one of KenLM's formats keeps it.

    models   a `Scorer` of any file or table; `build` gives n-grams their links and packs them into hash tables
    write    the same models as KenLM's binaries
    scorer   the class: sentences, lists of sentences, single words after a state
    blocks   the compiled loops over lines; `step`: one word after one state; `tries`: look-ups in KenLM's tries

A scorer answers in float32, log10, to the last bit as KenLM does: `lidstone.kenlm` and `lidstone filter` ask it. A
`BackoffTable` answers in float64, natural logarithms: `table.logprob`, `token_logprobs`, `advance` and `lidstone score`
(`query.py`). The two walk different arrays, because neither serves for both:

    a table   sorted children and suffix links: rows, whole distributions, mapped, packed and quantised files, float64
    a scorer  one hash look-up per n-gram, asked for in advance for a block of words: on WikiText-2 (the same 3.8
              million n-grams of order 4, one core) 58 ns a word from text; a table takes 240 to 350 ns a word from ids

So scoring text through a table would be four times slower or more, and a table on the arrays of a scorer would have no
rows and 24 of 53 bits. They share the reading of text (`text/tokens`), and the ids where a scorer is made
from a table.
"""
