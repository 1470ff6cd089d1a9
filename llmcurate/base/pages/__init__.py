"""HTML pages: templates, charts, differences between texts."""
