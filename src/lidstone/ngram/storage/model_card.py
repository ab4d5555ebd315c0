"""The model card of a repository: what each file is, how to load it, and its signature.

A repository may hold several files. Each has a section between two comments, which is replaced when the file is written
again; whatever else a README.md says stays.
"""

from __future__ import annotations

import json
import re
from typing import Any

from lidstone.ngram.counts import Counts
from lidstone.ngram.table import BackoffTable

_HEAD = """---
library_name: lidstone
tags:
- lidstone
- n-gram
- language-model
---

# n-gram models

Files of lidstone: `pip install lidstone`.
"""


def model_card(thing: BackoffTable | Counts, url: str, readme: str | None = None) -> str:
    """README.md with a section about this file, in place of its earlier section if there was one."""
    name = url.rsplit("/", 1)[-1]
    begin, end = f"<!-- lidstone: {name} -->", f"<!-- end of {name} -->"
    section = f"{begin}\n{_section(thing, name, url)}\n{end}"
    text = _HEAD if readme is None else readme
    before = re.compile(re.escape(begin) + r".*?" + re.escape(end), re.DOTALL)
    if before.search(text):
        return before.sub(lambda _: section, text, count=1)
    return f"{text.rstrip()}\n\n{section}\n"


def _section(thing: BackoffTable | Counts, name: str, url: str) -> str:
    table = isinstance(thing, BackoffTable)
    facts = _facts(thing)
    rows = "\n".join(f"| {key} | {value} |" for key, value in facts.items())
    signature = json.dumps(_signature(thing), indent=2, ensure_ascii=False, default=str)
    call = f'{"table" if table else "counts"} = ld.load("{url}")'
    return (
        f"## {name}\n\n| | |\n|---|---|\n{rows}\n\n"
        f"```python\nimport lidstone as ld\n\n{call}\n```\n\nSignature:\n\n```json\n{signature}\n```"
    )


def _facts(thing: BackoffTable | Counts) -> dict[str, Any]:
    kind = thing.signature["smoother"] if isinstance(thing, BackoffTable) else "counts"
    trie = thing.trie
    sizes = [int(trie.levels[k] - trie.levels[k - 1]) for k in range(1, trie.order + 1)]
    return {
        "model": kind,
        "order": trie.order,
        "events": f"{thing.vocab.event_count:,}",
        "n-grams": ", ".join(f"{size:,}" for size in sizes),
    }


def _signature(thing: BackoffTable | Counts) -> dict[str, Any]:
    if isinstance(thing, BackoffTable):
        return thing.signature
    return {"counts": thing.fingerprint, "vocabulary": thing.vocab.fingerprint, "thresholds": list(thing.thresholds)}
