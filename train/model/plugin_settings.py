"""Settings of parts from a user's own file: `model.feed_forward=my_layer.py:LiGLU`.

The text of the file is a setting of the model, so that it goes wherever the model goes: a run's
checkpoints hold it and their checksums cover it. Who may run it is decided in plugins.py."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from llmcurate.base.disk.files import cache_folder, text_digest
from llmcurate.base.errors import UsageError
from llmcurate.base.settings import dataclass
from train.model.attention_settings import Grouped
from train.model.feed_forward_settings import Dense
from train.model.position_settings import Position

TRUST_CODE = "LLMCURATE_TRUST_CODE"  # a variable of the environment, which all processes see

_trusted: set[str] = set()


def trust(code: str) -> None:
    """Let this text run, here and later on this machine."""
    digest = text_digest(code)
    _trusted.add(digest)
    with suppress(OSError, RuntimeError):  # without a cache it is asked for the next time
        path = _record()
        if digest not in _recorded(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="ascii") as file:
                file.write(f"{digest}\n")


def trusted(code: str) -> bool:
    """Whether this text may run."""
    digest = text_digest(code)
    if os.environ.get(TRUST_CODE) == "1" or digest in _trusted:
        return True
    with suppress(OSError, RuntimeError):
        return digest in _recorded(_record())
    return False


def _recorded(path: Path) -> list[str]:
    return path.read_text(encoding="ascii", errors="replace").split() if path.is_file() else []


def _record() -> Path:
    return cache_folder() / "trusted-code"


_NAMED = re.compile(r"(?P<file>[^\0]*?(?P<name>[^/\\\0]+\.py)):(?P<owner>[^\W\d]\w*)")
_BYTES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """A class of a file. ``rest``: the field that settings go to which only the class knows."""

    rest: ClassVar[str] = "options"
    kind: str = Field(
        pattern=r"^[^/\\]+\.py:\w+$",
        description="A class in a file of your own, as my_layer.py:LiGLU.",
    )
    code: str = Field(description="The text of that file; it is read where `kind` names it.")
    options: Annotated[
        dict[str, int | float | bool | str | None],
        Field(description="Settings of the class alone: keyword arguments of its `__init__`."),
    ] = field(default_factory=dict, hash=False)

    @classmethod
    def named(cls, text: str) -> dict[str, Any]:
        """The settings that FILE.py:CLASS stands for, with the text of the file; a user who names a
        file trusts it. Raises ``LlmcurateError``.
        """
        match = _NAMED.fullmatch(text)
        assert match is not None
        try:
            content = Path(match["file"]).expanduser().read_bytes()[: _BYTES + 1]
            code = content.decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise UsageError(f"{match['file']}: cannot be read: {reason}") from None
        if len(content) > _BYTES:
            raise UsageError(f"{match['file']}: larger than {_BYTES:,} bytes")
        trust(code)
        return {"kind": f"{match['name']}:{match['owner']}", "code": code, "options": {}}

    @classmethod
    def names(cls, text: str) -> bool:
        """Whether it is of the form FILE.py:CLASS."""
        return _NAMED.fullmatch(text) is not None


@dataclass(frozen=True, kw_only=True)
class OwnFeedForward(Plugin, Dense):
    """A feed-forward of the user's own, with the settings of a dense one."""


@dataclass(frozen=True, kw_only=True)
class OwnAttention(Plugin, Grouped):
    """An attention of the user's own, with the settings of the usual one: masks, caches and costs
    are those of its heads and windows, unless the class says otherwise.
    """


@dataclass(frozen=True, kw_only=True)
class OwnPosition(Plugin, Position):
    """An encoding of positions of the user's own."""


@dataclass(frozen=True, kw_only=True)
class OwnResidual(Plugin):
    """A block of the user's own."""
