"""Shell completion of values: smoothers, recipes, runs. Nothing heavy is imported.

`lidstone --install-completion` installs it in your shell.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path


def smoothers(incomplete: str) -> list[str]:
    """Names of smoothers.

    >>> smoothers("ka")
    ['katz']
    """
    from lidstone.ngram.smoothers.registry import smoother_names

    return [name for name in smoother_names() if name.startswith(incomplete)]


def recipes(incomplete: str) -> list[str]:
    """Names of lidstone's own recipes, and recipe files.

    >>> recipes("wikitext2_")
    ['wikitext2_small']
    """
    folder = Path(__file__).parents[1] / "lab" / "recipe" / "recipes"
    names = sorted(path.stem for path in folder.glob("*.yaml") if path.stem.startswith(incomplete))
    files = [path for path in _paths(incomplete) if path.suffix in (".yaml", ".yml")]
    return names + [str(path) for path in files] + [f"{path}/" for path in _folders(incomplete)]


def runs(incomplete: str) -> list[tuple[str, str]]:
    """Folders of runs, with the method and seed of each, in folders whose names begin with the typed text."""
    near = [path for path in _folders(incomplete) if (path / "run.json").is_file()]
    inside = [file.parent for folder in _folders(incomplete) for file in sorted(folder.glob("*/run.json"))]
    return [(str(path), _title(path)) for path in [*near, *inside]]


def _paths(incomplete: str) -> Iterator[Path]:
    """Files and folders whose names begin with the typed text."""
    typed = Path(incomplete)
    folder, start = (typed, "") if incomplete.endswith("/") or not incomplete else (typed.parent, typed.name)
    if folder.is_dir():
        yield from (path for path in sorted(folder.iterdir()) if path.name.startswith(start))


def _folders(incomplete: str) -> list[Path]:
    return [path for path in _paths(incomplete) if path.is_dir() and not path.name.startswith(".")]


def _title(run: Path) -> str:
    try:
        record = json.loads((run / "run.json").read_text(encoding="utf-8"))
        return f"{record['name']}, seed {record['seed']}"
    except (OSError, ValueError, LookupError, TypeError):
        return ""
