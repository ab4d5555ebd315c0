"""Smoothing as a training loss: the signed split, the fused losses, and their dense reference."""
