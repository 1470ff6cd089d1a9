"""The documentation as a site: it builds without a warning, and every page can be reached."""

from __future__ import annotations

import re
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


def test_every_page_has_its_markdown(site: Path) -> None:
    sources = [path.relative_to(ROOT / "docs").with_suffix("") for path in SOURCES]
    texts = {str(page): (site / f"{page}.md").read_text(encoding="utf-8") for page in sources}
    assert [page for page, text in texts.items() if not text.strip() or "{toctree}" in text] == []
    assert "def no_recipes(text, metadata):" in texts["howto/filter"]
    assert "class llmcurate.Corpus" in texts["api"] and "make install" in texts["contributing"]
    head = (site / "howto" / "filter.html").read_text(encoding="utf-8").partition("</head>")[0]
    assert 'type="text/markdown" href="filter.md"' in head


def test_llms_txt_lists_every_page_once(site: Path) -> None:
    title, _, quote, *lines = (site / "llms.txt").read_text(encoding="utf-8").splitlines()
    assert title == "# llmcurate" and quote.startswith("> ")
    links = [match for line in lines if (match := re.match(r"- \[.+\]\((.+)\): \S", line))]
    assert [line for line in lines if line and not line.startswith(("## ", "- ["))] == []
    listed = [link[1] for link in links]
    pages = [path.relative_to(ROOT / "docs").with_suffix(".md").as_posix() for path in SOURCES]
    assert sorted(listed) == sorted(set(pages) - {"index.md"})
    assert all((site / page).is_file() for page in listed)


def test_the_way_of_a_newcomer_is_short() -> None:
    how_tos = sorted((ROOT / "docs" / "howto").glob("*.md"))
    pages = [ROOT / "README.md", ROOT / "docs" / "tutorial.md", *how_tos]
    assert len(how_tos) == 7
    assert sum(len(page.read_text(encoding="utf-8").split()) for page in pages) <= 2650


@pytest.mark.slow
def test_a_link_that_leads_nowhere_is_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("myst_nb")
    (tmp_path / "conf.py").write_bytes((ROOT / "docs" / "conf.py").read_bytes())
    (tmp_path / "_static").mkdir()
    (tmp_path / "index.md").write_text("# Page\n\n[nowhere](gone.md)\n")
    done = built(tmp_path, tmp_path / "out")
    assert done.returncode == 1
    assert "gone.md" in done.stderr
