"""The laboratory: corpora, recipes, runs, sweeps and reports. The library never imports it."""
