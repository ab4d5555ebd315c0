"""From raw text to ids: source, reader, tokens, words; vocabularies, subwords, training data, and what a history is."""
