"""Settings of parts from a user's own file: `model.feed_forward=my_layer.py:LiGLU`. The text of the
file is a setting of the model, so a run's checkpoints contain it and their checksums cover it.
plugins.py runs the text if the user trusts it.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from llmcurate.base.disk.files import cache_folder, text_digest
from llmcurate.base.errors import UsageError
from llmcurate.base.settings import dataclass
from train.model.attention_settings import Grouped
from train.model.feed_forward_settings import Dense
from train.model.position_settings import Position

TRUST_CODE = "LLMCURATE_TRUST_CODE"  # an environment variable, so that all processes see it

TRUSTED: set[str] = set()


def trust(code: str) -> None:
    """Allow the text of a file, ``code``, to run now and later on this machine."""
    digest = text_digest(code)
    TRUSTED.add(digest)
    with suppress(OSError, RuntimeError):  # without a cache the user is asked again next time
        path = _record()
        if digest not in _recorded(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="ascii") as file:
                file.write(f"{digest}\n")


def trusted(code: str) -> bool:
    """Return True if the text of a file, ``code``, may run."""
    digest = text_digest(code)
    if os.environ.get(TRUST_CODE) == "1" or digest in TRUSTED:
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
    """A class in a user's file. ``rest`` names the field for settings that only that class has."""

    rest: ClassVar[str] = "options"
    kind: str = Field(pattern=r"^[^/\\]+\.py:\w+$")
    """A class in your own file, such as my_layer.py:LiGLU."""
    code: str
    """Text of that file, read when `kind` names the file."""
    options: dict[str, int | float | bool | str | None] = field(default_factory=dict, hash=False)
    """Settings that only this class has: keyword arguments of its `__init__`."""

    @classmethod
    def named(cls, text: str) -> dict[str, Any]:
        """Return the settings for FILE.py:CLASS, with the text of the file. The user named the
        file, so its text is trusted from now on. Raises ``LlmcurateError`` if the file cannot be
        read."""
        match = _NAMED.fullmatch(text)
        assert match is not None
        try:
            content = Path(match["file"]).expanduser().read_bytes()[: _BYTES + 1]
            code = content.decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise UsageError(f"{match['file']}: cannot be read: {reason}") from None
        if len(content) > _BYTES:
            raise UsageError(f"{match['file']}: larger than {_BYTES:,} bytes")
        trust(code)
        return {"kind": f"{match['name']}:{match['owner']}", "code": code, "options": {}}

    @classmethod
    def names(cls, text: str) -> bool:
        return _NAMED.fullmatch(text) is not None


@dataclass(frozen=True, kw_only=True)
class OwnFeedForward(Plugin, Dense):
    """A feed-forward from a user's file, with the settings of a dense one."""


@dataclass(frozen=True, kw_only=True)
class OwnAttention(Plugin, Grouped):
    """An attention from a user's file, with the settings of the usual one. Masks, caches and costs
    are computed from its heads and windows, unless the class overrides this.
    """


@dataclass(frozen=True, kw_only=True)
class OwnPosition(Plugin, Position):
    """A position encoding from a user's file."""


@dataclass(frozen=True, kw_only=True)
class OwnResidual(Plugin):
    """A block from a user's file."""
