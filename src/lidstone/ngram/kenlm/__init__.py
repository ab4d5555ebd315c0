"""KenLM's data structures: its binary files, and a scorer that keeps any model the way its probing format does."""
