r"""LaTeX sources from arXiv: one document per paper.

A file is a tar of papers (arXiv_src_*.tar: one gzip file per paper, which holds one TeX file or a
tar of several TeX files), the gzip file of one paper, or one .tex file. Names in a tar are only
looked up for \input, never used as paths.

As in RedPajama v1 (data_prep/arxiv/arxiv_cleaner.py) comments are removed, the text ends at
\appendix or the bibliography, and macros without arguments are expanded, once. RedPajama also drops
the text before the first section. Here only the preamble is dropped, which keeps the abstract.
"""

from __future__ import annotations

import io
import re
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from curate.formats.columns import Columns
from curate.formats.compression import decompressed_chunks, open_input
from curate.formats.events import Corrupt, Event, NewDamage, Portion, Row, Skipped
from curate.formats.kinds import reader
from curate.text.decoding import decode
from curate.text.encodings import Decoded
from llmcurate.base.disk.units import counted

ENDINGS = (".tex", ".ltx", ".latex")
DEEPEST = 8  # levels of \input
MOST_MACROS = 2000  # per paper; later definitions are not expanded
MOST_VALUE = 2000  # characters of a macro's expansion
_MAIN = re.compile(r"^[^%\n]*\\document(?:class|style)\b", re.M)
_BEGIN = re.compile(r"\\begin\s*\{document\}")
_END = re.compile(
    r"\\end\s*\{document\}|\\appendix\b|\\begin\{(?:references|REFERENCES|thebibliography)\}"
    r"|\\bibliography\{"
)
# A percent sign begins no comment after a backslash, and in the environments and arguments that TeX
# reads literally (packages verbatim, fancyvrb, listings, minted, alltt, url, hyperref).
_LITERAL = re.compile(
    r"%|\\begin\s{0,9}\{(?P<environment>verbatim\*?|[BL]?Verbatim\*?|lstlisting|minted|alltt|comment)\}"
    r"|\\(?P<command>[vV]erb\*?|lstinline(?:\[[^][\n]{0,500}\])?"
    r"|mintinline(?:\[[^][\n]{0,500}\])?\{[^{}\n]{0,99}\}"
    r"|url|nolinkurl|path|href)(?![A-Za-z])[ \t]{0,9}"
    r"|\\[\\%]"
)
_BRACE = re.compile(r"\\(?s:.)|[{}]|\n[ \t]*\n")
_URLS = ("url", "nolinkurl", "path", "href")
MOST_LITERAL = 4000  # characters of a literal argument
_INPUT = re.compile(r"\\(?:input|include|subfile)\s*\{\s*([^{}\n]{1,200}?)\s*\}")
_MACRO = re.compile(
    r"\\(?:newcommand|renewcommand|providecommand)\*?\s*\{?\s*(\\[A-Za-z]+)\s*\}?\s*(?=\{)"
    r"|\\def\s*(\\[A-Za-z]+)\s*(?=\{)"
)
_LINE_END = re.compile(r"\r\n?")
_NAME = re.compile(r"\\[A-Za-z]+")
_BLANK = re.compile(r"(?<![ \t])[ \t]*\n(?:[ \t]*\n)+")


def paper_text(main: str, files: dict[str, str], limit: int) -> str | None:
    """Return the text of a paper, or None if the text grows beyond `limit` characters. `files` maps
    the name (without extension) of each file that the paper can input to its text."""
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
    pieces: list[str] = []
    ends: dict[str, int] = {}  # the next end of each environment, -1 for none
    closed: dict[int, int] | None = None
    kept = at = 0  # text before `kept` is in `pieces`; text before `at` has been searched
    while match := _LITERAL.search(text, at):
        at = match.end()
        if match[0] == "%":
            line = text.rfind("\n", 0, match.start()) + 1
            alone = line >= kept and not text[line : match.start()].strip(" \t")
            at = text.find("\n", at)
            at = len(text) if at < 0 else at + alone
            pieces.append(text[kept : line if alone else match.start()])
            kept = at
        elif name := match["environment"]:
            end = f"\\end{{{name}}}"
            if -1 < ends.get(name, 0) < at:
                ends[name] = text.find(end, at)
            if ends[name] < 0:
                continue
            at = ends[name] + len(end)
            if name == "comment":
                pieces.append(text[kept : match.start()])
                kept = at = at + text.startswith("\n", at)
        elif match["command"]:
            closed = _closed_braces(text) if closed is None else closed
            at = _literal_end(text, match["command"], at, closed)
    return "".join([*pieces, text[kept:]])


