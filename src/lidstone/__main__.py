"""`python -m lidstone` is the command `lidstone`."""

from lidstone.cli.main import run

if __name__ == "__main__":
    run()
