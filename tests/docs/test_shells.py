"""Commands on pages also work in zsh, which expands unquoted brackets and braces."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = ("*.md", "docs/**/*.md", "docs/**/*.ipynb", "pipelines/**/*.yaml", "curate/**/*.py")
COMMAND = re.compile(r"(?:llmcurate [a-z]|pip install |--set )[^#`]*")
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
# A message's own braces, or usage with optional words in brackets, are no value of an option.
EXPANDED = re.compile(r"=\S*[\[*?]|=\{\w+:|^\w+\[\w+\]$")


def unquoted(line: str) -> list[str]:
    words = [QUOTED.sub("", found).split() for found in COMMAND.findall(line)]
    return [word for some in words for word in some if EXPANDED.search(word)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("llmcurate run x --set language.keep=[th]", ["language.keep=[th]"]),
        ("llmcurate run x --set export.minhash={preset: dclm}", ["export.minhash={preset:"]),
        ("pip install llmcurate[train]", ["llmcurate[train]"]),
        ("llmcurate run x crawl/*.warc.gz --set 'language.keep=[th]'", []),
        ('pip install "llmcurate[train]"', []),
    ],
)
def test_words_that_zsh_expands_are_found(line: str, words: list[str]) -> None:
    assert unquoted(line) == words


def test_commands_of_pages_recipes_and_messages_quote_what_zsh_expands() -> None:
    files = {path for place in PLACES for path in ROOT.glob(place)}
    faults = [
        f"{path.relative_to(ROOT)}:{number}: {word}"
        for path in sorted(files)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for word in unquoted(line)
    ]
    assert len(files) > 100 and not faults, faults
