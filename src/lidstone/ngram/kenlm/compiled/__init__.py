"""Scoring in compiled code: memory, hash_tables, words -> step: one word; blocks: many words -> lines: sentences."""
