"""The text of a LaTeX paper: its main file with what it inputs, without preamble and comments.

As in RedPajama v1 (data_prep/arxiv/arxiv_cleaner.py) comments go, what stands behind \\appendix or
where the bibliography begins goes, and macros without arguments are expanded, once. RedPajama drops
what stands before the first section, too; here only the preamble goes, so that the abstract stays.
"""

from __future__ import annotations

import re
from itertools import islice

ENDINGS = (".tex", ".ltx", ".latex")
DEEPEST = 8  # levels of \input
MOST_MACROS = 2000  # definitions beyond stay as they are
MOST_VALUE = 2000  # characters that a macro may stand for
_MAIN = re.compile(r"^[^%\n]*\\document(?:class|style)\b", re.M)
_BEGIN = re.compile(r"\\begin\s*\{document\}")
_END = re.compile(
    r"\\end\s*\{document\}|\\appendix\b|\\begin\{(?:references|REFERENCES|thebibliography)\}"
    r"|\\bibliography\{"
)
_COMMENT_LINE = re.compile(r"^[ \t]*%.*\n?", re.M)
_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)%.*")
_INPUT = re.compile(r"\\(?:input|include|subfile)\s*\{\s*([^{}\n]{1,200}?)\s*\}")
_MACRO = re.compile(
    r"\\(?:newcommand|renewcommand|providecommand)\*?\s*\{?\s*(\\[A-Za-z]+)\s*\}?\s*(?=\{)"
    r"|\\def\s*(\\[A-Za-z]+)\s*(?=\{)"
)
_NAME = re.compile(r"\\[A-Za-z]+")
_BLANK = re.compile(r"(?<![ \t])[ \t]*\n(?:[ \t]*\n)+")


def main_file(files: dict[str, str]) -> str | None:
    """The main file: of those that begin a document the longest."""
    mains = [f for f in files.values() if _MAIN.search(f) and _BEGIN.search(f)]
    return max(mains, key=len, default=None)


def paper_text(main: str, files: dict[str, str], limit: int) -> str | None:
    """The text of a paper, or None where it has more than `limit` characters on the way.

    files: by name without ending, for what the main file inputs.
    """
    budget = [limit]
    whole = _with_inputs(_without_comments(main), files, DEEPEST, budget)
    if whole is None:
        return None
    whole, macros = _without_macros(whole)
    begin = _BEGIN.search(whole)
    body = whole[begin.end() :] if begin else whole
    end = _END.search(body)
    body = body[: end.start()] if end else body
    expanded = _expanded(body, macros, limit)
    return None if expanded is None else _BLANK.sub("\n\n", expanded).strip()


def _without_comments(text: str) -> str:
    return _COMMENT.sub(r"\1", _COMMENT_LINE.sub("", text))


def _with_inputs(text: str, files: dict[str, str], deep: int, budget: list[int]) -> str | None:
    pieces: list[str] = []
    at = 0
    for match in _INPUT.finditer(text):
        inner = files.get(file_key(match[1])) if deep else None
        if inner is None:
            continue
        put = _with_inputs(_without_comments(inner), files, deep - 1, budget)
        if put is None:
            return None
        pieces += [text[at : match.start()], put]
        at = match.end()
    pieces.append(text[at:])
    budget[0] -= sum(map(len, pieces))
    return None if budget[0] < 0 else "".join(pieces)


def _without_macros(text: str) -> tuple[str, dict[str, str]]:
    """(the text without the definitions of macros that take no argument, name -> what they stand
    for)."""
    macros: dict[str, str] = {}
    pieces: list[str] = []
    at = 0
    for match in islice(_MACRO.finditer(text), MOST_MACROS):
        value = _braced(text, match.end()) if match.start() >= at else None
        name = match[1] or match[2]
        if value is None or "#" in value or name in _NAME.findall(value):
            continue
        macros[name] = value
        pieces.append(text[at : match.start()])
        at = match.end() + len(value) + 2
    return "".join([*pieces, text[at:]]), macros


def _braced(text: str, at: int) -> str | None:
    """What stands in the braces that open at `at`."""
    depth = 0
    for place in range(at, min(len(text), at + MOST_VALUE)):
        if text[place] == "\\":
            continue
        if place and text[place - 1] == "\\":
            continue
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            return text[at + 1 : place]
    return None


def _expanded(text: str, macros: dict[str, str], limit: int) -> str | None:
    """The text with its macros expanded, each once, as RedPajama does."""
    if not macros:
        return text
    size = len(text)

    def value(match: re.Match[str]) -> str:
        nonlocal size
        put = macros.get(match[0])
        if put is None:
            return match[0]
        size += len(put)
        if size > limit:
            raise OverflowError
        return put

    try:
        return _NAME.sub(value, text)
    except OverflowError:
        return None


def file_key(name: str) -> str:
    """A file's name as \\input has it: without ./ and ending."""
    name = name.strip().strip('"').removeprefix("./")
    for ending in ENDINGS:
        name = name.removesuffix(ending)
    return name
