"""Scoring in compiled code: hash_tables -> step: one word; blocks: many words -> lines: sentences."""
