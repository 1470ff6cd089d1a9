"""What `llmcurate search` prints."""

from __future__ import annotations

import json
from pathlib import Path

from curate.dedup.suffix_array.search import Found, Hit, Longest, find, longest, read_text
from curate.dedup.suffix_array.search_index import SearchIndex, find_folder
from curate.errors import UsageError


def _line(hit: Hit) -> str:
    text = " ".join(f"{hit.before}[{hit.match}]{hit.after}".split())
    return f"  {hit.document} byte {hit.byte}: {text}"


def text_of(found: Found) -> str:
    """The occurrences for a terminal."""
    times = "once" if found.count == 1 else f"{found.count:,} times"
    head = f"found {times}" if found.count else "not found"
    if len(found.hits) < found.count:
        head += f", the first {len(found.hits)}:" if found.hits else ""
    return "\n".join([head, *map(_line, found.hits)])


def text_of_longest(found: Longest) -> str:
    """The longest shared passage for a terminal."""
    if not found.bytes:
        return "nothing is shared"
    head = f"{found.bytes:,} bytes from byte {found.byte:,} of the text are shared"
    shown = found.text if len(found.text) <= 400 else f"{found.text[:400]}..."
    return "\n".join([f"{head}: {shown}", text_of(Found(found.count, found.hits))])


def run(
    place: Path,
    phrase: str | None,
    given: str | None,
    file: Path | None,
    limit: int,
    context: int,
    as_json: bool,
) -> None:
    """Searches and prints; phrase, given, file: exactly one of them."""
    if sum(x is not None for x in (phrase, given, file)) != 1:
        raise UsageError("give one of PHRASE, --longest TEXT and --file FILE")
    index = SearchIndex(find_folder(place))
    if phrase is not None:
        found = find(index, phrase, limit, context)
        print(json.dumps(found.dump(), ensure_ascii=False) if as_json else text_of(found))
        return
    text = read_text(file) if file is not None else given or ""
    best = longest(index, text, limit, context)
    print(json.dumps(best.dump(), ensure_ascii=False) if as_json else text_of_longest(best))
