"""The steps, by name.

python -m results pages                       docs/results.md, its pictures, a page for each study, the README's summary
python -m results ngrams [TEXT...]            ngrams.json: the n-gram model alone on the text of every study
python -m results blimp BLIMP.jsonl RUN...    blimp.json: minimal pairs under networks, n-gram models and mixtures
python -m results rescore RUN...              add the n-gram model and the mixture to finished runs
python -m results mixed METHOD RUN...         mixtures.json: networks and n-grams of the text of a method's table
python -m results again RUN...                train runs again and compare their metrics

A RUN of `blimp`, `rescore` and `mixed` is a folder that still has its `model/`; that of `again` may be
results/wikitext2.runs/ID, too.
"""

from __future__ import annotations

import sys

from lidstone.errors import LidstoneError


def main(step: str = "", *arguments: str) -> int:
    """Take a step; 1 if it failed, 2 if there is no such step."""
    from results import measure, pages

    steps = {
        "pages": pages.write_pages,
        "ngrams": measure.ngrams,
        "blimp": measure.blimp,
        "rescore": measure.rescore,
        "mixed": measure.mixed,
        "again": measure.again,
    }
    if step not in steps:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        steps[step](*arguments)
    except LidstoneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
