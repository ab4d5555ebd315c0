"""The pages about the runs in this folder: `make results`.

docs/results.md, the README and a few guides are written by hand; their numbers (see `numbers`) and the tables between
`<!-- table: NAME -->` and `<!-- end -->` are filled in from the runs. The pages docs/results-NAME.md, with all tables
of a study, and the pictures are written whole.
"""

from __future__ import annotations

import re

import results
from lidstone.files import write_text
from results.chapters import TITLES, details, means
from results.ladder import ladder
from results.numbers import fill
from results.study import Study, missing_cells

TABLE = re.compile(r"(<!-- table: ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)
LADDER = "ladder.svg"
WRITTEN = ("results", "getting-started", "integrations")
"""pages of the docs that are written by hand, with numbers of runs"""


def write_pages() -> None:
    """Write the pictures and the pages of the studies, and fill in the pages that are written by hand."""
    write_text(results.DOCS / "images" / LADDER, ladder(Study.of("tatoeba")))
    for name in TITLES:
        write_text(results.DOCS / f"results-{name}.md", details(name))
    for page in (results.README, *(results.DOCS / f"{name}.md" for name in WRITTEN)):
        write_text(page, filled(page.read_text(encoding="utf-8")))


def filled(text: str) -> str:
    """The text of a page with the numbers and the tables of the runs."""
    return fill(TABLE.sub(lambda found: found[1] + _table(found[2]) + found[3], text))


def _table(name: str) -> str:
    return not_run() if name == "not run" else f"\n{means(Study.of(name))}\n"


def not_run() -> str:
    """Which settings and seeds of the recipes have not been trained."""
    waiting = {name: missing_cells(Study.of(name)) for name in TITLES}
    return "".join(f"- {name}: {cells}\n" for name, cells in waiting.items() if cells) or "Nothing.\n"
