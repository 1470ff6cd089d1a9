"""Stack Exchange dumps: a question with its answers, best first, as one document.

Posts.xml, alone or in the 7z file of its site (`py7zr`), has one `row` per post. Answers may be
anywhere after their question, so all posts of a file are sorted in a temporary folder, and the file
is not divided into several partitions (units of parallel work). The text is `Q:`, the title and the
question, then the answers, best score first, each after `A:`, as in the Pile (Gao et al. 2020,
C.11) and RedPajama v1 (data_prep/stack_exchange). The Pile and RedPajama then select posts by
score; a recipe can select documents by the columns that this reader adds (COLUMNS). resiliparse
turns HTML into text.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple
from xml.etree import ElementTree

from curate.formats.columns import Columns
from curate.formats.compression import decompressed_chunks, open_input
from curate.formats.dates import parse_date
from curate.formats.elements import elements
from curate.formats.events import Corrupt, Event, NewDamage, Portion, Row, Skipped, too_large
from curate.formats.kinds import reader
from llmcurate.base.disk.database import literal, scratch_database
from llmcurate.base.disk.parquet_writer import TableWriter

COLUMNS = {
    "stackexchange.score": "int64",
    "stackexchange.tags": "string",
    "stackexchange.scores": "string",  # JSON list, in the order of the answers
    "stackexchange.accepted": "bool",  # one of the answers is the accepted one
    "stackexchange.license": "string",
}
QUESTION, ANSWER = 1, 2  # PostTypeId
ROWS = 5000  # posts written at a time
MOST_RATIO = 200  # highest ratio of unpacked to packed size of a 7z file; text has about 8
MOST_BELOW = 64 << 20  # every 7z file may unpack to this many bytes
_HOST = re.compile(r"[a-z0-9-]+(?:\.[a-z0-9-]+)+")


@reader("stackexchange", begins=r"(?:<\?xml[^>]{0,200}\?>)?\s*<posts\b")
@reader(
    "stackexchange-7z",
    endings=(".7z",),
    begins=r"7z\xbc\xaf\x27\x1c",
    package="py7zr",
    extra="stackexchange",
)
def read(portion: Portion) -> Iterator[Event]:
    """Yield what a dump holds: one document per question, ordered by question id, and any
    damage."""
    with tempfile.TemporaryDirectory(prefix="llmcurate-posts-") as name:
        folder = Path(name)
        if portion.format != "stackexchange-7z":
            with open_input(portion.path) as file:
                yield from _threads(file, portion, folder)
            return
        unpacked, event = _unpacked(portion.path, folder / "7z")
        if event:
            yield event
        if unpacked:
            with unpacked.open("rb") as file:
                yield from _threads(file, portion, folder)


def why_no_documents(path: str, columns: Columns) -> str | None:
    """Return the reason why a 7z file holds no posts, or None if it may hold posts."""
    if not path.lower().endswith(".7z"):
        return None
    import py7zr

    try:
        with open_input(path) as file, py7zr.SevenZipFile(file) as archive:
            return None if "Posts.xml" in archive.namelist() else "no Posts.xml in it"
    except (py7zr.exceptions.ArchiveError, OSError, ValueError, EOFError):
        return None  # reported when the file is read


def _unpacked(path: str, folder: Path) -> tuple[Path | None, Corrupt | None]:
    import lzma

    import py7zr

    errors = (
        py7zr.exceptions.ArchiveError, lzma.LZMAError, ValueError, EOFError, KeyError, IndexError,
        TypeError, AttributeError,
    )  # fmt: skip
    try:
        with open_input(path) as file:
            allowed = max(MOST_BELOW, MOST_RATIO * file.seek(0, 2))
            file.seek(0)
            with py7zr.SevenZipFile(file) as archive:
                posts = [m for m in archive.list() if m.filename == "Posts.xml"]
                if not posts:
                    return None, Corrupt(0, "7z: no Posts.xml in it")
                if sum(m.uncompressed for m in archive.list()) > allowed:
                    damage = f"7z: it would unpack to more than {MOST_RATIO} times its size"
                    return None, Corrupt(0, damage)
                archive.extract(folder, targets=["Posts.xml"])
    except errors as error:
        return None, Corrupt(0, f"7z: {' '.join(str(error).split())[:100] or type(error).__name__}")
    except OSError as error:
        if error.errno is not None:
            raise
        return None, Corrupt(0, f"7z: {error}")
    posts_file = folder / "Posts.xml"
    is_file = posts_file.is_file() and not posts_file.is_symlink()
    return (posts_file, None) if is_file else (None, Corrupt(0, "7z: Posts.xml is not a file"))


class _Post(NamedTuple):
    thread: int
    answer: bool
    score: int
    id: int
    date: str | None
    title: str | None
    body: str
    tags: str | None
    license: str | None
    accepted: int | None
    offset: int


def _threads(file: BinaryIO, portion: Portion, folder: Path) -> Iterator[Event]:
    spool = folder / "posts.parquet"
    yield from _spooled(file, portion, spool)
    site = _site(portion)
    with scratch_database(folder / "spill") as db:
        cursor = db.execute(
            f"""SELECT * FROM read_parquet({literal(spool)})
            ORDER BY thread, answer, score DESC, id"""
        )
        thread: list[_Post] = []
        while rows := cursor.fetchmany(1000):
            for row in rows:
                post = _Post(*row)
                if thread and post.thread != thread[0].thread:
                    yield _document(thread, site, portion)
                    thread = []
                thread.append(post)
        if thread:
            yield _document(thread, site, portion)


def _spooled(file: BinaryIO, portion: Portion, spool: Path) -> Iterator[Event]:
    import pyarrow as pa

    schema = pa.schema(
        [("thread", pa.int64()), ("answer", pa.bool_()), ("score", pa.int64()), ("id", pa.int64())]
        + [(n, pa.string()) for n in ("date", "title", "body", "tags", "license")]
        + [("accepted", pa.int64()), ("offset", pa.int64())]
    )
    damage = NewDamage()
    posts: list[_Post] = []
    writer, done = TableWriter(spool), False
    try:
        writer.write(schema.empty_table())
        chunks = decompressed_chunks(file, None, damage)
        for row in elements(chunks, 0, None, b"row", portion.max_record, empty=True):
            yield from damage.drain()
            if row.data is None:
                yield too_large("record_too_large", row.size, portion.max_record, row.offset)
                continue
            post = _post(row.data, row.offset)
            if not isinstance(post, _Post):
                yield post
                continue
            posts.append(post)
            if len(posts) == ROWS:
                writer.write(pa.Table.from_pylist([post._asdict() for post in posts], schema))
                posts = []
        yield from damage
        writer.write(pa.Table.from_pylist([post._asdict() for post in posts], schema))
        done = True
    finally:
        writer.close(failed=not done)


def _post(data: bytes, offset: int) -> _Post | Event:
    try:
        data = data.rstrip()
        row = ElementTree.fromstring(data if data.endswith(b"/>") else data + b"</row>")
        kind, number = int(row.get("PostTypeId", 0)), int(row.get("Id", ""))
        answer = kind == ANSWER
        if kind not in (QUESTION, ANSWER):
            return Skipped(f"stackexchange:type-{kind}", offset)
        if not all(-(1 << 62) < int(row.get(n) or 0) < 1 << 62 for n in ("Id", "ParentId")):
            raise ValueError("a number is too large")
        return _Post(
            thread=int(row.get("ParentId", "")) if answer else number,
            answer=answer,
            score=max(-(1 << 31), min(int(row.get("Score") or 0), 1 << 31)),
            id=number,
            date=row.get("LastEditDate") or row.get("CreationDate"),
            title=row.get("Title"),
            body=row.get("Body") or "",
            tags=row.get("Tags"),
            license=row.get("ContentLicense"),
            accepted=None if answer else int(row.get("AcceptedAnswerId") or 0) % (1 << 62),
            offset=offset,
        )
    except ElementTree.ParseError as error:
        return Corrupt(offset, f"not XML: {error}")
    except ValueError as error:
        return Corrupt(offset, f"not a post: {error}")


def _site(portion: Portion) -> str | None:
    path = PurePosixPath(portion.path.replace("\\", "/"))
    for name in (path.name.removesuffix(".7z").removesuffix("-Posts"), path.parent.name):
        if _HOST.fullmatch(name) and not name.endswith((".xml", ".gz", ".zst", ".bz2")):
            return name
    return None


def _document(thread: list[_Post], site: str | None, portion: Portion) -> Event:
    question, answers = thread[0], thread[1:]
    if question.answer:  # its question is not in the dump
        return Skipped("stackexchange:answer-without-question", question.offset)
    pieces = [f"Q:\n\n{question.title or ''}\n\n{html_text(question.body)}".strip()]
    pieces += [f"A:\n\n{html_text(answer.body)}" for answer in answers]
    number = question.id
    row = Row(
        id=f"{site}/{number}" if site else None,
        url=f"https://{site}/questions/{number}" if site else None,
        date=max(filter(None, (parse_date(post.date) for post in thread)), default=None),
        text="\n\n".join(pieces),
        offset=question.offset,
        extra={
            "stackexchange.score": question.score,
            "stackexchange.tags": question.tags,
            "stackexchange.scores": json.dumps([answer.score for answer in answers]),
            "stackexchange.accepted": question.accepted in [a.id for a in answers],
            "stackexchange.license": question.license,
        },
    )
    size = len(row.text or "")
    if size > portion.max_payload:
        row.text = None
        row.reject = ("payload_too_large", float(size), float(portion.max_payload), None)
    return row


def html_text(html: str) -> str:
    """Return the plain text of a post's HTML, with the line breaks of its code."""
    from resiliparse.extract.html2text import extract_plain_text

    text: str = extract_plain_text(html, main_content=False)
    return text.strip()
