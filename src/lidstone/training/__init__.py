"""Trainer hooks, models and the two tasks."""
