"""The command line: `main`, what several verbs share (`inputs`, `console`), and a file per verb or family of verbs."""
