"""The studies of this project: recipes, their runs (one packed file each), and the steps that measure and show them.

`python -m results` lists the steps.
"""

from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
README = HERE.parent / "README.md"
PAGES = HERE
"""where the page of each study is written"""
NGRAMS = HERE / "ngrams.json"
BLIMP = HERE / "blimp.json"
