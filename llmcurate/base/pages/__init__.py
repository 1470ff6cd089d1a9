"""HTML pages: templates, charts, differences of texts."""
