"""The explorer's data, checked and shortened: p, p~, p+ and p- of the words after a history, for each smoother."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from lidstone.errors import FileFormatError
from lidstone.lab.report.labels import LONG

MOST_HISTORIES, MOST_WORDS = 400, 80
COLUMNS = ("p", "smoothed", "plus", "minus")


def explorer_data(explorer: Mapping[str, Any] | None, vocabulary: str = "") -> dict[str, Any] | None:
    """The compact form in the page: words as `[word, p, smoothed, plus, minus]`; None when there are no data.

    With a `vocabulary`, the hash of that of the runs, data of another one are not shown.

    >>> words = [{"word": "the", "p": 0.5, "smoothed": 0.4, "plus": 0.0, "minus": 1.0}]
    >>> made = {"histories": [{"history": ["of"], "count": 2, "smoothers": {"katz": {"z": 0.1, "words": words}}}]}
    >>> explorer_data(made)["histories"][0]["smoothers"]["katz"]["words"]
    [['the', 0.5, 0.4, 0.0, 1.0]]
    """
    if not explorer or not explorer.get("histories"):
        return None
    if vocabulary and explorer.get("vocabulary", vocabulary) != vocabulary:
        return None
    try:
        histories = [_history(entry) for entry in explorer["histories"][:MOST_HISTORIES]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileFormatError(f"explorer.json is damaged: {error!r}", hint="write it again, or remove it") from error
    names = dict.fromkeys(name for history in histories for name in history["smoothers"])
    return {"names": {name: LONG.get(name, name) for name in names}, "histories": histories}


def _history(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "history": [str(token) for token in entry["history"]],
        "count": int(entry["count"]) if entry.get("count") is not None else None,
        "smoothers": {str(name): _smoother(split) for name, split in entry["smoothers"].items()},
    }


def _smoother(split: Mapping[str, Any]) -> dict[str, Any]:
    words = [[str(row["word"]), *(_share(row[key]) for key in COLUMNS)] for row in split["words"][:MOST_WORDS]]
    return {"z": _share(split["z"]), "words": words}


def _share(value: Any) -> float:
    share = float(value)
    if not math.isfinite(share):
        raise ValueError(f"{value} is not a probability")
    return float(f"{share:.6g}")
