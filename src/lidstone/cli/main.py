"""The command `lidstone`: its verbs, each imported only when it is called, and how errors are shown.

A verb is a function in a module of the same name (`lidstone/cli/count.py: count`), or in that of a verb beside which
it stands (`BESIDE`), or a Typer app `<verb>_app` when it has verbs below it. Data goes to stdout, messages go to
stderr. Exit codes: 0 success, 1 an error in the input, 2 an error in the command line, 130 interrupted, 141 the reader
of the output closed the pipe.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperGroup

from lidstone.errors import LidstoneError, describe_os_error

VERBS = {
    "count": "Count the n-grams of a text.",
    "merge": "Add the counts of several texts.",
    "fit": "Fit a smoothed model to counts.",
    "score": "Perplexity of a text under a model.",
    "explain": "Show what smoothing adds and subtracts, word by word.",
    "sample": "Draw sentences from a model.",
    "convert": "Convert a model to ARPA, a table or a KenLM binary.",
    "mix": "Mix several models into one.",
    "prune": "Make a model smaller.",
    "filter": "Score lines or documents by perplexity and keep the best.",
    "asr": "Make the token-level model of a speech decoder.",
    "lmplz": "Estimate a model with the flags of KenLM's lmplz.",
    "build-binary": "Write a KenLM binary with the flags of build_binary.",
    "query": "Score lines with the flags of KenLM's query.",
    "install-kenlm-names": "Make executables of these three names.",
    "data": "Fetch, verify and prepare corpora.",
    "init": "Write a recipe to start from.",
    "train": "Train a regularized neural model.",
    "evaluate": "Evaluate a trained model.",
    "translate": "Translate text with a trained model.",
    "generate": "Continue text with a trained model.",
    "teach": "Store what trained models say of a text, to train others on it.",
    "sweep": "Search settings and train the best with every seed; can be interrupted.",
    "compare": "Test whether one run is better than another.",
    "report": "Tables and figures of finished runs.",
    "pack": "Pack finished runs into one file.",
    "unpack": "Write the runs of a packed file as folders.",
    "demo": "A small experiment on text that comes with Python.",
    "warm": "Compile everything ahead, for images and read-only homes.",
    "env": "Versions, cores and folders, for bug reports.",
}

BESIDE = {
    "merge": "count",
    **dict.fromkeys(("explain", "sample", "convert", "mix", "prune"), "tables"),
    **dict.fromkeys(("translate", "generate"), "evaluate"),
    **dict.fromkeys(("lmplz", "build-binary", "query", "install-kenlm-names"), "kenlm_programs"),
    **dict.fromkeys(("compare", "pack", "unpack"), "report"),
}
"""The modules of verbs that have none of their own."""


class LazyVerbs(TyperGroup):
    """The group of all verbs. Help is written from `VERBS`, so only a verb that is called is imported."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names that shell completion and help show."""
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The verb as a command, or None if there is no such verb."""
        return _command(cmd_name) if cmd_name in VERBS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As in the base class, but the error for an unknown verb suggests the nearest one."""
        if args and args[0] not in VERBS:
            near = difflib.get_close_matches(args[0], VERBS, n=1)
            ctx.fail(f"No such command '{args[0]}'." + (f" Did you mean '{near[0]}'?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the verbs without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; an error that the user can fix becomes two lines and an exit code."""
        with _errors_as_lines():
            result = super().invoke(ctx)
            sys.stdout.flush()  # a full disk or a closed pipe shows here, not at interpreter exit
            return result


def _command(verb: str) -> Any:
    module = importlib.import_module(f"lidstone.cli.{BESIDE.get(verb, verb)}")
    below = getattr(module, f"{verb}_app", None)
    if below is None:
        below = typer.Typer(add_completion=False)
        function = getattr(module, verb.replace("-", "_"))
        below.command(verb, context_settings=getattr(function, "context_settings", None))(function)
    below.rich_markup_mode = None
    return typer.main.get_command(below)


@contextlib.contextmanager
def _errors_as_lines() -> Iterator[None]:
    try:
        yield
    except LidstoneError as error:
        _fail(error.message, error.hint)
    except BrokenPipeError:
        _flush_or_drop()
        raise typer.Exit(141) from None
    except ModuleNotFoundError as error:
        if str(error.name).split(".")[0] == "lidstone":
            raise
        _fail(f"this needs the package {error.name}", "pip install 'lidstone[all]'")
    except OSError as error:
        _fail(describe_os_error(error), "check the path, its permissions and the space on the disk")
    except UnicodeEncodeError as error:
        if error.encoding.lower().startswith("utf"):
            raise
        what = f"{error.object!a} cannot be written in {error.encoding}, the encoding of this environment"
        _fail(what, "set PYTHONUTF8=1, or a locale with UTF-8: LC_ALL=C.UTF-8")
    except MemoryError:
        _fail("out of memory", "use a lower order or count thresholds")


def _fail(message: str, hint: str) -> None:
    from lidstone.cli.console import say

    _flush_or_drop()
    say(f"error: {message}")
    if hint:
        say(f"hint: {hint}")
    raise typer.Exit(1)


def _flush_or_drop() -> None:
    """Flush stdout; if that fails, drop what is buffered, or it would fail again at interpreter exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    from lidstone.cli.console import say

    say(f"warning: {message}")


def _print_version(wanted: bool) -> None:
    if wanted:
        from lidstone import __version__

        print(f"lidstone {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=LazyVerbs,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def main(
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Classical n-gram smoothing, as language models and as regularizers for neural ones."""


def run() -> None:
    """The entry point of the installed command."""
    import warnings

    from lidstone.cli.console import tolerate_any_terminal

    warnings.showwarning = _show_warning
    tolerate_any_terminal()
    app(prog_name="lidstone")
