"""Recipes: the keys they may have, the defaults, and the error messages for mistakes."""
