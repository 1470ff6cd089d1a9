"""The documentation as a site: it builds without a warning, and every page can be reached."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.parameters import mostly_slow

ROOT = Path(__file__).parents[2]
SOURCES = sorted(p for p in (ROOT / "docs").rglob("*") if p.suffix in (".md", ".ipynb"))


def pages(docs: Path) -> set[str]:
    """The pages of a folder, by their paths without a suffix."""
    found = (p for p in docs.rglob("*") if p.suffix in (".md", ".ipynb"))
    return {p.relative_to(docs).with_suffix("").as_posix() for p in found}


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


def few_pages(folder: Path) -> Path:
    """A page of the documentation and what it links to, with the settings of the whole."""
    docs = ROOT / "docs"
    shutil.copytree(docs / "_static", folder / "_static")
    (folder / "howto").mkdir()
    for name in ("conf.py", "howto/filter.md"):
        shutil.copy(docs / name, folder / name)
    (folder / "experiments.md").write_text("# Experiments\n\nThey compare corpora.\n")
    table = "```{toctree}\n:caption: Begin\n\nhowto/filter\nexperiments\n```\n"
    (folder / "index.md").write_text(f"# Pages\n\n{table}")
    return folder


class Site(NamedTuple):
    """What was built, and the pages that it was built from, by their paths without a suffix."""

    out: Path
    pages: set[str]


@pytest.fixture(scope="module", params=mostly_slow(["few pages", "all pages"]))
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Site:
    pytest.importorskip("myst_nb")
    folder, out = (tmp_path_factory.mktemp(name) for name in ("docs", "site"))
    docs = ROOT / "docs" if request.param == "all pages" else few_pages(folder)
    done = built(docs, out)
    assert done.returncode == 0, done.stderr
    return Site(out, pages(docs))


def test_every_page_is_in_a_table_of_contents() -> None:
    listed = {"index"}
    for path in SOURCES:
        for table in re.findall(
            r"^```\{toctree\}\n(.*?)^```$", path.read_text("utf-8"), re.M | re.S
        ):
            names = [line for line in table.splitlines() if line and not line.startswith(":")]
            listed |= {os.path.normpath(Path(path.parent, name)) for name in names}
    below = {str(ROOT / "docs" / page) for page in pages(ROOT / "docs") - {"index"}}
    assert below == listed - {"index"}


def test_every_page_is_in_the_navigation_of_the_first(site: Site) -> None:
    links = Page((site.out / "index.html").read_text(encoding="utf-8")).links
    assert {f"{page}.html" for page in site.pages - {"index"}} <= links


def test_pages_load_nothing_from_elsewhere(site: Site) -> None:
    paths = [p for p in site.out.rglob("*.html") if "_static" not in p.parts]
    assert len(paths) >= len(site.pages)
    loaded = {p.name: Page(p.read_text(encoding="utf-8")).loaded for p in paths}
    assert {name: urls for name, urls in loaded.items() if urls} == {}


def test_every_page_has_its_markdown(site: Site) -> None:
    texts = {page: (site.out / f"{page}.md").read_text(encoding="utf-8") for page in site.pages}
    assert [page for page, text in texts.items() if not text.strip() or "{toctree}" in text] == []
    assert "def no_recipes(text, metadata):" in texts["howto/filter"]
    if "api" in texts:
        assert "class llmcurate.Corpus" in texts["api"] and "make install" in texts["contributing"]
    head = (site.out / "howto/filter.html").read_text(encoding="utf-8").partition("</head>")[0]
    assert 'type="text/markdown" href="filter.md"' in head


def test_llms_txt_lists_every_page_once(site: Site) -> None:
    title, _, quote, *lines = (site.out / "llms.txt").read_text(encoding="utf-8").splitlines()
    assert title == "# llmcurate" and quote.startswith("> ")
    links = [match for line in lines if (match := re.match(r"- \[.+\]\((.+)\): \S", line))]
    assert [line for line in lines if line and not line.startswith(("## ", "- ["))] == []
    listed = [link[1] for link in links]
    assert sorted(listed) == sorted(f"{page}.md" for page in site.pages - {"index"})
    assert all((site.out / page).is_file() for page in listed)


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
