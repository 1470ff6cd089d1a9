"""Migrations of a tool's module, and 200 texts of web pages good and bad for its filters."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from curate.documents.documents import documents
from curate.lab.migrate.migration import MappedStep, Migration
from curate.steps.recipe import make_step
from tests.curate.filters.filter_texts import PROSE

JUNK = [
    "#tag",
    "...",
    "•",
    "2024",
    "12.50",
    "https://a.example/b?c=1",
    "(x)",
    "[1]",
    "THE",
    "a" * 30,
]


def migrated(module: ModuleType, text: str, name: str = "their.yaml") -> Migration:
    """The migration by one module, before steps are checked."""
    document = yaml.safe_load(text) if name.endswith(("yaml", "json")) else None
    done: Migration = module.migrate(text, Path(name), document)
    return done


def settings(step: MappedStep) -> dict[str, Any]:
    return {setting.name: setting.plain for setting in step.settings}


@cache
def web_texts() -> tuple[str, ...]:
    """200 texts of lines and paragraphs with repeated ones, numbers, addresses and signs."""
    draw = random.Random(5)
    words = PROSE.split()
    pages = []
    for i in range(200):
        lines: list[str] = []
        for _ in range(draw.randint(2, 25)):
            if lines and draw.random() < 0.02 * (i % 20):
                lines.append(draw.choice(lines))
                continue
            some = draw.sample(words, draw.randint(1, 20))
            junk = draw.random() < 0.2
            some += draw.choices(JUNK, k=draw.randint(1, 8)) if junk else []
            draw.shuffle(some)
            lines.append(" ".join(some) + draw.choice([".", "!", "", "..."]))
        pages.append("".join(line + draw.choice(["\n", "\n\n"]) for line in lines).strip())
    return tuple(pages)


def kept(steps: list[MappedStep] | tuple[MappedStep, ...]) -> list[bool]:
    """For each of the texts, True if no step drops it."""
    texts = list(web_texts())
    docs = documents({"id": [str(i) for i in range(len(texts))], "text": texts})
    for each in steps:
        step = make_step(each.step, settings(each))
        docs = step.apply(docs.within(step.name))
    return [bool(keep) for keep in ~docs.marked()]


def edited(steps: tuple[MappedStep, ...], texts: list[str]) -> list[str]:
    """The texts after the steps."""
    docs = documents({"id": [str(i) for i in range(len(texts))], "text": texts})
    for each in steps:
        step = make_step(each.step, settings(each))
        docs = step.apply(docs.within(step.name))
    return [str(text) for text in docs.text.to_pylist()]
