"""Who may import whom, read from the sources with ast; and what `import lidstone` must not drag in."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lidstone

PACKAGE = Path(lidstone.__file__).parent
ANYONE = {"errors", "files", "jit", "kernel_cache", "parallel", "progress"}
ANYONE |= {"ray_cluster"}
TOOLKIT = {"text", "ngram", "loss"}
LIBRARY = TOOLKIT | {"hf"}
RUN = LIBRARY | {"lab.corpus", "lab.recipe", "lab.methods", "lab.evaluation", "lab.run"}
MAY_IMPORT = {
    "text": {"text"},
    "ngram": {"text", "ngram"},
    "loss": TOOLKIT,
    "hf": LIBRARY,
    "lab": set(),
    "lab.methods": LIBRARY | {"lab.methods"},
    "lab.evaluation": LIBRARY | {"lab.recipe", "lab.evaluation"},
    "lab.recipe": LIBRARY | {"lab.methods", "lab.recipe"},
    "lab.corpus": {"text", "lab.recipe", "lab.corpus"},
    "lab.report": {"lab.methods", "lab.evaluation", "lab.report"},
    "lab.run": RUN,
    "lab.sweep": RUN | {"lab.report", "lab.sweep"},
    "cli": RUN | {"lab.report", "lab.sweep", "kenlm", "cli"},
    "kenlm": {"text", "ngram"},
    "__main__": {"cli"},
    **{name: set() for name in ANYONE},
}
WITHOUT = {
    "text": {"torch"},
    "kenlm": {"torch", "transformers"},
    "ngram": {"torch", "transformers"},
    "lab.report": {"torch", "transformers"},
}
HEAVY = ("torch", "transformers", "numba", "numpy", "scipy", "matplotlib", "optuna", "ray", "datasets")

MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def owner(path: Path) -> str:
    """The part of the package that a file belongs to: `ngram`, `lab.sweep`, `errors`."""
    return part_of(dotted(path).split(".")[1:])


def part_of(names: list[str]) -> str:
    """`ngram` for `ngram.table.BackoffTable`; of the laboratory, which has storeys of its own, `lab.sweep`."""
    return ".".join(names[:2]) if names[0] == "lab" else names[0]


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, anywhere in it: `from lidstone import load` gives `lidstone.load`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ours(path: Path) -> set[str]:
    """The parts of lidstone that a file imports; its version belongs to no part."""
    names = {part_of(name.split(".")[1:]) if "." in name else name for name in imports(path) if is_ours(name)}
    return names - {"__version__"}


def is_ours(name: str) -> bool:
    return name.split(".")[0] == "lidstone"


def dotted(path: Path) -> str:
    return ".".join(("lidstone", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_imports_only_what_its_layer_may(path):
    forbidden = ours(path) - MAY_IMPORT[owner(path)] - ANYONE
    assert not forbidden, f"{name_of(path)} must not import lidstone.{', lidstone.'.join(sorted(forbidden))}"


@pytest.mark.parametrize("path", [path for path in MODULES if owner(path) in WITHOUT], ids=name_of)
def test_text_ngram_and_report_work_without_torch(path):
    assert not WITHOUT[owner(path)] & {name.split(".")[0] for name in imports(path)}


def test_the_split_has_never_heard_of_a_particular_smoother():
    split = PACKAGE / "loss" / "split.py"
    assert not [name for name in imports(split) if name.startswith("lidstone.ngram.smoothers")]


def heavy_modules_after(code: str) -> str:
    show = f"import sys; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    command = [sys.executable, "-c", f"{code}\n{show}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_importing_lidstone_imports_nothing_heavy():
    assert heavy_modules_after("import lidstone, lidstone.errors; dir(lidstone)") == ""


@pytest.mark.parametrize("code, most", [
    ("import lidstone", 60),  # 37 in Python 3.11, all of the standard library
    ("from lidstone.cli.main import app; app(['--help'], standalone_mode=False)", 160),  # 117, with those of typer
])  # fmt: skip
def test_start_imports_few_modules(code, most):
    """Seconds differ between machines and their load; modules do not."""
    count = f"import sys; before = set(sys.modules)\n{code}\nprint(len(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", count], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) <= most


def test_importing_the_ngram_side_does_not_import_torch():
    assert "torch" not in heavy_modules_after("import lidstone as ld; ld.count; ld.load; ld.Katz; ld.read_arpa")


def test_no_verb_imports_anything_heavy_before_it_runs():
    verbs = [dotted(path) for path in MODULES if owner(path) == "cli"]
    assert "lidstone.cli.count" in verbs
    assert heavy_modules_after(f"import {', '.join(verbs)}") == ""


def test_env_needs_no_package_of_the_extras():
    """It is what a report of a bug begins with, whatever is installed."""
    code = "import sys\nfrom lidstone.cli.env import environment\nenvironment()\nprint('yaml' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


@pytest.mark.parametrize("name", lidstone.__all__)
def test_every_public_name_is_there(name):
    assert getattr(lidstone, name) is not None


def test_an_unknown_name_is_an_ordinary_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        lidstone.nonsense  # noqa: B018


def test_type_checkers_export_every_public_name():
    """In a stub, only `from module import name as name` is a public name."""
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    found = [alias for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert [alias.asname for alias in found] == [alias.name for alias in found]
    assert {alias.name for alias in found} == set(lidstone.__all__) - {"__version__"}
