"""Perplexity of every line or document of a corpus of any size, and the choice of the best.

`text.reader` reads whole lines, `documents` finds the text in them, `scoring` gives each its perplexity, `selection`
says which stay, `output` writes them, `checkpoint` keeps what is needed to go on after a kill, `run` joins all, and
`filter` is the function that users call.
"""
