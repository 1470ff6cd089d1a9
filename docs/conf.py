"""Settings of the documentation's site: `make docs` builds it into build/docs."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from curate.version import __version__  # noqa: E402

project = "llmcurate"
author = "The llmcurate authors"
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc"]
exclude_patterns = ["_static"]
nitpicky = True
highlight_language = "none"  # of blocks that name no language: commands and what they print
myst_heading_anchors = 4  # links of the form page.md#heading, as GitHub makes them
nb_execution_mode = "off"  # outputs are those in the files; tests/docs runs the notebooks
autodoc_typehints = "description"
autodoc_member_order = "bysource"

html_theme = "furo"
html_title = f"llmcurate {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
