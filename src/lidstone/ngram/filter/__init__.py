"""Perplexity of every line or document of a corpus of any size, and the choice of the best.

`documents` finds the text in lines and writes them with scores, `run` scores and chooses, chunk by chunk, `checkpoint`
keeps what is needed to go on after a kill, and `filter` is the function that users call.
"""
