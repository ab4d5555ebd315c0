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
MIXTURES = HERE / "mixtures.json"
"""networks mixed with n-grams of other text than their own, by run and by the method whose table has that text"""
