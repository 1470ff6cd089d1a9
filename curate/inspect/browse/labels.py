"""The labels that a reader gives documents, in a file that only grows.

A line each, `{"id", "label", "time", "digest"}`: the label is good, bad, or empty where it was
taken back; the last one of a document counts; the digest is the SHA-256 of the text that was
labelled. Texts are not in it, so a document that is forgotten leaves none there.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from llmcurate.base.disk.files import text_digest, write_atomic
from llmcurate.base.errors import UsageError
from llmcurate.base.messages import Message

FILE = "labels.jsonl"  # in OUT
LABELS = ("good", "bad")


@dataclass(frozen=True)
class Label(Message):
    """A line of the file."""

    id: str
    label: str
    time: str
    digest: str


class Labels:
    """The labels in a file, which is made with the first one. latest: by id, empty ones too;
    changes: how many lines there were. UsageError where it cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path, self.latest, self.changes = path, dict[str, Label](), 0
        self._lock = threading.Lock()
        for line in self._lines().splitlines():
            self.changes += 1
            try:
                label = Label.from_json(line)
            except ValueError:
                raise UsageError(f"{path}:{self.changes} is no label of `browse`") from None
            self.latest[label.id] = label

    def _lines(self) -> bytes:
        return self.path.read_bytes() if self.path.is_file() else b""

    def of(self, name: str) -> list[Label]:
        """The documents with that label: good or bad, or `none` for any of them."""
        names = LABELS if name == "none" else (name,)
        return [label for label in self.latest.values() if label.label in names]

    def put(self, id: str, name: str, text: str) -> None:
        """Adds a label, or an empty one that takes it back. UsageError for another, and where the
        file cannot be written, which then is as it was."""
        if name not in ("", *LABELS):
            raise UsageError(f"label {name[:40]!r}: choose {' or '.join(LABELS)}")
        time = datetime.now(timezone.utc).isoformat(timespec="seconds")
        label = Label(id, name, time, text_digest(text))
        with self._lock:
            try:
                write_atomic(self.path, self._lines(), label.to_json(), b"\n")
            except OSError as error:
                reason = f"{error.strerror}; name another file with --labels"
                raise UsageError(f"{self.path}: {reason}") from None
            self.latest[id] = label
            self.changes += 1
