"""A small language model trained on the demo's own articles in ten languages.

The model suits only the demo's pages: five thousand characters of German are too few for more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from curate.engines.local import call_apart
from curate.scoring.language.train import Training, pieces, train
from curate.steps.shipped import FOLDER
from llmcurate.base.disk.files import drawn_number
from llmcurate.base.disk.units import counted, format_percent
from llmcurate.base.terminal import say

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Article:
    """One article; each paragraph is one line of text."""

    id: str
    section: str
    lang: str
    title: str
    paragraphs: tuple[str, ...]

    @property
    def text(self) -> str:
        """The paragraphs joined by newlines: the text expected after extraction and the step C4."""
        return "\n".join(self.paragraphs)


def load_articles() -> list[Article]:
    """Return all articles, file by file. Raises ValueError if an id is used twice."""
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


_PIECE_CHARS = 60
# Most pieces per language, and the number that a language with fewer reaches by repeating them:
# English has forty times the text of Chinese here.
_MOST, _LEAST = 300, 100
TRAINING = Training(
    minn=1,
    maxn=3,
    loss="softmax",
    bucket=20_000,
    epochs=20,
    min_count=1_000_000,  # character n-grams only: there are too few words
    held_out=0.2,
)


def examples() -> Iterator[tuple[str, str]]:
    """Yield (piece of text, language) from the demo's articles, in the same order on every call."""
    by_language: dict[str, list[Article]] = {}
    for article in load_articles():
        by_language.setdefault(article.lang, []).append(article)
    for lang, articles in by_language.items():
        pairs = [
            (piece.strip(), lang)
            for article in articles
            for paragraph in article.paragraphs
            for piece in pieces(paragraph, _PIECE_CHARS)
        ]
        pairs.sort(key=lambda example: drawn_number("language", example[0]))
        times = -(-_LEAST // len(pairs))
        yield from pairs[:_MOST] * times


def train_demo_model(folder: Path, quiet: bool = False) -> Path:
    """Train the model into `folder` and return the path of the model; print its accuracy on
    held-out pieces. Training again on the same texts and settings writes the same bytes."""
    card = train(examples(), folder, TRAINING, call_apart)
    held = card["held_out"]
    say(
        f"language model of {counted(len(card['labels']), 'language')}:"
        f" {format_percent(held['accuracy'])} of {held['texts']} held-out pieces of"
        f" {_PIECE_CHARS} characters right",
        quiet,
    )
    return folder / card["file"]
