"""Decompressed bytes in runs, for a reader that has to find its way through damaged archives."""

from __future__ import annotations

from typing import BinaryIO

from curate.formats.compression import BREAK, DATA, START, Piece, members
from curate.formats.events import Corrupt
from curate.formats.heads import LONGEST_START, begins_record

_REREAD = 256 << 20
"""Bytes that may be read again per file because of wrong lengths; keeps hostile files linear."""


class Runs:
    """Decompressed bytes in runs: a run ends at a member that begins a record, at damage, at the
    end of the file. `buf[pos:]` is what is at hand of the present run."""

    def __init__(self, file: BinaryIO, start: int, end: int | None, codec: str) -> None:
        self.file, self.codec, self.end = file, codec, end
        self.plain = codec == "plain"
        self.reread = _REREAD
        self.open(start)

    def open(self, start: int) -> None:
        self.pieces = members(self.file, start, self.end, self.codec)
        self.buf, self.pos = b"", 0
        self.at = start
        """Offset of buf[0] (plain), of the member that the newest data came from (compressed)."""
        self.older: list[tuple[int, int]] = []  # (bytes of buf that came from it, its offset)
        self.ahead: list[Piece] = []
        self.stop: str = ""  # why the run ended: "", record, inside, between, eof
        self.broken: Corrupt | None = None

    def offset(self) -> int:
        """Where in the file the byte at `pos` is: exact (plain), its member's start (else)."""
        if self.plain:
            return self.at + self.pos
        for until, offset in self.older:
            if self.pos < until:
                return offset
        return self.at

    def more(self) -> bool:
        """Appends to the run; False (and `stop` says why) where the run ends."""
        while not self.stop:
            piece = self.ahead.pop(0) if self.ahead else next(self.pieces, None)
            if piece is None:
                self.stop = "eof"
            elif piece.kind == DATA:
                self._append(piece.data)
                return True
            elif piece.kind == START:
                head = self._peek()
                if begins_record(head):
                    self.stop, self.next_at = "record", piece.offset
                else:
                    self._enter(piece.offset)
            elif piece.kind == BREAK:
                self.stop = "inside" if piece.inside else "between"
                self.broken = Corrupt(piece.offset, piece.what)
        return False

    def _append(self, data: bytes) -> None:
        if self.pos == len(self.buf):
            if self.plain:
                self.at += self.pos
            self.buf, self.pos, self.older = data, 0, []
        else:
            if self.plain:
                self.at += self.pos
            if self.pos and self.older:
                self.older = [(n - self.pos, o) for n, o in self.older if n > self.pos]
            self.buf, self.pos = self.buf[self.pos :] + data, 0

    def _enter(self, offset: int) -> None:
        if self.pos < len(self.buf):
            self.older.append((len(self.buf), self.at))
            if len(self.older) > 256:  # members of a few bytes: offsets become approximate
                del self.older[128:-1]
        self.at = offset

    def _peek(self) -> bytes:
        head = b""
        while True:
            piece = next(self.pieces, None)
            if piece is None:
                return head
            self.ahead.append(piece)
            if piece.kind != DATA:
                return head
            head += piece.data
            if len(head) >= LONGEST_START or (len(head) > 64 and head[:5].upper() == b"WARC/"):
                return head

    def next_run(self) -> bool:
        """Goes on behind the end of a run; False at the end of the file."""
        if self.stop == "eof":
            return False
        if self.stop == "record":
            self.at = self.next_at
        self.buf, self.pos, self.older, self.stop, self.broken = b"", 0, [], "", None
        return True

    def fill(self, size: int) -> bool:
        """Makes `size` bytes available from `pos` on; False if the run has fewer."""
        while len(self.buf) - self.pos < size:
            if not self.more():
                return False
        return True

    def push_back(self, data: bytes) -> None:
        """Puts bytes that were taken back in front (their offsets become approximate)."""
        self.reread -= len(data)
        if self.plain:
            self.at += self.pos - len(data)
        self.buf, self.pos = data + self.buf[self.pos :], 0
        self.older = []
