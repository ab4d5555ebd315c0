"""One file per smoother; `registry` finds them by name."""
