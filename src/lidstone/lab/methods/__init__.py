"""Regularizers to compare with: changed losses, noised inputs, the n-gram residual."""
