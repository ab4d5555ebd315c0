"""The command line: one file per verb, each calling one library function."""
