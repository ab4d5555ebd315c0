"""KenLM's data structures: its binary files, and a scorer that keeps any model the way its probing format does.

    files    header -> probing_file, trie_file (packing) -> binary: scorers and tables; load: any file
    models   levels: the n-grams of ARPA sections and tables -> build -> sources: scorers
    scoring  memory, hash_tables, words -> step: one word, blocks: many -> lines: sentences -> batches, scorer

`lidstone/kenlm.py` gives a scorer the interface of the kenlm module.
"""
