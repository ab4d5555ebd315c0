"""For the API pages: doctests in docstrings become blocks of code."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object


class DoctestBlocks(Extension):
    """Fences every paragraph of a docstring that begins with a prompt."""

    def on_instance(self, *, obj: Object, **more: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """The text with its doctests fenced, without what only the tests read.

    >>> print(fenced("A sum.\\n\\n>>> 1 + 1\\n2"))
    A sum.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    text = re.sub(r" *# doctest: .*", "", text)
    return re.sub(
        r"^>>> .*?(?=\n\n|\Z)", lambda block: f"```pycon\n{block[0]}\n```", text, flags=re.MULTILINE | re.DOTALL
    )
