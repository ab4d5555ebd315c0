"""What compiled functions may call and be called from, and how many of them a first call compiles."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import lidstone
from lidstone import jit
from lidstone.ngram.scorer import blocks

PACKAGE = Path(lidstone.__file__).parent
COMPILED = {"kernel", "helper", "inlined", "overload", "njit"}
SOURCES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): ast.parse(path.read_text(encoding="utf-8"))
    for path in PACKAGE.rglob("*.py")
}


def decorators(function: ast.FunctionDef) -> set[str]:
    names = (one.func if isinstance(one, ast.Call) else one for one in function.decorator_list)
    return {name.id for name in names if isinstance(name, ast.Name)}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def called(tree: ast.AST) -> set[str]:
    return {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}


def imported(tree: ast.AST) -> set[tuple[str, str]]:
    froms = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return {(str(node.module), alias.name) for node in froms for alias in node.names}


def test_python_does_not_call_what_has_no_code_for_that():
    """Such a call would end the process."""
    helpers = {
        name: {one.name for one in functions(tree) if decorators(one) & {"helper", "inlined"}}
        for name, tree in SOURCES.items()
    }
    assert {"next_token", "word_hash"} <= helpers["lidstone.text.tokens"]
    passed = {"score_word", "score_sentence"}  # compiled by `methods.code_of`
    for name, tree in SOURCES.items():
        known = helpers[name] | {what for module, what in imported(tree) if what in helpers.get(module, ())}
        for one in functions(tree):
            if not decorators(one) & COMPILED and one.name not in passed:
                assert not called(one) & known, (name, one.name)


def test_code_on_disk_is_of_these_sources(tmp_path):
    """A kernel has helpers of other files inside; numba looks at its own file only."""
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.py").write_text("one = 1")
    before = jit._fingerprint(tmp_path)
    assert jit._fingerprint(tmp_path) == before
    (tmp_path / "text" / "a.py").write_text("one = 2")
    assert jit._fingerprint(tmp_path) != before
    assert blocks.score_blocks._cache._cache_file._source_stamp[1] == jit._SOURCES
