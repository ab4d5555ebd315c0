"""Counting on a Ray cluster."""
