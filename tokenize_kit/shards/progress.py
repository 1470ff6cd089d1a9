"""The progress of an encode, so that a killed run can resume.

From time to time all open files are synced to disk, and `progress.json` is written with their
sizes, their checksums and the number of documents in them. A resumed run cuts off what was written
later. It reads the encoded documents again to compare their hash, but does not re-encode them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from llmcurate.base.disk.files import sync_path, write_atomic
from llmcurate.base.disk.sealed_json import encode_json, seal
from llmcurate.base.disk.units import counted
from llmcurate.base.errors import LlmcurateError, RunFailed
from llmcurate.base.messages import Message, encode, json_values

NAME = "progress.json"
# Progress is saved after SAVE_BYTES of text, and after 1/64 of all text so far if that is more, so
# that a huge corpus has some hundred saves.
SAVE_BYTES = 256 << 20
_SAVE_SHARE = 64

# Syncs files to disk; returns (the state to resume from, the files that it describes).
Checkpoint = Callable[[], tuple[Message, list[Path]]]


@dataclass(frozen=True)
class Position:
    """A position in the input. documents: the number of documents before it; digest: their hash."""

    documents: int = 0
    digest: str = ""


BEGIN = Position()


class InputChanged(Exception):
    """The documents differ from those that the stopped run encoded."""


class Progress:
    """The saved progress of an encode. position: the position at which to resume; state: the states
    of file writers as JSON, by name; undrawn: how many documents so far were encoded without random
    sampling, because sampling was asked for but cannot handle these documents; unknown: how many
    tokens so far are the unknown token."""

    def __init__(
        self,
        folder: Path,
        identity: dict[str, str | float | None],
        say: Callable[[str], None] | None = None,
        save_bytes: int = SAVE_BYTES,
    ) -> None:
        """Resume a stopped run from its files in `folder`; if this is impossible, empty the folder.
        identity: everything that the written files depend on, except the documents."""
        self._save_bytes = save_bytes
        self.folder, self._identity = folder, identity
        self.position = BEGIN
        self.state: dict[str, bytes] = {}
        self._bytes = self._unsaved = self.undrawn = self.unknown = 0
        self._hashed: dict[str, tuple[Any, int]] = {}  # file: hash, hashed bytes
        say = say or (lambda line: None)
        _unlink(folder)
        reason = self._resume()
        if self.position.documents:
            verb = "was" if self.position.documents == 1 else "were"
            say(
                f"{counted(self.position.documents, 'document')} {verb} encoded before the run"
                " stopped: encoding resumes after them"
            )
            return
        if reason:
            say(f"starting over: {reason}")
        self.remove()
        self._hashed.clear()
        folder.mkdir(parents=True)

    @property
    def saved(self) -> bool:
        return (self.folder / NAME).is_file()

    def _resume(self) -> str:
        try:
            saved = json.loads((self.folder / NAME).read_bytes())
            if seal({k: v for k, v in saved.items() if k != "checksum"}) != saved:
                raise ValueError
            if saved["identity"] != self._identity:
                return "the tokenizer or a setting differs from the stopped run"
            links = any(path.is_symlink() for path in self.folder.rglob("*"))
            if links or not _stays_inside([*saved["files"], saved["state"]]):
                return "files of the stopped run link outside its folder"
            for name, written in saved["files"].items():
                if self._read(name, written[0]) != written:
                    return f"{name} of the stopped run has changed"
            state, read = saved["state"], int(saved["read"])
            state = {writer: encode(values) for writer, values in state.items()}
            position = Position(int(saved["documents"]), str(saved["digest"]))
            undrawn, unknown = int(saved["undrawn"]), int(saved["unknown"])
        except FileNotFoundError as error:
            lost = Path(error.filename).name
            return "" if lost == NAME else f"{lost} of the stopped run is missing"
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return "files of the stopped run cannot be read"
        self.position, self.state, self._bytes = position, state, read
        self.undrawn, self.unknown = undrawn, unknown
        return ""

    def _read(self, name: str, size: int) -> list[int | str]:
        hasher, first = self._hashed.get(name) or (xxhash.xxh3_128(), 0)
        with (self.folder / name).open("rb") as file:
            file.seek(first)
            while block := file.read(min(1 << 20, size - file.tell())):
                hasher.update(block)
            self._hashed[name] = hasher, file.tell()
            return [file.tell(), hasher.hexdigest()]

    def advance(
        self, position: Position, size: int, files: dict[str, Checkpoint], last: bool = False
    ) -> None:
        """Record that `size` more bytes of text, up to `position`, are written. Save the progress
        if `save_bytes` of text, and 1/64 of all text so far, are unsaved. files: {name of a file
        writer: function that syncs the writer's files and returns (its state, its files)}. last:
        True at the end of the input. Any unsaved text is then enough to save, if the input has
        `save_bytes` or more."""
        self._bytes += size
        self._unsaved += size
        least = self._save_bytes
        due = 1 if last and self._bytes >= least else max(least, self._bytes // _SAVE_SHARE)
        if self._unsaved >= due:
            self._save(position, files)

    def _save(self, position: Position, files: dict[str, Checkpoint]) -> None:
        saved_as = {writer: checkpoint() for writer, checkpoint in files.items()}
        written: dict[str, list[int | str]] = {}
        for _, paths in saved_as.values():
            for path in paths:
                name = path.relative_to(self.folder).as_posix()
                written[name] = self._read(name, path.stat().st_size)
        for folder in sorted({str(Path(name).parent) for name in written}):
            sync_path(self.folder / folder)
        saved = {
            "identity": self._identity,
            "documents": position.documents,
            "digest": position.digest,
            "read": self._bytes,
            "undrawn": self.undrawn,
            "unknown": self.unknown,
            "files": written,
            "state": {writer: json_values(state) for writer, (state, _) in saved_as.items()},
        }
        write_atomic(self.folder / NAME, encode_json(seal(saved)))
        self._unsaved = 0

    def forget(self) -> None:
        """Delete the saved progress: the files are about to be moved."""
        (self.folder / NAME).unlink(missing_ok=True)

    def remove(self) -> None:
        _unlink(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)


def _stays_inside(value: Any) -> bool:
    if isinstance(value, str):
        path = Path(value)
        return not path.is_absolute() and ".." not in path.parts
    if isinstance(value, dict):
        return all(map(_stays_inside, value.values()))
    return all(map(_stays_inside, value)) if isinstance(value, list) else True


def _unlink(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()


def input_changed_error() -> LlmcurateError:
    return RunFailed(
        "the documents differ from those of the stopped run: its files are removed; run again to"
        " start over"
    )
