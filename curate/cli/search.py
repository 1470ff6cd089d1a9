"""`llmcurate search`: phrases in a corpus, by its suffix arrays."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from curate.cli.options import DEFAULT, CommandOptions, Inputs, Json, group, newest
from curate.cli.settings import command, run_steps
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import answer

if TYPE_CHECKING:
    from curate.dedup.suffix_array.search import Hit, Longest, Matches

search_app = group("search", "Find phrases in a corpus.", "Look", default=True)


@command(search_app, "Search", DEFAULT, hidden=True)
def search(
    index: Annotated[
        Optional[Path],
        typer.Argument(
            help="OUT of a suffix-array dedup or of search build, or its index. In a workspace the"
            " default is the newest."
        ),
    ] = None,
    phrase: Annotated[Optional[str], typer.Argument(help="The text to count and show.")] = None,
    longest: Annotated[
        Optional[str],
        typer.Option(
            metavar="TEXT", help="Show the longest passage that TEXT shares with the corpus."
        ),
    ] = None,
    file: Annotated[
        Optional[Path],
        typer.Option(
            metavar="PATH", help="Show the longest passage that this file shares with the corpus."
        ),
    ] = None,
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Count a phrase in a corpus and show where it stands: document, byte, text around it.

    With --longest or --file it shows the longest passage that a text shares with the corpus.

    \b
    Examples:
    llmcurate search out "the quick brown fox"
    llmcurate search out --file essay.txt
    """
    from curate.api.command_settings import Search
    from curate.dedup.suffix_array import search as searching
    from curate.dedup.suffix_array.search_index import SearchIndex, find_folder

    alone = phrase is None and longest is None and file is None
    if alone and index is not None and not index.exists():
        index, phrase = None, str(index)
    if sum(text is not None for text in (phrase, longest, file)) != 1:
        raise UsageError("give one of PHRASE, --longest TEXT and --file FILE")
    chosen = Search.of(**settings)
    arrays = SearchIndex(find_folder(newest("search index", index, "OUT")))
    if phrase is not None:
        hits = searching.find(arrays, phrase, chosen.limit, chosen.context)
        answer(hits, text_of(hits), as_json)
        return
    text = searching.read_text(file) if file is not None else longest or ""
    passage = searching.longest(arrays, text, chosen.limit, chosen.context)
    answer(passage, text_of_longest(passage), as_json)


def _line(hit: Hit) -> str:
    text = " ".join(f"{hit.before}[{hit.match}]{hit.after}".split())
    return f"  {hit.document} byte {hit.byte}: {text}"


def text_of(hits: Matches) -> str:
    """The occurrences for a terminal."""
    times = "once" if hits.count == 1 else f"{hits.count:,} times"
    head = f"found {times}" if hits.count else "not found"
    if len(hits.hits) < hits.count:
        head += f", the first {len(hits.hits)}:" if hits.hits else ""
    return "\n".join([head, *map(_line, hits.hits)])


def text_of_longest(passage: Longest) -> str:
    """The longest shared passage for a terminal."""
    from curate.dedup.suffix_array.search import Matches

    if not passage.bytes:
        return "nothing is shared"
    head = f"{passage.bytes:,} bytes from byte {passage.byte:,} of the text are shared"
    shown = passage.text if len(passage.text) <= 400 else f"{passage.text[:400]}..."
    return "\n".join([f"{head}: {shown}", text_of(Matches(passage.count, passage.hits))])


@command(search_app, "search_index", "build")
def build(inputs: Inputs = None, *, options: CommandOptions, **settings: Any) -> None:
    """Build the index of a corpus without a dedup.

    It takes five bytes for each byte of text.

    \b
    Example:
    llmcurate search build corpus/ -o index
    """
    run_steps("search_index", [("search_index", settings)], inputs, options)
