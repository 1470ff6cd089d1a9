"""The progress of an encode, so that one that was killed resumes there.

Now and then the files under way are brought to disk, and `progress.json` says how long they are,
what is in them (a checksum), and behind which document. What was written later is cut off; the
documents before it are read again, and compared with a hash, but not encoded.
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
SAVE_BYTES = 256 << 20  # of text between two saves, at least
_PART = 64  # and this part of all so far, so that saves of a huge corpus are some hundreds


# Brings files to disk; (what to go on from, the files that it stands for).
Checkpoint = Callable[[], tuple[Message, list[Path]]]


@dataclass(frozen=True)
class Position:
    """A position in the input, behind so many documents. digest: a hash of the batches they are
    in."""

    documents: int = 0
    digest: str = ""


BEGIN = Position()


class InputChanged(Exception):
    """The documents are not those that were encoded before."""


class Progress:
    """position: where to resume; state: the states of the writers of files there, by their
    names, as JSON; undrawn: documents so far whose ids were to be drawn, and are the usual ones."""

    def __init__(
        self,
        folder: Path,
        identity: dict[str, str | float | None],
        say: Callable[[str], None] | None = None,
        save_bytes: int = SAVE_BYTES,
    ) -> None:
        """folder: of the files under way; emptied where it holds nothing to go on from. identity:
        what the files depend on beside the documents."""
        self._save_bytes = save_bytes
        self.folder, self._identity = folder, identity
        self.position = BEGIN
        self.state: dict[str, bytes] = {}
        self._all = self._since = self.undrawn = 0
        self._hashed: dict[str, tuple[Any, int]] = {}  # files: the hash of so many bytes of each
        say = say or (lambda line: None)
        _unlink(folder)
        why = self._resume()
        if self.position.documents:
            were = "was" if self.position.documents == 1 else "were"
            say(
                f"{counted(self.position.documents, 'document')} {were} encoded before it was"
                " stopped: not encoded again"
            )
            return
        if why:
            say(f"begun anew: {why}")
        self.remove()
        self._hashed.clear()
        folder.mkdir(parents=True)

    @property
    def saved(self) -> bool:
        """Whether there is anything to go on from."""
        return (self.folder / NAME).is_file()

    def _resume(self) -> str:
        """Takes up what was saved; else why it cannot be, or nothing."""
        try:
            saved = json.loads((self.folder / NAME).read_bytes())
            if seal({k: v for k, v in saved.items() if k != "checksum"}) != saved:
                raise ValueError
            if saved["identity"] != self._identity:
                return "the tokenizer or a setting is not that of the run that was stopped"
            links = any(path.is_symlink() for path in self.folder.rglob("*"))
            if links or not _stays_inside([*saved["files"], saved["state"]]):
                return "what the run that was stopped has left leads to files elsewhere"
            for name, written in saved["files"].items():
                if self._read(name, written[0]) != written:
                    return f"{name} of the run that was stopped is not what was written"
            state, read = saved["state"], int(saved["read"])
            state = {writer: encode(values) for writer, values in state.items()}
            position = Position(int(saved["documents"]), str(saved["digest"]))
            undrawn = int(saved["undrawn"])
        except FileNotFoundError as error:
            lost = Path(error.filename).name
            return "" if lost == NAME else f"{lost} of the run that was stopped is not there"
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return "what the run that was stopped has left cannot be read"
        self.position, self.state, self._all, self.undrawn = position, state, read, undrawn
        return ""

    def _read(self, name: str, size: int) -> list[int | str]:
        """[bytes, xxh3-128] of a file up to that size. Read is what was not at the last save."""
        hasher, first = self._hashed.get(name) or (xxhash.xxh3_128(), 0)
        with (self.folder / name).open("rb") as file:
            file.seek(first)
            while block := file.read(min(1 << 20, size - file.tell())):
                hasher.update(block)
            self._hashed[name] = hasher, file.tell()
            return [file.tell(), hasher.hexdigest()]

    def passed(
        self, position: Position, size: int, files: dict[str, Checkpoint], last: bool = False
    ) -> None:
        """So many bytes of text, up to that position, have been written; saves where it is time to,
        and at the last position, where there is as much as that in all.

        files: brings what is written to disk and returns (a state; the files that it stands for),
        by a name under which `state` has it afterwards.
        """
        self._all += size
        self._since += size
        least = self._save_bytes
        worth = 1 if last and self._all >= least else max(least, self._all // _PART)
        if self._since >= worth:
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
            "read": self._all,
            "undrawn": self.undrawn,
            "files": written,
            "state": {writer: json_values(state) for writer, (state, _) in saved_as.items()},
        }
        write_atomic(self.folder / NAME, encode_json(seal(saved)))
        self._since = 0

    def forget(self) -> None:
        """From here on there is nothing to go on from: the files are about to be moved."""
        (self.folder / NAME).unlink(missing_ok=True)

    def remove(self) -> None:
        _unlink(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)


def _stays_inside(value: Any) -> bool:
    """Whether no string of a JSON value, as a path below the folder, leads out of it."""
    if isinstance(value, str):
        path = Path(value)
        return not path.is_absolute() and ".." not in path.parts
    if isinstance(value, dict):
        return all(map(_stays_inside, value.values()))
    return all(map(_stays_inside, value)) if isinstance(value, list) else True


def _unlink(folder: Path) -> None:
    """A link is no folder of ours: it goes, and what it leads to stays."""
    if folder.is_symlink():
        folder.unlink()


def input_changed_error() -> LlmcurateError:
    return RunFailed(
        "the documents are not those of the run that was stopped: what it left is removed; run"
        " again to begin anew"
    )
