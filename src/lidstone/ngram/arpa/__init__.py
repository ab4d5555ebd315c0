"""ARPA files, read and written."""
