"""The hand-written articles of the demonstration web, as data."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from importlib.abc import Traversable

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Article:
    """One piece of prose; a paragraph is one line of text without a line end."""

    id: str
    section: str
    lang: str
    title: str
    paragraphs: tuple[str, ...]
    extra: tuple[str, ...] = ()  # ingredients of a recipe, lines of code: not prose
    planted: tuple[dict[str, str], ...] = ()  # personal data in the text: {"type", "value"}

    @property
    def text(self) -> str:
        """The paragraphs, one a line: what extraction followed by C4 should leave."""
        return "\n".join(self.paragraphs)


@dataclass(frozen=True)
class Host:
    """An invented site."""

    host: str
    name: str
    layout: str
    sections: tuple[str, ...]
    tagline: str


def _folder() -> Traversable:
    return files("pipelines").joinpath("demo")


def _load(resource: Traversable) -> Any:
    return yaml.load(resource.read_text(encoding="utf-8"), Loader=_Loader)  # a safe loader


def load_articles() -> list[Article]:
    """All articles, by file name and then in the order written.

    Raises:
        ValueError: an article's id is used twice.
    """
    articles: list[Article] = []
    seen: set[str] = set()
    folder = _folder().joinpath("texts")
    for resource in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if not resource.name.endswith(".yaml"):
            continue
        for section in _sections(_load(resource)):
            for entry in section["articles"]:
                if entry["id"] in seen:
                    raise ValueError(f"{resource.name}: article id {entry['id']!r} is used twice")
                seen.add(entry["id"])
                articles.append(_article(entry, section))
    return articles


def _sections(loaded: Any) -> list[dict[str, Any]]:
    return loaded if isinstance(loaded, list) else [loaded]


def _article(entry: dict[str, Any], section: dict[str, Any]) -> Article:
    lines = (line.strip() for line in entry["text"].splitlines())
    return Article(
        id=entry["id"],
        section=section["section"],
        lang=section["lang"],
        title=entry["title"],
        paragraphs=tuple(line for line in lines if line),
        extra=tuple(entry.get("extra", "").splitlines()),
        planted=tuple(entry.get("planted", ())),
    )


def load_hosts() -> list[Host]:
    """The invented sites, in the order written."""
    return [
        Host(h["host"], h["name"], h["layout"], tuple(h["sections"]), h["tagline"])
        for h in _load(_folder().joinpath("hosts.yaml"))
    ]


def load_words(name: str) -> Any:
    """One table of ``words.yaml``: synonyms, comments, products, place names."""
    return _load(_folder().joinpath("words.yaml"))[name]
