"""docs/cli.md shows what the program prints today."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from lidstone import __version__
from lidstone.cli.main import app

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
TEXT = re.sub(r"lidstone:\d+\.\d+\.\w+", f"lidstone:{__version__}", PAGE)  # as the site shows it
PROMPT = re.compile(r'^\$ (?:echo "(?P<stdin>[^"]*)" \| )?lidstone (?P<arguments>.*)$')


def examples() -> list[tuple[str, str]]:
    """Every command after a prompt, with what the page says it prints."""
    blocks = re.findall(r"```console\n(.*?)```", TEXT, re.DOTALL)
    parts = [part for block in blocks for part in re.split(r"^(?=\$ )", block, flags=re.MULTILINE) if part]
    return [(part.split("\n", 1)[0], part.split("\n", 1)[1]) for part in parts]


def rounded(text: str) -> str:
    """With six decimals at most, and without the progress that a slow machine shows: both differ between machines."""
    return re.sub(r"(\d+\.\d{6})\d+", r"\1", re.sub(r"^filtering: .*\n", "", text, flags=re.MULTILINE))


def test_the_examples_print_what_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (_, pets), *commands = examples()
    Path("pets.txt").write_text(pets, encoding="utf-8")
    for command, expected in commands:
        parts = PROMPT.match(command)
        stdin = (parts["stdin"] or "") + "\n"
        result = CliRunner().invoke(app, shlex.split(parts["arguments"]), input=stdin)
        assert rounded(result.output) == rounded(expected), command
    assert len(commands) >= 8
