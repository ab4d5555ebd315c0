"""What mkdocs does beyond its plugins.

The README, with three cards, is the home page; links out of docs/ become plain names; llms.txt lists the pages.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from lidstone import __version__

ROOT = Path(__file__).resolve().parent.parent
CARDS = """
<div class="grid cards" markdown>

- **Train a network**

    Replace label smoothing by your own text's n-gram model: [getting started](getting-started.md)

- **Use n-gram models**

    Count, fit, score and filter from Python, or run your KenLM code as it is: [the toolkit](ngram.md)

- **See whether it helps**

    Every study, with the strongest baseline beside it: [results](results.md)

</div>
"""
OUTSIDE = re.compile(r"\[([^\]]*)\]\((?!https?:|[\w-]+\.(?:md|ipynb)|images/|#)([^)]*)\)")
OUTWARD = re.compile(r"\[([^\]]*)\]\((?:\.\./)+([^)#\s]*)[^)]*\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the README as the home page."""
    files.append(File.generated(config, "index.md", content=home()))
    return files


def on_page_markdown(markdown: str, page: Any, **more: Any) -> str:
    """Show links to files of the repository, which the site does not hold, as their names; and this version."""
    markdown = re.sub(r"lidstone:\d+\.\d+\.\w+", f"lidstone:{__version__}", markdown)
    return OUTWARD.sub(_as_name, markdown)


def home() -> str:
    """The README with its links as seen from docs/."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    title, rest = text.split("\n", 1)
    text = re.sub(r"\]\(docs/", "](", f"{title}\n{CARDS}{rest}")
    return OUTSIDE.sub(_as_name, text)


def _as_name(link: re.Match[str]) -> str:
    name = f"`{link[2].rstrip('/')}`"
    return name if link[1] == link[2] else f"{link[1]} ({name})"


def on_post_build(config: Any) -> None:
    """Write llms.txt: what the site is, and its pages with their first sentences."""
    pages = sorted(path for path in (ROOT / "docs").glob("*.md"))
    lines = [f"# {config.site_name}\n", f"> {config.site_description}\n", "## Pages\n"]
    lines += [f"- [{title}]({path.stem}.html): {first}" for path in pages for title, first in [_opening(path)]]
    (Path(config.site_dir) / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _opening(path: Path) -> tuple[str, str]:
    """The title of a page and the first sentence of its first paragraph."""
    title, _, rest = path.read_text(encoding="utf-8").partition("\n")
    paragraphs = (part.strip() for part in rest.split("\n\n"))
    first = next((part for part in paragraphs if not re.match(r"[#|<!\[:>+-]|```|$", part)), "")
    sentence = re.split(r"(?<=[.?])\s", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", first))[0]
    return title.lstrip("# "), " ".join(sentence.split())
