"""Compiling ahead: what a cold process says, how processes share the work, and code that cannot be written to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.other_user import NOBODY, ROOT, as_user, interpreter, open_way_to
from typer.testing import CliRunner

from lidstone.cli.main import app
from lidstone.cli.warm import COMMANDS
from lidstone.parallel import cores

MODEL = """\\data\\
ngram 1=4
ngram 2=2

\\1-grams:
-1.0\t<unk>
-99\t<s>\t-0.3
-0.7\t</s>
-0.5\ta\t-0.2

\\2-grams:
-0.2\t<s> a
-0.4\ta </s>

\\end\\
"""
SCORE = """
import lidstone.kenlm as kenlm
print(kenlm.Model("m.arpa").score("a"))
"""
SAYS = "compiling for this machine, once; `lidstone warm` does it ahead\n"


def score(folder: Path, code: str = SCORE, **options: object) -> subprocess.CompletedProcess[str]:
    (folder / "m.arpa").write_text(MODEL, encoding="utf-8")
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]), "PATH": os.environ["PATH"]}
    environment |= options.pop("env", {})  # type: ignore[arg-type]
    python = options.pop("python", sys.executable)
    return subprocess.run([python, "-c", code], cwd=folder, env=environment, capture_output=True, text=True,
                          check=True, **options)  # type: ignore[call-overload, no-any-return]  # fmt: skip


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what one sentence needs; the first process said once that it compiles."""
    folder = tmp_path_factory.mktemp("warm")
    first = score(folder, env={"NUMBA_CACHE_DIR": str(folder / "cache"), "NUMBA_CPU_NAME": "generic"})
    assert first.stderr == SAYS and first.stdout == "-0.6000000238418579\n"
    return folder


def test_a_warm_process_says_nothing_and_compiles_nothing(warm: Path) -> None:
    before = sorted((warm / "cache").rglob("*.nbc"))
    second = score(warm, env={"NUMBA_CACHE_DIR": str(warm / "cache"), "NUMBA_CPU_NAME": "generic"})
    assert second.stderr == "" and sorted((warm / "cache").rglob("*.nbc")) == before
    assert any("methods.score_sentence" in path.name for path in before)


def test_what_cannot_be_written_is_used(warm: Path, tmp_path: Path) -> None:
    """As in an image: the compiled code belongs to root, the process does not."""
    python, path = interpreter()
    open_way_to(warm)
    open_way_to(tmp_path)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    temporary.chmod(0o777)
    own = {"NUMBA_CACHE_DIR": str(warm / "cache"), "NUMBA_CPU_NAME": "generic", "TMPDIR": str(temporary)}
    for _ in range(2):
        done = score(warm, python=python, env={"PYTHONPATH": path, **own}, **as_user(NOBODY))
        assert done.stderr == "" and done.stdout == "-0.6000000238418579\n"
    copies = {file.name for file in temporary.rglob("*.nbc")}
    assert copies == {file.name for file in (warm / "cache").rglob("*.nbc")}


@pytest.mark.skipif(cores() < 2, reason="one core compiles one function after the other")
def test_another_process_compiles_what_comes_next(tmp_path: Path) -> None:
    code = """
import subprocess
started = []
class Popen(subprocess.Popen):
    def __init__(self, command, **options):
        started.append(command[-1])
        super().__init__(command, **options)
subprocess.Popen = Popen
from lidstone.jit import compile_elsewhere, wait_for
from lidstone.ngram.scorer import methods
methods.compile_ahead(), methods.compile_ahead()
wait_for(methods._compile_sentences)
print(len(started), "_compile_sentences" in started[0])
from numba.core import event
class Listener(event.Listener):
    def on_start(self, found): raise SystemExit("compiled once more")
    def on_end(self, found): pass
event.register("numba:compile", Listener())
methods.code_of(methods.score_sentence)
methods.compile_ahead()
print(len(started))
"""
    assert score(tmp_path, code, env={"NUMBA_CACHE_DIR": str(tmp_path / "cache")}).stdout == "1 True\n1\n"


def test_what_another_process_cannot_compile_this_one_does(tmp_path: Path) -> None:
    code = SCORE.replace("import", "import sys; sys.executable = 'python-that-is-not-there'\nimport", 1)
    with pytest.raises(subprocess.CalledProcessError):
        score(tmp_path, "raise SystemExit(3)")
    done = score(tmp_path, code.replace("'python-that-is-not-there'", "'/bin/false'"),
                 env={"NUMBA_CACHE_DIR": str(tmp_path / "cache")})  # fmt: skip
    assert done.stdout == "-0.6000000238418579\n" and done.stderr == SAYS


def test_commands_of_warm_name_their_inputs() -> None:
    """Every file that a command reads is the text, or was written by one before."""
    made = {"text", "large"}
    for command in COMMANDS.strip().splitlines():
        words = command.split()
        named = [word[1:] for word in words if word.startswith("@")]
        written = named[-1] if words[0] in {"count", "fit", "convert", "filter", "prune", "mix"} else None
        assert set(named) - {written} <= made, command
        made |= {written} if written else set()


@pytest.mark.slow
def test_after_warm_usual_commands_compile_nothing(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    code = f"from lidstone.cli.main import app; app(['warm', '--folder', {str(cache)!r}, '--cpu', 'generic', '--json'])"
    done = score(tmp_path, code)
    assert '"NUMBA_CPU_NAME": "generic"' in done.stdout and done.stderr == ""
    before = sorted(cache.rglob("*.nbc"))
    names = {path.name.partition("-")[0] for path in before}
    assert {"interning.intern", "methods.score_word", "ccnet.normalize"} & names
    variables = {"NUMBA_CACHE_DIR": str(cache), "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    assert score(tmp_path, env=variables).stderr == ""
    for verb in ("count text --order 4 --output c", "fit c --smoother witten-bell --output t", "score t text --json"):
        (tmp_path / "text").write_text("a b\na c\n", encoding="utf-8")
        assert "compiling" not in score(tmp_path, f"from lidstone.cli.main import app; app({verb.split()})",
                                        env=variables).stderr  # fmt: skip
    assert sorted(cache.rglob("*.nbc")) == before


def test_a_processor_that_is_not_known_is_one_line(tmp_path: Path) -> None:
    code = "from lidstone.cli.main import app; app(['warm', '--cpu', 'pentium-of-tomorrow'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False,
                          env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)})  # fmt: skip
    assert done.returncode == 1 and done.stderr.startswith("error: ") and "Traceback" not in done.stderr


def test_help_is_there() -> None:
    assert "x86-64-v3" in CliRunner().invoke(app, ["warm", "--help"]).stdout
