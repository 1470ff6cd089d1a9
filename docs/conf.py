"""Settings of the documentation's site, which `make docs` builds in build/docs.

Each page is also written as Markdown, and llms.txt lists these files for assistants.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.writers.text import TextTranslator

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from llmcurate.version import __version__  # noqa: E402

project = "llmcurate"
author = "The llmcurate authors"
version = release = __version__
ABOUT = "Clean web archives into training text, and train tokenizers and small language models."

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["_static"]
nitpicky = True
highlight_language = "none"  # for commands and their output
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4  # links like page.md#heading, as on GitHub
nb_execution_mode = "off"  # the files have their outputs; tests/docs runs the notebooks
nitpick_ignore_regex = [("py:.*", ".*")]  # types in signatures have no page
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
smartquotes = False  # docstrings contain code
default_role = "code"  # for single backquotes in docstrings

html_theme = "furo"
html_title = f"llmcurate {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_domain_indices = False
html_show_copyright = False


def literal_blocks(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Mark the indented lines of a docstring as code, in place."""
    marked: list[str] = []
    within = False
    for line in lines:
        if line.startswith("    ") and not within:
            marked += ["::", ""]
        within = line.startswith("    ") or (within and not line)
        marked.append(line)
    lines[:] = marked


def link_to_markdown(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Name a page's Markdown in its head."""
    if doctree is not None:
        address = f"{page.rpartition('/')[2]}.md"
        context["metatags"] += f'<link rel="alternate" type="text/markdown" href="{address}">'


def markdown(app: Sphinx, page: str) -> str:
    """A page as Markdown. Pages that autodoc writes become plain text."""
    path = Path(app.env.doc2path(page))
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
        text = "\n\n".join(
            source if kind == "markdown" else f"```python\n{source}\n```" for kind, source in cells
        )
    if included := re.match(r"```\{include\} (\S+)", text):
        text = (path.parent / included[1]).read_text(encoding="utf-8").replace("](docs/", "](")
    if "{eval-rst}" in text:
        visitor = TextTranslator(app.env.get_doctree(page), app.builder)
        visitor.document.walkabout(visitor)
        return visitor.body
    text = re.sub(r"```\{toctree\}.*?^```\n|:::\{image\}.*?^:::\n", "", text, flags=re.M | re.S)
    return text.replace(".ipynb)", ".md)")


def summary(app: Sphinx, page: str) -> str:
    """A page's line in llms.txt: its title, address and first sentence."""
    paragraphs = app.env.get_doctree(page).findall(nodes.paragraph)
    first = " ".join(next(paragraphs, nodes.paragraph()).astext().split())
    sentence = re.split(r"(?<=[.:])(?<!al\.)\s", first, maxsplit=1)[0].rstrip(":.")
    return f"- [{app.env.titles[page].astext()}]({page}.md): {sentence}."


def below(app: Sphinx, page: str) -> list[str]:
    """A page and those that its tables of contents list, in order."""
    pages = app.env.toctree_includes.get(page, [])
    return [page, *(each for child in pages for each in below(app, child))]


def write_markdown(app: Sphinx, error: Exception | None) -> None:
    """Write each page's Markdown beside its HTML, and llms.txt (https://llmstxt.org)."""
    if error or app.builder.format != "html":
        return
    out = Path(app.outdir)
    for page in app.env.found_docs:
        (out / f"{page}.md").write_text(markdown(app, page), encoding="utf-8")
    tables = list(app.env.get_doctree("index").findall(addnodes.toctree))
    lines = [f"# {project}", "", f"> {ABOUT}"]
    for table in tables:
        pages = [each for _, child in table["entries"] for each in below(app, child)]
        lines += ["", f"## {table['caption']}", "", *(summary(app, page) for page in pages)]
    (out / "llms.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-docstring", literal_blocks)
    app.connect("html-page-context", link_to_markdown)
    app.connect("build-finished", write_markdown)
