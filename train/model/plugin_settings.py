"""Settings of parts from a user's own file: `model.feed_forward=my_layer.py:LiGLU`.

The text of the file is a setting of the model, so that it goes wherever the model goes: a run's
checkpoints hold it and their checksums cover it. Who may run it is decided in plugins.py.
"""

from __future__ import annotations

import re
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from llmcurate.base.errors import UsageError
from llmcurate.base.settings import dataclass
from train.model.attention_settings import Grouped
from train.model.code import trust
from train.model.feed_forward_settings import Dense

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
class OwnPosition(Plugin):
    """An encoding of positions of the user's own."""

    table: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class OwnResidual(Plugin):
    """A block of the user's own."""
