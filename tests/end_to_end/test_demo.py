"""`lidstone demo --smoke` does the whole job, on a few steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

METHODS = ["none", "jelinek-mercer", "modified-kneser-ney"]


@pytest.mark.slow
def test_the_smoke_demo_compares_the_methods_and_writes_a_report(tmp_path):
    command = [sys.executable, "-c", "from lidstone.cli.main import run; run()", "demo", "--smoke", "-o", "out"]
    env = {**os.environ, "LIDSTONE_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    records = [json.loads(path.read_text()) for path in (tmp_path / "out" / "smoke" / "runs").glob("*/run.json")]
    assert sorted(record["name"] for record in records) == sorted(METHODS)
    assert len({record["signature"]["model_parameters"] for record in records}) == 1
    best = min(records, key=lambda record: record["metrics"]["test"]["perplexity"])
    assert f"winner: {best['name']}" in done.stdout
    assert f"_{best['metrics']['test']['perplexity']:.2f}_" in done.stdout  # second to the n-gram model
    page = (tmp_path / "out" / "smoke" / "report.html").read_text(encoding="utf-8")
    assert "<html" in page and "Jelinek–Mercer" in page
    ngram, mixture = records[0]["ngram"]["test"]["perplexity"], best["mixture"]["test"]["perplexity"]
    assert f"the {records[0]['ngram']['order']}-gram model of the same text has {ngram:.2f}" in done.stdout
    for shown in ("n-gram alone", f"{ngram:.2f}", "+ n-gram", f"{mixture:.2f}"):
        assert shown in done.stdout and shown in page
