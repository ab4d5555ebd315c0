"""Many runs: the grid, the search, where cells are computed, and how far a sweep is."""
