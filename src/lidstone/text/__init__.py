"""From raw text to ids: vocabularies, tokenizers, and what a history is; `reading/` opens files."""
