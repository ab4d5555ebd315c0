"""The page as text: self-contained, escaped, moderate in size. What a browser makes of it is tested end to end."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import runpy
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("jinja2", reason="lidstone[report] is not installed")

from lidstone.errors import FileFormatError
from lidstone.lab.report import Report
from lidstone.lab.report.figures import drawing, heat_maps
from lidstone.lab.report.page import explorer_data, page

trees = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[1] / "run_trees.py")))

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    '"><img onerror=alert(1)>',
    "a\u2028b&lt;",
)


class Reader(HTMLParser):
    """Collects elements with their attributes, and text by element."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.text: dict[str, str] = {}
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.elements.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        name = self.open[-1] if self.open else ""
        self.text[name] = self.text.get(name, "") + data


@pytest.fixture
def report(tmp_path: Path) -> Report:
    trees.write_tree(tmp_path, seeds=2, grid=True, explorer=True, names=("none", "add-lambda", "katz"))
    return Report.from_runs(tmp_path)


def test_every_section_is_there(report: Report) -> None:
    ids = {attributes.get("id") for _, attributes in Reader(page(report)).elements}
    assert {"results", "best-seeds", "curves", "strengths", "explorer", "details", "explorer-data"} <= ids


def test_nothing_points_outside_the_file(report: Report) -> None:
    for tag, attributes in Reader(page(report)).elements:
        for name in ("src", "href", "action", "srcset", "data", "poster"):
            value = attributes.get(name, "#")
            assert value.startswith("#") or value == "data:,", (tag, name, value)
    assert not re.search(r"@import|url\((?!#)", Reader(page(report)).text["style"])


def test_the_policy_names_exactly_the_script_and_the_style(report: Report) -> None:
    reader = Reader(page(report))
    policy = next(a["content"] for t, a in reader.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    whole = page(report)
    for tag in ("style", "script"):
        body = re.findall(rf"<{tag}>(.*?)</{tag}>", whole, flags=re.DOTALL)
        assert len(body) == 1
        digest = base64.b64encode(hashlib.sha256(body[0].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert all("style" not in a and not any(n.startswith("on") for n in a) for _, a in reader.elements)


def test_hostile_names_titles_and_tokens_stay_text(tmp_path: Path) -> None:
    for name in ("none", *HOSTILE):
        for seed in (1, 2):
            run = trees.record(name, seed)
            run["signature"]["corpus"] = run["signature"]["corpus"] | {"name": HOSTILE[0]}
            run["method"]["parameters"] = {HOSTILE[1]: HOSTILE[2]}
            trees.write_run(tmp_path, run, with_sentences=False)
    data = trees.explorer_data()
    data["histories"][0]["history"] = [HOSTILE[1]]
    data["histories"][0]["smoothers"][HOSTILE[0]] = data["histories"][0]["smoothers"].pop("katz")
    data["histories"][0]["smoothers"][HOSTILE[0]]["words"][0]["word"] = HOSTILE[1]
    (tmp_path / "explorer.json").write_text(json.dumps(data))
    text = page(Report.from_runs(tmp_path, title=HOSTILE[1]))
    reader = Reader(text)
    tags = [tag for tag, _ in reader.elements]
    assert "img" not in tags and tags.count("script") == 2
    carried = re.search(r'id="explorer-data">(.*?)</script>', text, flags=re.DOTALL)
    assert carried and not re.search("[<>&\u2028\u2029]", carried[1])
    assert json.loads(carried[1])["histories"][0]["history"] == [HOSTILE[1]]
    assert HOSTILE[1] in reader.text["h1"]


def test_a_report_of_one_bare_run_has_a_page() -> None:
    from lidstone.lab.report import Run

    bare = {"schema": 1, "id": "x", "task": "lm", "name": "none", "method": {}, "seed": 1, "signature": {},
            "metrics": {"test": {"perplexity": 10.0}}}  # fmt: skip
    text = page(Report.from_runs([Run.from_dict(bare)]))
    assert "Perplexity on an unnamed corpus" in text and 'id="explorer"' not in text


def test_the_page_stays_moderate_when_curves_are_long(tmp_path: Path) -> None:
    trees.write_tree(tmp_path, seeds=2, points=2_000)
    assert len(page(Report.from_runs(tmp_path))) < 300_000


@pytest.mark.parametrize(
    "broken", [{"histories": [{}]}, {"histories": [{"history": ["a"], "smoothers": {"k": {"z": "x"}}}]}]
)
def test_damaged_explorer_data_is_refused(broken: dict) -> None:
    with pytest.raises(FileFormatError, match=r"explorer\.json is damaged"):
        explorer_data(broken)


def test_strengths_that_are_always_equal_make_one_line(tmp_path: Path) -> None:
    for gamma in (0.1, 0.2, 0.4):
        method = trees.METHODS["katz"] | {"gamma_plus": gamma, "gamma_minus": gamma}
        trees.write_run(tmp_path, trees.record("katz", 1, method=method, shift=100 * gamma), with_sentences=False)
    (line,) = heat_maps(Report.from_runs(tmp_path))
    assert line.is_line and line.minus == (0.1, 0.2, 0.4) and [len(row) for row in line.cells] == [3]
    assert line.strengths(*line.best) == "γ=0.1"
    drawn = drawing("heat_map", line, Report.from_runs(tmp_path).metric)
    assert "γ₊" not in drawn and drawn.count('class="cell h') == 3


def test_an_explorer_of_another_vocabulary_is_not_shown() -> None:
    data = {**trees.explorer_data(), "vocabulary": "abc"}
    assert explorer_data(data, "abc") is not None and explorer_data(data) is not None
    assert explorer_data(data, "def") is None
    assert explorer_data(trees.explorer_data(), "def") is not None  # files of older versions do not say
