"""The errors a user can meet.

    LidstoneError                    an error in the input, never a bug
    ├── InputError                   text, ids or arguments that cannot be used
    │   ├── TextError                unreadable text: bad UTF-8, NUL bytes, reserved words
    │   ├── VocabularyMismatch       two things that were made with different vocabularies
    │   └── RecipeError              a recipe with unknown keys or impossible values
    ├── FileFormatError              a damaged, truncated or foreign file
    ├── SmoothingUndefined           the counts do not determine the estimate
    ├── DataError                    a corpus that cannot be fetched, verified or prepared
    └── RunError                     a training run or sweep that cannot go on

Each has a `hint`: what to do about it. The command line prints both and exits with 1.
"""

from __future__ import annotations

import re


def printable(text: str) -> str:
    r"""The text without control characters and marks of direction, which could act on a terminal; line ends stay.

    >>> print(printable("a\x1b[2Jb"))
    a\x1b[2Jb
    """
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class LidstoneError(Exception):
    """Base of all errors that a user can cause and correct.

    >>> str(LidstoneError("the file is empty", hint="give some text"))
    'the file is empty. hint: give some text'
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message = " ".join(message.splitlines())  # one line, whatever a file or a user put into it
        self.hint = " ".join(hint.splitlines())
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message.rstrip('.')}. hint: {self.hint}" if self.hint else self.message


def describe_os_error(error: OSError) -> str:
    """What the system refused, in one line.

    >>> describe_os_error(OSError(28, "No space left on device", "runs/a"))
    'runs/a: No space left on device'
    """
    what = error.strerror or str(error)
    return f"{error.filename}: {what}" if error.filename else what


class InputError(LidstoneError, ValueError):
    """Text, ids or arguments that cannot be used."""


class TextError(InputError):
    """Text that cannot be read as sentences of words."""


class VocabularyMismatch(InputError):
    """Two things that were made with different vocabularies.

    >>> from lidstone import Vocabulary, WittenBell, count
    >>> table = WittenBell().fit(count([[1, 2]], Vocabulary(size=3, eos=0), order=2))
    >>> table.require(Vocabulary(size=4, eos=0))
    Traceback (most recent call last):
    lidstone.errors.VocabularyMismatch: the table was made with another vocabulary ...
    """


class RecipeError(InputError):
    """A recipe with unknown keys or impossible values."""


class FileFormatError(LidstoneError):
    """A damaged, truncated or foreign file."""


def format_error(
    name: object, what: str, *, line: int | None = None, hint: str = "make the file again, or copy it again"
) -> FileFormatError:
    """The error for a file that cannot be read, or for one line of it.

    >>> format_error("a.arpa", "it is empty").message, format_error("a.arpa", "no number", line=3).message
    ('a.arpa cannot be used: it is empty', 'a.arpa, line 3: no number')
    """
    return FileFormatError(
        f"{name} cannot be used: {what}" if line is None else f"{name}, line {line}: {what}", hint=hint
    )


class SmoothingUndefined(LidstoneError):
    """The counts do not determine the estimate.

    >>> from lidstone import ModifiedKneserNey, Vocabulary, count
    >>> ModifiedKneserNey().fit(count([[1, 2], [1]], Vocabulary(size=3, eos=0), order=1))
    Traceback (most recent call last):
    lidstone.errors.SmoothingUndefined: modified-kneser-ney is undefined for order 1: ...
    """


class DataError(LidstoneError):
    """A corpus that cannot be fetched, verified or prepared."""


class RunError(LidstoneError):
    """A training run or sweep that cannot go on."""
