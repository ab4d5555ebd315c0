"""Scores of models and tests of significance between them; knows nothing of training."""
