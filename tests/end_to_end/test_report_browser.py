"""The page in a real headless Chromium: no errors, no requests, hostile text inert, the explorer answers to keys."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lidstone.lab.report import Report

TESTS = Path(__file__).parents[1]
trees = SimpleNamespace(**runpy.run_path(str(TESTS / "run_trees.py")))
browser_tools = SimpleNamespace(**runpy.run_path(str(TESTS / "browser.py")))
HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>document.title='taken'</script>",
    '"><img src=x onerror=alert(1)>',
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(browser_tools.missing()), reason=browser_tools.missing() or "a browser is here"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    opened = browser_tools.Browser()
    opened.open("about:blank")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("runs")
    trees.write_tree(folder, seeds=3, explorer=True)
    trees.write_grid(folder, "katz")
    return Report.from_runs(folder).to_html(folder / "report.html").as_uri()


@pytest.fixture(scope="module")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("hostile")
    for name in ("none", *HOSTILE):
        for seed in (1, 2):
            run = trees.record(name, seed)
            run["signature"]["corpus"] = run["signature"]["corpus"] | {"name": HOSTILE[1]}
            run["method"]["parameters"] = {HOSTILE[2]: HOSTILE[0]}
            trees.write_run(folder, run, with_sentences=False)
    data = trees.explorer_data()
    entry = data["histories"][0]
    entry["history"] = [HOSTILE[0], HOSTILE[1]]
    entry["smoothers"] = {HOSTILE[1]: entry["smoothers"]["katz"]}
    entry["smoothers"][HOSTILE[1]]["words"][0]["word"] = HOSTILE[2]
    (folder / "explorer.json").write_text(json.dumps(data))
    return Report.from_runs(folder).to_html(folder / "report.html").as_uri()


@pytest.fixture
def opened(browser: Any, page: str) -> Any:
    browser.requests(), browser.console()  # forget what came before
    browser.open(page)
    return browser


def focus_by_tab(browser: Any, wanted: str) -> None:
    """Press Tab until the element of that id has the focus, as a reader without a mouse would."""
    for _ in range(200):
        browser.press("Tab")
        if browser.run("return document.activeElement.id") == wanted:
            return
    raise AssertionError(f"Tab never reaches {wanted}")


def test_loads_without_console_messages_and_asks_for_nothing_but_itself(opened: Any, page: str) -> None:
    assert opened.console() == []
    assert opened.requests() == [page]
    assert opened.run("return performance.getEntriesByType('resource').length") == 0


def test_the_policy_stops_scripts_and_requests_even_if_something_got_in(opened: Any) -> None:
    opened.run(
        "const s = document.createElement('script'); s.textContent = 'window.taken = 1'; document.body.append(s);"
        "const i = document.createElement('img'); i.src = 'http://127.0.0.1:9/x.png'; document.body.append(i);"
    )
    assert opened.run("return window.taken") is None
    complaints = " ".join(opened.console())
    assert "Content Security Policy" in complaints and "x.png" in complaints


def test_the_explorer_answers_to_the_keyboard(opened: Any) -> None:
    says = "return document.getElementById('explorer-says').textContent"
    before = opened.run(says)
    assert "After “of”, seen 1,000 times, Add-λ moves Z" in before
    focus_by_tab(opened, "explorer-history")
    assert opened.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
    opened.press("Down")
    assert "After “in the”, seen 500 times, Add-λ" in opened.run(says)
    opened.press("Tab", "Down", "Down")
    assert "After “in the”, seen 500 times, Katz moves Z" in opened.run(says)


def test_the_explorer_finds_a_history_by_a_part_of_it(opened: Any) -> None:
    says = "return document.getElementById('explorer-says').textContent"
    type_in = "const s = document.getElementById('explorer-search'); s.value = {}; s.dispatchEvent(new Event('input'))"
    options = "return [...document.querySelectorAll('#explorer-history option')].map(o => o.textContent)"
    opened.run(type_in.format("'THE'"))
    assert opened.run(options) == ["in the"] and "After “in the”" in opened.run(says)
    opened.run(type_in.format("'<b>zebra'"))
    assert "No history holds “<b>zebra”" in opened.run(says)
    opened.run(type_in.format("''"))
    assert len(opened.run(options)) == 3


def test_the_explorer_shows_the_numbers_it_was_given_as_bars(opened: Any) -> None:
    data = trees.explorer_data()["histories"][0]["smoothers"]["add-lambda"]
    rows = opened.run(
        "return [...document.querySelectorAll('#explorer-table tbody tr')].map(r => [r.querySelector('th').textContent,"
        "...[...r.querySelectorAll('td')].map(c => [Number(c.textContent), c.querySelector('.bar')?.style.width])])"
    )
    shown = {row[0]: row[1:] for row in rows}
    largest = max(max(word["p"], word["smoothed"]) for word in data["words"])
    for word in data["words"]:
        cells = shown[word["word"]]
        for cell, key in zip(cells, ("p", "smoothed", "plus", "minus"), strict=True):
            assert cell[0] == pytest.approx(word[key], abs=6e-5)
        assert float(cells[1][1].rstrip("%")) == pytest.approx(100 * word["smoothed"] / largest, abs=0.02)
    assert rows[-1][0] == "all other words"
    order = [row[2][0] for row in rows[:-1]]
    assert order == sorted(order, reverse=True)


def test_legend_keys_hide_and_show_their_line(opened: Any) -> None:
    hidden = "return document.querySelectorAll('#curves figure g.series.hidden').length"
    opened.run("document.querySelector('#curves button.key').focus()")
    opened.press("Space")
    assert opened.run(hidden) == 1
    assert opened.run("return document.activeElement.getAttribute('aria-pressed')") == "false"
    opened.press("Enter")
    assert opened.run(hidden) == 0


def test_dark_follows_the_system_and_the_button(browser: Any, page: str) -> None:
    colour = "return getComputedStyle(document.body).backgroundColor"

    def system(theme: str) -> None:
        browser.devtools(
            "Emulation.setEmulatedMedia", media="", features=[{"name": "prefers-color-scheme", "value": theme}]
        )

    system("light")
    browser.open(page)
    light = browser.run(colour)
    system("dark")
    dark = browser.run(colour)
    assert light != dark
    browser.run("document.getElementById('theme').click()")
    assert browser.run(colour) == light
    system("light")
    browser.run("document.getElementById('theme').click()")
    assert browser.run(colour) == dark
    browser.run("localStorage.clear()")


def test_wide_tables_scroll_within_themselves_on_a_phone(browser: Any, page: str) -> None:
    browser.size(420, 800)
    browser.open(page)
    wide = browser.run(
        "return [...document.querySelectorAll('table')].map(t => [t.getBoundingClientRect().width, "
        "t.closest('.scroll') && getComputedStyle(t.closest('.scroll')).overflowX, "
        "t.closest('.scroll')?.clientWidth])"
    )
    assert any(width > 420 for width, _, _ in wide), "the test needs a table wider than the phone"
    assert all(overflow == "auto" and box <= 420 for width, overflow, box in wide if width)


def test_a_phone_shows_both_scores_and_that_the_table_goes_on(browser: Any, page: str) -> None:
    browser.size(360, 800)
    browser.open(page)
    edges = browser.run("return [...document.querySelectorAll('td.score')].map(e => e.getBoundingClientRect().right)")
    assert edges and max(edges) <= 360
    shadows = browser.run("return getComputedStyle(document.querySelector('.scroll')).backgroundAttachment")
    assert shadows.split(", ") == ["local", "local", "scroll", "scroll", "scroll"]


@pytest.mark.parametrize("width", [360, 800])
def test_the_text_of_a_figure_does_not_overlap(browser: Any, page: str, width: int) -> None:
    browser.size(width, 800)
    browser.open(page)
    overlaps = browser.run(
        "return [...document.querySelectorAll('svg.chart')].flatMap(chart => {"
        " const boxes = [...chart.querySelectorAll('text')].map(e => [e.textContent, e.getBoundingClientRect()]);"
        " return boxes.flatMap(([a, p], i) => boxes.slice(i + 1).filter(([b, q]) => p.width && q.width &&"
        "  Math.min(p.right, q.right) - Math.max(p.left, q.left) > 1 &&"
        "  Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 2).map(([b]) => a + ' on ' + b)) })"
    )
    assert overlaps == []
    browser.devtools("Emulation.clearDeviceMetricsOverride")


@pytest.mark.parametrize("width", [360, 420, 800, 1400])
def test_no_width_makes_the_whole_page_scroll_sideways(browser: Any, page: str, width: int) -> None:
    browser.size(width, 800)
    browser.open(page)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    browser.devtools("Emulation.clearDeviceMetricsOverride")


def test_it_prints(opened: Any, tmp_path: Path) -> None:
    assert opened.pdf().startswith(b"%PDF")
    opened.devtools("Emulation.setEmulatedMedia", media="print")
    assert opened.run("return getComputedStyle(document.querySelector('nav')).display") == "none"
    assert opened.run("return getComputedStyle(document.querySelector('table')).display") == "table"
    opened.devtools("Emulation.setEmulatedMedia", media="")


def test_controls_and_tables_have_names(opened: Any) -> None:
    nameless = opened.run(
        "return [...document.querySelectorAll('button,select,svg[role=img],table,[role=region]')].filter(e =>"
        "!(e.textContent.trim() || e.ariaLabel || (e.labels && e.labels.length))).map(e => e.outerHTML.slice(0, 80))"
    )
    assert nameless == []
    assert opened.run("return [...document.querySelectorAll('table')].every(t => t.caption)")
    assert opened.run("return document.documentElement.lang") == "en"
    ids = opened.run("return [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


def test_hostile_names_stay_text(browser: Any, hostile_page: str) -> None:
    browser.console()
    browser.open(hostile_page)
    assert browser.console() == []
    assert browser.run("return document.querySelectorAll('img').length") == 0
    assert browser.run("return document.querySelectorAll('script').length") == 2
    assert browser.run("return document.title") == f"Perplexity on {HOSTILE[1]}"
    names = browser.run("return [...document.querySelectorAll('#results th .name')].map(e => e.textContent)")
    assert set(HOSTILE) <= set(names)
    assert HOSTILE[0] in browser.run("return document.getElementById('explorer-says').textContent")
    words = browser.run("return [...document.querySelectorAll('#explorer-table tbody th')].map(e => e.textContent)")
    assert HOSTILE[2] in words
