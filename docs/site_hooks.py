"""What mkdocs does beyond its plugins: the README is the home page, and links out of docs/ become plain names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from lidstone import __version__

ROOT = Path(__file__).resolve().parent.parent
OUTWARD = re.compile(r"\[([^\]]*)\]\((?:\.\./)+([^)#\s]*)[^)]*\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the README as the home page."""
    files.append(File.generated(config, "index.md", content=home()))
    return files


def on_page_markdown(markdown: str, page: Any, **more: Any) -> str:
    """Show links to files of the repository, which the site does not hold, as their names; and this version."""
    markdown = re.sub(r"lidstone:\d+\.\d+\.\w+", f"lidstone:{__version__}", markdown)
    return OUTWARD.sub(
        lambda link: f"{link[1]} (`{link[2].rstrip('/')}`)" if link[1] != link[2] else f"`{link[2]}`", markdown
    )


def home() -> str:
    """The README with its links as seen from docs/."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"\]\(docs/", "](", text)
    return re.sub(r"\[([^\]]*)\]\((?!https?:|[\w-]+\.(?:md|ipynb)|images/|#)([^)]*)\)", r"\1 (`\2`)", text)
