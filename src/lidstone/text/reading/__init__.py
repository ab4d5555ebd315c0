"""Bytes and lines of inputs: names, kinds of files, streams, ranges of lines."""
