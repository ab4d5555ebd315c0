"""The n-gram toolkit: the trie of n-grams, counts on it, tables on it, and files of both."""