def _closed_braces(text: str) -> dict[int, int]:
    """Return {start: end} of the groups in braces. No group goes on after a blank line."""
    closed: dict[int, int] = {}
    begun: list[int] = []
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            begun.append(brace.start())
        elif brace[0] == "}" and begun:
            closed[begun.pop()] = brace.end()
        elif brace[0][0] == "\n":
            begun.clear()
    return closed


def _literal_end(text: str, command: str, at: int, closed: dict[int, int]) -> int:
    r"""Return the position after the literal argument of `command` at `at`, or `at` if the argument
    is not closed. The argument is in braces or, as in \verb, between two equal characters on one
    line. `closed` maps the start of a group in braces to its end."""
    mark, most = text[at : at + 1], at + MOST_LITERAL
    if mark == "{" and command[1:4] != "erb":
        end = closed.get(at, at)
        return end if end <= most else at
    # TikZ has a different \\path: (a) -- (b).
    elif mark and not (mark.isalnum() or mark.isspace() or (command in _URLS and mark not in "|!")):
        end = text.find(mark, at + 1, most)
        return at if end < 0 or "\n" in text[at:end] else end + 1
    return at


def _with_inputs(text: str, files: dict[str, str], deep: int, budget: list[int]) -> str | None:
    pieces: list[str] = []
    at = 0
    for match in _INPUT.finditer(text):
        inner = files.get(file_key(match[1])) if deep else None
        if inner is None:
            continue
        replacement = _with_inputs(_without_comments(inner), files, deep - 1, budget)
        if replacement is None:
            return None
        pieces += [text[at : match.start()], replacement]
        at = match.end()
    pieces.append(text[at:])
    budget[0] -= sum(map(len, pieces))
    return None if budget[0] < 0 else "".join(pieces)


def _without_macros(text: str) -> tuple[str, dict[str, str]]:
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
    if not macros:
        return text
    size = len(text)

    def value(match: re.Match[str]) -> str:
        nonlocal size
        replacement = macros.get(match[0])
        if replacement is None:
            return match[0]
        size += len(replacement)
        if size > limit:
            raise OverflowError
        return replacement

    try:
        return _NAME.sub(value, text)
    except OverflowError:
        return None


def file_key(name: str) -> str:
    r"""Return the name by which a paper inputs a file: without ./ and extension."""
    name = name.strip().strip('"').removeprefix("./")
    for ending in ENDINGS:
        name = name.removesuffix(ending)
    return name


MOST_FILES = 2000  # per paper
MOST_HEADER = 1 << 20  # bytes of an extended header, which tarfile holds in memory
_EXTENSIONS = (
    tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)  # fmt: skip
MEMBERS_CHECKED = 50  # first members of a tar, which decide if it holds papers
_ERRORS = (tarfile.TarError, EOFError, zlib.error, ValueError, OverflowError)
_ID = re.compile(r"(?:([a-z-]+)(\d{7}))|(\d{4}\.\d{4,5})(?:v\d+)?")


class _Member(tarfile.TarInfo):
    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Any:
        member = super().frombuf(buf, encoding, errors)
        if member.type in _EXTENSIONS and member.size > MOST_HEADER:
            raise tarfile.ReadError(f"a header of {member.size} bytes")
        return member


def _tar(stream: _Stream) -> tarfile.TarFile:
    return tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member)


def why_no_documents(path: str, columns: Columns) -> str | None:
    """Return the reason why a tar holds no papers, or None if it may hold papers."""
    names = _names(path)
    if names is None or any(name.endswith((*ENDINGS, ".gz")) for name in names):
        return None
    return f"no LaTeX among its first {counted(MEMBERS_CHECKED, 'file')}"


def _names(path: str) -> list[str] | None:
    with open_input(path) as file:
        stream = _Stream(decompressed_chunks(file, None, lambda offset, what: None))
        if not stream.begins_tar():
            return None
        names: list[str] = []
        try:
            with _tar(stream) as tar:
                for _, member in zip(range(MEMBERS_CHECKED), tar, strict=False):
                    names.append(member.name.lower())
        except _ERRORS:
            pass  # reported when the file is read
        return names


