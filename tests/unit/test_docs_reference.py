"""The pages teach public names only, and their tables of keys and options are those of the code."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path

import pytest
from docs import reference

import lidstone

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").glob("*.py"))]
PAGES.append(ROOT / "docs" / "tutorial.ipynb")
MODULES = {"lidstone", "lidstone.kenlm"}
"""What a reader imports. `lidstone.smoothers` is the name of an entry point."""
NAME = re.compile(r"\blidstone\.(?!smoothers\b)[a-z_]+(?:\.\w+)+")


def code(page: Path) -> list[str]:
    """The Python of a page: the file itself, the cells of a notebook, the blocks of a text."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".py":
        return [text]
    if page.suffix == ".ipynb":
        return ["".join(cell["source"]) for cell in json.loads(text)["cells"]]
    return re.findall(r"```(?:python|diff)\n(.*?)```", text, re.DOTALL)


def imported(block: str) -> set[str]:
    """The modules of lidstone that a block imports from, whatever stands before its lines: `+`, `>>>`."""
    found = re.findall(r"^[+\s>.]*(?:from|import) (lidstone[\w.]*)", block, re.MULTILINE)
    return set(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_pages_teach_public_names_only(page: Path) -> None:
    for block in code(page):
        assert imported(block) <= MODULES, f"{page.name} imports {imported(block) - MODULES}"
        names = re.findall(r"^[+\s>.]*from lidstone import ([\w, ]+)", block, re.MULTILINE)
        names += [f"{name}" for name in re.findall(r"\bld\.(\w+)", block)]
        public = {*lidstone.__all__, "kenlm"}
        assert {name.strip() for line in names for name in line.split(",")} <= public, page.name
    if page.suffix == ".md" and page.name != "api.md":
        prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        prose = re.sub(r"logger `[\w.]+`", "", prose)
        assert [name for name in NAME.findall(prose) if not name.startswith("lidstone.kenlm.")] == []


def test_every_public_name_has_an_example() -> None:
    kinds = [name for name in lidstone.__all__ if name != "__version__"]
    assert [name for name in kinds if ">>>" not in (inspect.getdoc(getattr(lidstone, name)) or "")] == []


@pytest.mark.parametrize("page", ["recipes.md", "cli.md"])
def test_the_tables_are_those_of_the_code(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert reference.filled(text) == text, "run python docs/reference.py"


def test_no_section_and_no_verb_is_missing() -> None:
    text = "".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("recipes.md", "cli.md"))
    shown = [(kind, name) for _, kind, name, _ in reference.TABLE.findall(text)]
    expected = [("keys", section) for section in reference.SECTIONS]
    expected += [("options", verb) for verb in reference.verbs()]
    assert sorted(shown) == sorted(expected)


def test_an_import_of_an_inner_module_is_noticed() -> None:
    assert imported(">>> from lidstone.loss.schedule import Schedule\n") == {"lidstone.loss.schedule"}
    assert imported("+import lidstone as ld\n") == {"lidstone"}


EXEMPT = {"reliability.md", "scale.md", *(page.name for page in (ROOT / "docs").glob("results*.md"))}
GUIDES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", [page for page in GUIDES if page.name not in EXEMPT], ids=lambda page: page.name)
def test_paragraphs_are_short(page: Path) -> None:
    """One idea each: 65 words at most. Code, tables, headings and formulas do not count."""
    text = re.sub(r"^```.*?^```|<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    items = re.split(r"\n\s*\n|^\s*(?:[-*]|\d+\.) ", text, flags=re.MULTILINE)
    prose = [re.sub(r"^(?:\||#|    |!|<).*$", "", item, flags=re.MULTILINE).split() for item in items]
    assert [" ".join(words[:9]) for words in prose if len(words) > 65] == []
