"""Scores of models and tests of significance between them; independent of training."""
