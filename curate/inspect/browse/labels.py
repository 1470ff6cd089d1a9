"""Labels that a reader gives to documents, stored in an append-only file.

Each line is `{"id", "label", "time", "digest"}`. The label is good, bad, or empty if it was
cleared; only the last line of each document counts. The digest is the SHA-256 of the labelled text.
The text itself is not stored, so `llmcurate forget` need not change this file.
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
    id: str
    label: str
    time: str
    digest: str


class Labels:
    """The labels in a file. `latest` maps a document's id to its last label, which may be empty;
    `changes` is the number of lines. Raises UsageError if the file cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path, self.latest, self.changes = path, dict[str, Label](), 0
        self._lock = threading.Lock()
        for line in self._lines().splitlines():
            self.changes += 1
            try:
                label = Label.from_json(line)
            except ValueError:
                raise UsageError(f"{path}:{self.changes}: not a label of `browse`") from None
            self.latest[label.id] = label

    def _lines(self) -> bytes:
        return self.path.read_bytes() if self.path.is_file() else b""

    def of(self, name: str) -> list[Label]:
        """Return the labels with the name `good` or `bad`; the name `none` gives both."""
        names = LABELS if name == "none" else (name,)
        return [label for label in self.latest.values() if label.label in names]

    def put(self, id: str, name: str, text: str) -> None:
        """Append a label for a document; an empty label clears the earlier one. Raises UsageError
        for an unknown label, or if the file cannot be written; the file is then unchanged."""
        if name not in ("", *LABELS):
            raise UsageError(f"label {name[:40]!r} is unknown: use {' or '.join(LABELS)}")
        time = datetime.now(timezone.utc).isoformat(timespec="seconds")
        label = Label(id, name, time, text_digest(text))
        with self._lock:
            try:
                write_atomic(self.path, self._lines(), label.to_json(), b"\n")
            except OSError as error:
                reason = f"{error.strerror}; give another file with --labels"
                raise UsageError(f"{self.path}: {reason}") from None
            self.latest[id] = label
            self.changes += 1
