"""Counts in messages are written by `counted`, which gives the right plural."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from llmcurate.base.disk.units import counted

ROOT = Path(__file__).parents[1]
NOUNS = (
    "checkpoint", "cluster", "document", "file", "input", "item", "label", "language", "page",
    "partition", "passage", "record", "row", "shard", "snapshot", "source", "step", "stretch",
    "text", "token", "window",
)  # fmt: skip
# Expressions that are no numbers, or whatever a damaged file says.
TEXTS = {"kind", "of", "vocab", "tokens", "dtype.name", "manifest.get('documents')"}
TEXTS |= {"manifest.get('tokens')", "kind.name"}
PLURAL = re.compile(rf" (?:{'|'.join(NOUNS)})(?:e?s)\b(?!/)")


def plurals(source: str) -> list[tuple[int, str]]:
    """(line, plural) behind each number that an f-string of the source writes out itself."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            for value, text in zip(node.values, node.values[1:], strict=False):
                if not isinstance(value, ast.FormattedValue) or not isinstance(text, ast.Constant):
                    continue
                match = PLURAL.match(str(text.value))
                if match and ast.unparse(value.value) not in TEXTS:
                    found.append((node.lineno, match.group().strip()))
    return found


@pytest.mark.parametrize("package", ["curate", "tokenize_kit", "train"])
def test_no_message_writes_a_plural_without_counted(package):
    found = [
        f"{path.relative_to(ROOT)}:{line}: {plural}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, plural in plurals(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_no_page_writes_a_plural_without_counted():
    behind = re.compile(rf"\|count \}}\}}{PLURAL.pattern}")
    templates = sorted((ROOT / "llmcurate" / "base" / "pages" / "templates").rglob("*.html"))
    assert [t.name for t in templates if behind.search(t.read_text(encoding="utf-8"))] == []
    assert behind.search("{{ number|count }} documents")


def test_one_thing_has_no_plural():
    numbers = [counted(n, "document") for n in (0, 1, 2, 1234)]
    assert numbers == ["0 documents", "1 document", "2 documents", "1,234 documents"]
    assert [counted(n, "stretch") for n in (1, 2)] == ["1 stretch", "2 stretches"]
