"""`lidstone data`: fetch corpora by name, and prepare a recipe's corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from lidstone.cli.console import print_json, print_table, say
from lidstone.cli.inputs import JSON, complete_recipes, not_stdout

data_app = typer.Typer(no_args_is_help=True, help="Fetch, verify and prepare corpora.", add_completion=False)

SIZES = ("samples", "dropped", "longest")


@data_app.command()
def get(
    name: Annotated[str, Argument(help="wikitext2, wikitext2-raw, iwslt14, multi30k or wmt14.")],
    as_json: JSON = False,
) -> None:
    """Download a corpus into the cache, or verify it if it is there already."""
    from lidstone.lab.corpus.download import get_dataset
    from lidstone.lab.corpus.named import CORPORA

    if name in CORPORA and CORPORA[name].downloads:
        say(f"{name}: {CORPORA[name].licence}")
    fetched = get_dataset(name)
    if as_json:
        facts = {"name": name, "folder": str(fetched.folder), "fresh": fetched.fresh, "files": fetched.files}
        print_json(facts)
        return
    print(fetched.folder)
    say(f"{'fetched' if fetched.fresh else 'already in the cache'}: {len(fetched.files)} files, checksums correct")


@data_app.command("list")
def list_corpora(as_json: JSON = False) -> None:
    """List the corpora known by name, where each was found, and which files are missing."""
    from lidstone.lab.corpus.named import CORPORA

    found = [CORPORA[name].locate() for name in sorted(CORPORA)]
    if as_json:
        print_json([corpus.to_dict() for corpus in found])
    else:
        rows = [[corpus.name, corpus.state, str(corpus.folder or "-"), corpus.licence] for corpus in found]
        print_table(["name", "here", "folder", "licence"], rows)


@data_app.command()
def prepare(
    recipe: Annotated[
        str, Argument(autocompletion=complete_recipes, help="A recipe file, or the name of one of lidstone's own.")
    ],
    settings: Annotated[list[str] | None, Option("--set", help="Override: key.sub=value.")] = None,
    output: Annotated[
        Path | None, Option("--output", "-o", callback=not_stdout, help="Folder to write; default: the cache.")
    ] = None,
    as_json: JSON = False,
) -> None:
    """Tokenize, clean, split and encode a recipe's corpus; training finds the result in the cache."""
    from lidstone.lab.corpus.prepare import prepare_corpus
    from lidstone.lab.recipe.recipe import load_recipe

    prepared = prepare_corpus(load_recipe(recipe, settings or []), output)
    manifest = {key: value for key, value in prepared.manifest.items() if key not in ("references", "files")}
    if as_json:
        print_json({"folder": str(prepared.folder), **manifest})
        return
    _print_splits(manifest)
    print(prepared.folder)


def _print_splits(manifest: dict[str, Any]) -> None:
    sides = ["target", "source"] if manifest["vocabulary"]["source"] else ["target"]
    headers = ["split", *SIZES, *(f"{side} tokens" for side in sides)]
    rows = [
        [split, *(f"{facts[key]:,}" for key in SIZES), *(f"{facts['tokens'][side]:,}" for side in sides)]
        for split, facts in manifest["splits"].items()
    ]
    print_table(headers, rows)
    print("vocabulary " + ", ".join(f"{side} {manifest['vocabulary'][side]:,}" for side in sides))
