"""Which model is for which language: one for all, or a path with {lang} in it."""

from __future__ import annotations

import re
from pathlib import Path

from curate.errors import UsageError

MARK = "{lang}"
EVERY = "*"  # the key of a model for all languages


def find_models(pattern: str) -> dict[str, Path]:
    """Models by label of language, EVERY for all; files that are there, found by the pattern alone,
    so that no label of a document becomes a path. UsageError where there is none."""
    if MARK not in pattern:
        if not Path(pattern).is_file():
            raise UsageError(f"no model at {pattern}: train one, llmcurate perplexity train")
        return {EVERY: Path(pattern)}
    if pattern.count(MARK) > 1:
        raise UsageError(f"model {pattern}: {MARK} can stand in it once")
    before, after = pattern.split(MARK)
    known = re.compile(re.escape(before) + r"([A-Za-z0-9_-]+)" + re.escape(after))
    # The folder, or folders, that the label is the name of or stands in.
    head, tail = before.rpartition("/")[0], after.partition("/")
    top = Path(head or ("/" if before.startswith("/") else "."))
    found = {}
    for entry in sorted(top.iterdir()) if top.is_dir() else ():
        path = str(top / entry.name) + tail[1] + tail[2]
        match = known.fullmatch(path if head or before.startswith("/") else path.removeprefix("./"))
        if match and Path(path).is_file():
            found[match[1]] = Path(path)
    if not found:
        raise UsageError(f"no model matches {pattern}")
    return found
