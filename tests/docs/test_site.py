"""The documentation as a site: it builds without a warning, and every page can be reached."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(p for p in (ROOT / "docs").rglob("*") if p.suffix in (".md", ".ipynb"))


class Page(HTMLParser):
    """The links of a page to others of the site, and what it loads from elsewhere."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        target = values.get("href") or values.get("src") or ""
        if tag == "a":
            self.links.add(target.partition("#")[0])
        elif target.startswith(("http:", "https:", "//")):
            self.loaded.add(target)


def built(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """A run of Sphinx in which a warning is an error."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going"]
    folders = ["-d", str(out / ".trees"), str(source), str(out)]
    return subprocess.run([*command, *folders], cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("myst_nb")
    out = tmp_path_factory.mktemp("site")
    done = built(ROOT / "docs", out)
    assert done.returncode == 0, done.stderr
    return out


def test_every_page_is_in_the_navigation_of_the_first(site: Path) -> None:
    links = Page((site / "index.html").read_text(encoding="utf-8")).links
    pages = {p.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for p in SOURCES}
    assert pages - {"index.html"} <= links


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = [p for p in site.rglob("*.html") if "_static" not in p.parts]
    assert len(pages) >= len(SOURCES)
    loaded = {p.name: Page(p.read_text(encoding="utf-8")).loaded for p in pages}
    assert {name: urls for name, urls in loaded.items() if urls} == {}


@pytest.mark.slow
def test_a_link_that_leads_nowhere_is_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("myst_nb")
    (tmp_path / "conf.py").write_bytes((ROOT / "docs" / "conf.py").read_bytes())
    (tmp_path / "_static").mkdir()
    (tmp_path / "index.md").write_text("# Page\n\n[nowhere](gone.md)\n")
    done = built(tmp_path, tmp_path / "out")
    assert done.returncode == 1
    assert "gone.md" in done.stderr
