"""The page on smoothers: its example of one's own works, and no smoother or setting is missing or invented."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np

from lidstone.ngram.counts import count
from lidstone.ngram.smoothers.registry import OWN, smoother_class
from lidstone.text.vocabulary import Vocabulary

PAGE = (Path(__file__).parents[2] / "docs" / "smoothers.md").read_text(encoding="utf-8")


def test_one_row_for_each_with_its_settings() -> None:
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| `(\w+\(.*?\))` \|", PAGE, re.MULTILINE))
    for name in OWN:
        kind = smoother_class(name)
        fields = ", ".join(f"{field.name}={field.default!r}".replace("'", '"') for field in dataclasses.fields(kind))
        assert rows.pop(name) == f"{kind.__name__}({fields})"
    assert not rows


def test_the_example_is_a_smoother() -> None:
    """Dirichlet smoothing: (c + mass * p_lower) / (c(h) + mass)."""
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "class Dirichlet" in block)
    namespace: dict[str, object] = {"__name__": "builtins"}  # dataclass looks its module up
    exec(compile(code, "docs/smoothers.md", "exec", dont_inherit=True), namespace)
    table = namespace["Dirichlet"](mass=2.0).fit(count([[1, 2], [1]], Vocabulary(size=3, eos=0), 2))  # type: ignore[operator]
    base = (np.array([2, 2, 1]) + 2 / 3) / 7
    np.testing.assert_allclose(table.base, base)
    np.testing.assert_allclose(table.prob([[1]])[0], (np.array([1, 0, 1]) + 2 * base) / 4)
