"""Counting beyond memory and beyond one machine."""
