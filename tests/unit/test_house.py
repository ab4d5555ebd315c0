"""The plan of the package: one meaning per name, no circles between folders, short ways through the files.

What is allowed nevertheless stands below, with its reason; nothing may be added.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.visits import LIMITS, files_of

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "lidstone"
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").removesuffix("."): path
    for path in PACKAGE.rglob("*.py")
}
LIBRARY = ("text", "ngram", "loss", "hf")
STOREYS = (*LIBRARY, "lab", "cli")

CIRCLES = {
    ("ngram.table", "ngram.formats"),
    ("ngram.counts", "ngram.formats"),
}
"""imports that close a circle: a table saves itself, and counts are identified by the bytes of their arrays"""
NOT_MODULES = {"lidstone.smoothers", "lidstone.json"}
"""dotted names in docstrings that are no modules: the group of entry points, and a file of a run"""
SOURCES = [
    path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if ".venv" not in path.relative_to(ROOT).parts
]


def parsed(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def is_for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def imported(node: ast.AST) -> Iterator[str]:
    """The modules that run-time code imports, anywhere below a node."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ImportFrom) and str(child.module).startswith("lidstone"):
            for alias in child.names:
                name = f"{child.module}.{alias.name}".removeprefix("lidstone.")
                yield name if name in MODULES else name.rpartition(".")[0]
        elif not is_for_type_checkers(child):
            yield from imported(child)


def is_folder(name: str) -> bool:
    return any(module.startswith(f"{name}.") for module in MODULES)


def part_of(folder: str, module: str) -> str | None:
    """The module or folder directly in `folder` that a module is or belongs to; None outside it."""
    inside = module if not folder else module.removeprefix(f"{folder}.") if module.startswith(f"{folder}.") else ""
    return f"{folder}.{inside.split('.')[0]}".removeprefix(".") if inside else None


def parts_of(folder: str) -> dict[str, set[str]]:
    """For each module and folder directly in `folder`, the other ones that it imports from."""
    graph: dict[str, set[str]] = defaultdict(set)
    for module in MODULES:
        here = part_of(folder, module)
        there = {part_of(folder, name) for name in imported(parsed(module)) if name in MODULES} - {here, None}
        if here:
            graph[here] |= {str(name) for name in there if (here, name) not in CIRCLES}
    return graph


def circles(graph: dict[str, set[str]]) -> Iterator[set[str]]:
    """Parts that import each other, directly or through others, if a folder is among them."""
    reached = {part: reach(graph, part) for part in graph}
    for part in filter(is_folder, graph):
        together = {other for other in reached[part] if part in reached.get(other, ())}
        if len(together) > 1:
            yield together


def reach(graph: dict[str, set[str]], start: str) -> set[str]:
    found, pending = set(), [start]
    while pending:
        new = graph.get(pending.pop(), set()) - found
        found |= new
        pending += new
    return found


@pytest.mark.parametrize("folder", ["", *filter(is_folder, MODULES)])
def test_no_folder_imports_what_imports_it(folder):
    assert list(circles(parts_of(folder))) == []


@pytest.mark.parametrize("module", [name for name in MODULES if name.split(".")[0] in LIBRARY])
def test_the_library_does_not_import_the_laboratory(module):
    assert not [name for name in imported(parsed(module)) if name.split(".")[0] in ("lab", "cli")]


def test_no_two_classes_share_a_name():
    found = defaultdict(list)
    for module in MODULES:
        for node in ast.walk(parsed(module)):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(module)
    assert {name: modules for name, modules in found.items() if len(modules) > 1} == {}


def test_no_file_name_occurs_three_times():
    found = defaultdict(list)
    for module, path in MODULES.items():
        if path.stem != "__init__":
            found[path.stem].append(module)
    assert {name: modules for name, modules in found.items() if len(modules) > 2} == {}


@pytest.mark.slow
@pytest.mark.parametrize("job", sorted(LIMITS))
def test_a_job_visits_few_files(job):
    files = files_of(job)
    assert len(files) <= LIMITS[job], "\n".join(files)


def docstrings(module: str) -> Iterator[str]:
    """The texts that explain modules, classes, functions and the fields and constants above them."""
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


def is_known(name: str) -> bool:
    """Whether `lidstone.a.b` is a module, a name in one, or a public name."""
    parts = name.split(".")[1:]
    for cut in range(len(parts), -1, -1):
        home, inside = ".".join(parts[:cut]), parts[cut:]
        if home in MODULES or is_folder(home):
            return not inside or hasattr(importlib.import_module(f"lidstone.{home}".rstrip(".")), inside[0])
    return False


@pytest.mark.parametrize("module", MODULES)
def test_docstrings_name_files_and_modules_that_exist(module):
    text = "\n".join(docstrings(module))
    files = set(re.findall(r"(?<![\w./-])(?:\w+/)*\w+\.py\b", text))
    names = set(re.findall(r"(?<![\w./:-])lidstone(?:\.\w+)+(?![\w/])", text)) - NOT_MODULES
    folders = set(re.findall(rf"`((?:{'|'.join(STOREYS)})/\w+)`", text))
    assert [name for name in files if not any(f"/{path}".endswith(f"/{name}") for path in SOURCES)] == []
    assert [name for name in names if not is_known(name)] == []
    assert [name for name in folders if name.replace("/", ".") not in MODULES and not is_folder(name)] == []
