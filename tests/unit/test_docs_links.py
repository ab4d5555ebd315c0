"""Every link of the pages leads somewhere, the API page has every public name, the site builds without a warning."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.browser import Browser, missing

import lidstone

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "src").rglob("README.md")]
LINK = re.compile(r"(?<!\!)\[[^\]\[]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def links(page: Path) -> list[str]:
    found = [first or second for first, second in LINK.findall(prose(page))]
    return [link for link in found if not re.match(r"(https?|mailto):", link)]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and mkdocs make them: lower case, hyphens, no other signs."""
    headings = re.findall(r"^#+ +(.*?)\s*$", prose(page), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page.name}: {link}"


def test_the_api_page_has_every_public_name() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^::: (lidstone\.[\w.]+)$", text, re.MULTILINE))
    public = {f"lidstone.{name}" for name in lidstone.__all__} - {"lidstone.__version__"}
    assert listed == public


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r": ([\w-]+\.(?:md|ipynb))$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {path.name for kind in ("md", "ipynb") for path in (ROOT / "docs").glob(f"*.{kind}")}
    assert listed == pages | {"index.md"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install '.[docs]'")
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_site_builds_without_a_warning(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    assert "Does it help?" in home and (site / "api.html").stat().st_size > 50_000
    assert "(regularizer.html): `SmoothedCrossEntropy` replaces" in (site / "llms.txt").read_text(encoding="utf-8")


WIDER = """const kinds = arguments[0] + " pre > code";
return [document.documentElement.scrollWidth > document.documentElement.clientWidth,
        [...document.querySelectorAll(kinds)].filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.innerText)]"""


@pytest.mark.slow
@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.parametrize("page", ["index", "getting-started", "regularizer", "integrations", "ngram", "recipes"])
def test_no_code_is_cut_off_at_the_edge(site: Path, page: str) -> None:
    """Neither at 1280 pixels, where lines have room, nor on a phone, where they wrap."""
    browser = Browser()
    try:
        for width, kinds in ((1280, ""), (400, ":is(.language-python, .language-diff, .language-sh)")):
            browser.size(width, 900)
            browser.open((site / f"{page}.html").as_uri())
            assert browser.run(WIDER, kinds) == [False, []]
    finally:
        browser.close()
