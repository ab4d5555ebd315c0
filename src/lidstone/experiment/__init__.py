"""Recipes, runs and sweeps: the whole pipeline."""
