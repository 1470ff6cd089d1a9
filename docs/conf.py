"""Settings of the documentation's site: `make docs` builds it into build/docs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from llmcurate.version import __version__  # noqa: E402

project = "llmcurate"
author = "The llmcurate authors"
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["_static"]
nitpicky = True
highlight_language = "none"  # of blocks that name no language: commands and what they print
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4  # links of the form page.md#heading, as GitHub makes them
nb_execution_mode = "off"  # outputs are those in the files; tests/docs runs the notebooks
nitpick_ignore_regex = [("py:.*", ".*")]  # types in signatures have no page of their own
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
smartquotes = False  # code in docstrings has plain ones
default_role = "code"  # of a word in single backquotes, as our docstrings have it

html_theme = "furo"
html_title = f"llmcurate {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_domain_indices = False
html_show_copyright = False


def literal_blocks(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Makes indented lines of a docstring code, in place."""
    marked: list[str] = []
    within = False
    for line in lines:
        if line.startswith("    ") and not within:
            marked += ["::", ""]
        within = line.startswith("    ") or (within and not line)
        marked.append(line)
    lines[:] = marked


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", literal_blocks)
