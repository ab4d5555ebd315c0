"""Old names that still work: each gives a `DeprecationWarning` that says what to write instead.

CHANGELOG.md lists them. An old name stays for at least one minor version after the one that introduced the new name.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)


def warn_renamed(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Say that `old` is now called `new`."""
    warnings.warn(f"{old} is now called {new}", DeprecationWarning, stacklevel=stacklevel)


def renamed_method(old: str, new: str) -> Any:
    """A property that gives the attribute or method `new` under its old name.

    >>> class Table:
    ...     def token_logprobs(self): return [0.0]
    ...     logprobs = renamed_method("logprobs", "token_logprobs")
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     Table().logprobs(), str(caught[0].message)
    ([0.0], 'Table.logprobs is now called Table.token_logprobs')
    """

    def get(self: Any) -> Any:
        kind = type(self).__name__
        warn_renamed(f"{kind}.{old}", f"{kind}.{new}")
        return getattr(self, new)

    return property(get, doc=f"Deprecated: use `{new}`.")


def renamed_field(old: str, new: str) -> Callable[[Class], Class]:
    """Let a dataclass take and give the field `new` under its old name, too."""

    def decorate(kind: Class) -> Class:
        original = kind.__init__  # type: ignore[misc]

        @functools.wraps(original)
        def init(self: Any, *args: Any, **fields: Any) -> None:
            if old in fields:
                warn_renamed(f"{kind.__name__}({old}=)", f"{kind.__name__}({new}=)")
                fields[new] = fields.pop(old)
            original(self, *args, **fields)

        kind.__init__ = init  # type: ignore[misc]
        setattr(kind, old, renamed_method(old, new))
        return kind

    return decorate
