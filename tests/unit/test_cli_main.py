"""The command line as such: help, versions, exit codes, and what becomes of errors in any verb."""

from __future__ import annotations

import errno
import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import lidstone
from lidstone.cli import main as cli
from lidstone.cli.console import print_pairs, print_table
from lidstone.errors import LidstoneError

LIDSTONE = [sys.executable, "-c", "from lidstone.cli.main import run; run()"]


def run(*arguments: str):
    return CliRunner().invoke(cli.app, list(arguments))


@pytest.fixture
def verb(monkeypatch):
    """Put a function in the place of the verb `env`."""

    return functools.partial(monkeypatch.setattr, "lidstone.cli.env.env")


def failing(error: BaseException):
    def env() -> None:
        raise error

    return env


def test_help_lists_every_verb_with_its_line():
    result = run("--help")
    assert result.exit_code == 0
    for name in cli.VERBS:
        assert f"  {name} " in result.stdout
        assert cli.VERBS[name].split()[0] in result.stdout


def test_every_module_of_a_verb_is_listed():
    modules = {path.stem for path in Path(cli.__file__).parent.rglob("*.py")}
    assert modules - {"__init__", "main", "console", "inputs"} == {cli.BESIDE.get(verb, verb) for verb in cli.VERBS}


@pytest.mark.parametrize("name", cli.VERBS)
def test_every_verb_has_help(name):
    result = run(name, "--help")
    assert result.exit_code == 0, result.output
    assert f" {name} " in result.stdout.splitlines()[0]


def test_help_imports_no_verb():
    code = "import sys; from lidstone.cli.main import app\ntry: app(['--help'])\nexcept SystemExit: pass\n"
    show = "print(*[name for name in sys.modules if name.startswith('lidstone.cli.')])"
    done = subprocess.run([sys.executable, "-c", code + show], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "lidstone.cli.main"


def test_version():
    assert run("--version").stdout == f"lidstone {lidstone.__version__}\n"


def test_the_version_is_that_of_the_installed_package():
    from importlib import metadata

    assert metadata.version("lidstone") == lidstone.__version__


@pytest.mark.parametrize("arguments", [["evn"], ["env", "--jsn"], ["env", "surplus"], []])
def test_a_wrong_command_line_exits_with_2(arguments):
    assert run(*arguments).exit_code == 2


def test_an_unknown_verb_is_answered_with_the_nearest():
    assert "Did you mean 'env'?" in run("evn").stderr
    assert "Did you mean" not in run("xyzzy").stderr


def test_an_error_is_two_lines_on_stderr_and_exit_1(verb):
    verb(failing(LidstoneError("the file is empty", hint="give some text")))
    result = run("env")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "error: the file is empty\nhint: give some text\n"


def test_an_error_without_a_hint_is_one_line(verb):
    verb(failing(LidstoneError("no")))
    assert run("env").stderr == "error: no\n"


def test_control_characters_never_reach_the_terminal(verb, capsys):
    verb(failing(LidstoneError("no file a\x1b[2Jb", hint="c\x9bd")))
    assert run("env").stderr == "error: no file a\\x1b[2Jb\nhint: c\\x9bd\n"
    print_table(["method"], [["\x1b]0;title\x07"]])
    print_pairs({"method": "left \u202e right"})
    assert capsys.readouterr().out == "method\n\\x1b]0;title\\x07\nmethod  left \\u202e right\n"


def test_a_full_disk_is_no_traceback(verb):
    verb(failing(OSError(errno.ENOSPC, "No space left on device", "big.file")))
    result = run("env")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: big.file: No space left on device\nhint: ")


def test_a_missing_package_names_the_way_to_get_it(verb):
    verb(failing(ModuleNotFoundError("No module named 'torch'", name="torch")))
    result = run("env")
    assert result.exit_code == 1
    assert result.stderr == "error: this needs the package torch\nhint: pip install 'lidstone[all]'\n"


def test_a_bug_keeps_its_traceback(verb):
    verb(failing(ZeroDivisionError("a bug")))
    assert isinstance(run("env").exception, ZeroDivisionError)


def test_running_out_of_memory_is_no_traceback(verb):
    verb(failing(MemoryError()))
    result = run("env")
    assert (result.exit_code, result.stderr.splitlines()[0]) == (1, "error: out of memory")


def test_an_interrupt_exits_with_130(verb):
    verb(failing(KeyboardInterrupt()))
    assert run("env").exit_code == 130


@pytest.mark.unix
def test_a_full_device_on_stdout_is_one_error():
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run([*LIDSTONE, "env"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "error: No space left on device"


def test_a_reader_that_goes_away_is_not_an_error():
    process = subprocess.Popen([*LIDSTONE, "env"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()  # before the program writes: it starts slower than this line runs
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 141


def test_warnings_are_one_line_without_source_code():
    code = """if True:
        import warnings
        from lidstone.cli import main
        main.app = lambda **_: warnings.warn("watch out")
        main.run()"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "warning: watch out\n"


def test_env_names_versions_and_cores(tmp_path, monkeypatch):
    monkeypatch.setenv("LIDSTONE_CACHE", str(tmp_path))
    facts = json.loads(run("env", "--json").stdout)
    assert facts["versions"]["lidstone"] == lidstone.__version__
    assert facts["versions"]["numpy"]
    assert facts["cores"] >= facts["usable_cores"] >= 1
    assert facts["folders"]["cache"] == str(tmp_path)


def test_env_as_text_has_one_fact_a_line():
    lines = run("env").stdout.splitlines()
    assert f"lidstone           {lidstone.__version__}" in lines


def test_a_table_on_a_narrow_terminal_breaks_no_word(capsys, monkeypatch):
    from lidstone.cli.console import _print_rich_table

    def shown(columns):
        monkeypatch.setenv("COLUMNS", str(columns))
        _print_rich_table(["run", "bleu", "note"], [["9cfeacdc7bab", "12.10", "still improving at the end"]])
        return [line.split() for line in capsys.readouterr().out.splitlines() if line.split()]

    assert shown(80)[-1] == ["9cfeacdc7bab", "12.10", "still", "improving", "at", "the", "end"]
    assert ["9cfeacdc7bab", "12.10", "still", "improving"] in shown(44)  # the text is wrapped
    assert shown(30)[:2] == [["run", "9cfeacdc7bab"], ["bleu", "12.10"]]  # a list
