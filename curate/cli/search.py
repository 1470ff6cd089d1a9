"""`llmcurate search`: find phrases in a corpus with its suffix arrays."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from curate.cli.options import DEFAULT, CommandOptions, Inputs, Json, Quiet, group, newest
from curate.cli.settings import command, run_steps
from llmcurate.base.disk.files import read_text
from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import print_result, suggest

if TYPE_CHECKING:
    from curate.dedup.suffix_array.search import Hit, Longest, Matches

search_app = group("search", "Find phrases in a corpus.", "Look", default=True)


@command(search_app, "Search", DEFAULT, hidden=True)
def search(
    index: Annotated[
        Optional[Path],
        typer.Argument(
            help="OUT of a suffix-array dedup or of `search build`, or its index. In a workspace"
            " the default is the newest."
        ),
    ] = None,
    phrase: Annotated[Optional[str], typer.Argument(help="The text to count and show.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    **settings: Any,
) -> None:
    """Count a phrase in a corpus and show its occurrences: document, byte offset, context.

    With --longest or --file it shows the longest passage that a text shares with the corpus.

    \b
    Examples:
    llmcurate search out "the quick brown fox"
    llmcurate search out --file essay.txt
    """
    from curate.api.command_settings import Search
    from curate.dedup.suffix_array import search as searching
    from curate.dedup.suffix_array.search_index import SearchIndex, find_folder

    chosen = Search.of(**settings)
    alone = phrase is None and chosen.longest is None and chosen.file is None
    if alone and index is not None and not index.exists():
        index, phrase = None, str(index)
    if sum(text is not None for text in (phrase, chosen.longest, chosen.file)) != 1:
        raise UsageError("give one of PHRASE, --longest TEXT and --file FILE")
    folder = newest("search index", index, "OUT")
    arrays = SearchIndex(find_folder(folder))
    found: Matches | Longest
    if phrase is not None:
        found = searching.find(arrays, phrase, chosen.limit, chosen.context)
        print_result(found, text_of(found), as_json)
    else:
        text = read_text(chosen.file) if chosen.file is not None else chosen.longest or ""
        found = searching.longest(arrays, text, chosen.limit, chosen.context)
        print_result(found, text_of_longest(found), as_json)
    ids = [hit.document for hit in found.hits]
    if ids and (folder / "run.json").is_file():
        suggest("explain", ids[0], *(["--in", index] if index else []), quiet=quiet or as_json)


def _line(hit: Hit) -> str:
    text = " ".join(f"{hit.before}[{hit.match}]{hit.after}".split())
    return f"  {hit.document} byte {hit.byte}: {text}"


def text_of(hits: Matches) -> str:
    times = "once" if hits.count == 1 else f"{hits.count:,} times"
    head = f"found {times}" if hits.count else "not found"
    if len(hits.hits) < hits.count:
        head += f", the first {len(hits.hits)}:" if hits.hits else ""
    return "\n".join([head, *map(_line, hits.hits)])


def text_of_longest(passage: Longest) -> str:
    from curate.dedup.suffix_array.search import Matches

    if not passage.bytes:
        return "the text shares nothing with the corpus"
    head = (
        f"longest shared passage: {passage.bytes:,} bytes, from byte {passage.byte:,} of the text"
    )
    shown = passage.text if len(passage.text) <= 400 else f"{passage.text[:400]}..."
    return "\n".join([f"{head}: {shown}", text_of(Matches(passage.count, passage.hits))])


@command(search_app, "search_index", "build")
def build(inputs: Inputs = None, *, options: CommandOptions, **settings: Any) -> None:
    """Build the search index of a corpus without a dedup.

    The index takes five bytes per byte of text.

    \b
    Example:
    llmcurate search build corpus/ -o index
    """
    run_steps("search_index", [("search_index", settings)], inputs, options)
