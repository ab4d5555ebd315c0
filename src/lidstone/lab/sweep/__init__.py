"""Sweeps of many runs: the grid, the search, the engines that compute cells, and the state of a sweep."""
