"""KenLM's data structures: its binary files, and a scorer that keeps any model the way its probing format does.

    files    header -> probing_file, trie_file (packing) -> binary: scorers and tables; load: any file
    models   levels: the n-grams of ARPA sections and tables -> build -> sources: scorers
    scoring  compiled: words and sentences -> batches -> scorer: the class

`lidstone/kenlm.py` gives a scorer the interface of the kenlm module.
"""
