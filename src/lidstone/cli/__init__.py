"""The command line: `main`, what several verbs share, and one file per verb in `ngram/` and `experiment/`."""
