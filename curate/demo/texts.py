"""The hand-written articles of the demonstration web."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from curate.steps.shipped import FOLDER

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Article:
    """One piece of prose; a paragraph is one line of text without a line end."""

    id: str
    section: str
    lang: str
    title: str
    paragraphs: tuple[str, ...]

    @property
    def text(self) -> str:
        """The paragraphs, one a line: what extraction followed by C4 should leave."""
        return "\n".join(self.paragraphs)


def load_articles() -> list[Article]:
    """All articles, by file name and then in the order written.

    Raises:
        ValueError: an article's id is used twice.
    """
    articles: dict[str, Article] = {}
    for path in sorted((FOLDER / "demo" / "texts").glob("*.yaml")):
        loaded = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # a safe loader
        for section in loaded if isinstance(loaded, list) else [loaded]:
            for entry in section["articles"]:
                if entry["id"] in articles:
                    raise ValueError(f"{path.name}: article id {entry['id']!r} is used twice")
                lines = (line.strip() for line in entry["text"].splitlines())
                articles[entry["id"]] = Article(
                    id=entry["id"],
                    section=section["section"],
                    lang=section["lang"],
                    title=entry["title"],
                    paragraphs=tuple(filter(None, lines)),
                )
    return list(articles.values())
