"""Lists of words or phrases that a step's settings give: in the recipe, or in a file with one entry
per line. Lines that begin with # are comments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationInfo, field_validator

from curate.fetch.file_lists import read_list
from curate.steps.contracts import FromFiles
from llmcurate.base.errors import UsageError

WordList = Path | tuple[str, ...]
Names = Annotated[  # one name or several
    tuple[str, ...], BeforeValidator(lambda v: (v,) if isinstance(v, str) else v or ())
]
Location = Annotated[str, Field(json_schema_extra={"format": "path"})]  # or a URL, or a known name
MOST_CHARS = 200  # the longest entry


class WordLists(FromFiles):
    """A step with settings that are word lists. `word_lists` names these settings."""

    word_lists: ClassVar[tuple[str, ...]] = ()
    _entries: dict[str, tuple[str, ...]] = PrivateAttr(default_factory=dict)

    @classmethod
    def flaw(cls, entry: str) -> str | None:
        """Return what is wrong with an entry of a list, or None."""
        if not entry or len(entry) > MOST_CHARS or min(entry) < " ":
            return f"is no entry: write words of 1 to {MOST_CHARS} characters, one entry per line"
        return None

    @field_validator("*")
    @classmethod
    def _check_entries(cls, value: Any, info: ValidationInfo) -> Any:
        if info.field_name in cls.word_lists and isinstance(value, tuple):
            for entry in value:
                if flaw := cls.flaw(entry):
                    raise ValueError(f"{entry[:40]!r} {flaw}")
        return value

    def entries(self, setting: str) -> tuple[str, ...]:
        """Return the entries of a list. Raise UsageError with the line number of a bad entry."""
        value = getattr(self, setting)
        if not isinstance(value, Path):
            return value or ()
        if setting not in self._entries:
            self._entries[setting] = self.entries_in(value)
        return self._entries[setting]

    def entries_in(self, file: Path) -> tuple[str, ...]:
        """Return the entries of a file, plain or .gz."""
        entries = []
        data = read_list(str(file), None, self.label, "")
        for number, line in enumerate(data.splitlines(), 1):
            where = f"{self.label}: {file}:{number}"
            try:
                entry = line.decode().strip()
            except UnicodeDecodeError:
                raise UsageError(f"{where}: not UTF-8 text") from None
            if entry and not entry.startswith("#"):
                if flaw := self.flaw(entry):
                    raise UsageError(f"{where}: {entry[:40]!r} {flaw}")
                entries.append(entry)
        if not entries:
            raise UsageError(f"{self.label}: {file} has no entries: write one per line")
        return tuple(entries)

    def resources(self) -> list[str]:
        files = [name for name in self.word_lists if isinstance(getattr(self, name), Path)]
        for name in files:
            self.entries(name)  # so that a bad line ends the run before it begins
        return [*super().resources(), *(str(getattr(self, name)) for name in files)]
