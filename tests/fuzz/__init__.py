"""Hostile input for every parser. `python -m tests.fuzz --help` runs as much of it as you like."""
