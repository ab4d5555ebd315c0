"""One run, from a recipe to its record."""
