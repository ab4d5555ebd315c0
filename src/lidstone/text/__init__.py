"""From raw text to ids: vocabularies, tokenizers, readers, and what a history is."""