@reader(
    "latex",
    endings=(".tar", ".tgz", ".tex"),
    begins=r"(?s).{257}ustar|(?:[ \t\r\n]|%[^\n]*\n)*\\document(?:class|style)\b",
)
def read(portion: Portion) -> Iterator[Event]:
    damage = NewDamage()
    names = _names(portion.path) or []
    with open_input(portion.path) as file:
        stream = _Stream(decompressed_chunks(file, portion.codec, damage))
        packed = any(name.endswith(".gz") for name in names)
        if packed and not any(name.endswith(ENDINGS) for name in names):
            yield from _papers(stream, portion)
        else:
            name = PurePosixPath(portion.rel).name
            yield from _paper(stream, name, None, 0, portion)
    yield from damage


def _papers(stream: _Stream, portion: Portion) -> Iterator[Event]:
    try:
        with _tar(stream) as tar:
            for member in tar:
                if not member.isfile():
                    continue
                if not member.name.lower().endswith(".gz"):
                    ending = PurePosixPath(member.name).suffix.lower()[:10]
                    yield Skipped(f"latex:{ending or 'other'}", member.offset)
                    continue
                if member.size > portion.max_record:
                    limit = float(portion.max_record)
                    reject = ("record_too_large", float(member.size), limit, "passed over")
                    yield Row(offset=member.offset, reject=reject)
                    continue
                packed = tar.extractfile(member)
                data = packed.read() if packed else b""
                when = datetime.fromtimestamp(member.mtime, timezone.utc)
                damage = NewDamage()
                chunks = decompressed_chunks(io.BytesIO(data), None, damage)
                name = PurePosixPath(member.name).name
                yield from _paper(_Stream(chunks), name, when, member.offset, portion)
                for each in damage:
                    yield Corrupt(member.offset, f"{name[:80]!r}: {each.what}", each.count)
    except _ERRORS as error:
        yield Corrupt(stream.tell(), f"tar: {error}; the rest of the file is not read")


def _paper(
    stream: _Stream, name: str, when: datetime | None, offset: int, portion: Portion
) -> Iterator[Event]:
    files: dict[str, Decoded] = {}
    size = 0
    limit = portion.max_payload
    if stream.begins_tar():
        try:
            with _tar(stream) as tar:
                for _, member in zip(range(MOST_FILES), tar, strict=False):
                    if member.isfile() and member.name.lower().endswith(ENDINGS):
                        size += member.size
                        if size > limit:
                            break
                        inner = tar.extractfile(member)
                        files[file_key(member.name)] = decode(
                            inner.read() if inner else b"", html=False
                        )
        except _ERRORS as error:
            yield Corrupt(offset, f"tar of {name[:80]!r}: {error}")
    else:
        data = stream.read(limit + 1)
        size = len(data)
        if data.startswith((b"%PDF-", b"%!PS")):
            yield Skipped("latex:pdf-or-postscript", offset)
            return
        files[file_key(name)] = decode(data, html=False)
    if size > limit:
        reject = ("payload_too_large", float(size), float(limit), None)
        yield Row(offset=offset, reject=reject)
        return
    texts = {key: _LINE_END.sub("\n", file.text) for key, file in files.items()}
    mains = [text for text in texts.values() if _MAIN.search(text) and _BEGIN.search(text)]
    main = max(mains, key=len, default=None)
    if main is None:
        yield Skipped("latex:no-document", offset)
        return
    text = paper_text(main, texts, limit)
    if text is None:
        detail = "its macros or inputs expand to more than that"
        yield Row(offset=offset, reject=("payload_too_large", None, float(limit), detail))
        return
    number = _ID.match(PurePosixPath(name).name)
    paper = None
    if number:
        paper = f"{number[1]}/{number[2]}" if number[1] else number[3]
    yield Row(
        id=f"arxiv:{paper}" if paper else None,
        url=f"https://arxiv.org/abs/{paper}" if paper else None,
        date=when,
        text=text,
        offset=offset,
        replaced=sum((Counter(file.losses) for file in files.values()), Counter()),
    )


class _Stream(io.RawIOBase):
    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.chunks, self.rest, self.at = chunks, b"", 0

    def peek(self, size: int = 512) -> bytes:
        while len(self.rest) < size and (more := next(self.chunks, b"")):
            self.rest += more
        return self.rest[:size]

    def begins_tar(self) -> bool:
        return self.peek()[257:262] == b"ustar"

    def read(self, size: int | None = -1) -> Any:
        most = 1 << 62 if size is None or size < 0 else size
        data = bytes(self.peek(most))
        self.rest = self.rest[len(data) :]
        self.at += len(data)
        return data

    def tell(self) -> int:
        return self.at
