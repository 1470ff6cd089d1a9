"""Settings: fields of a dataclass whose annotations say what they mean and what they may be."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, get_type_hints

from tokenize_kit.errors import usage_error


@dataclasses.dataclass(frozen=True)
class Setting:
    """What a setting means, its limits and its choices: the annotation of its field.

    ge, gt, le, lt: the number is at least, above, at most, below this one. None, where the field
    allows it, has no limits.
    """

    description: str
    _: dataclasses.KW_ONLY
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    choices: tuple[str, ...] = ()

    def refusal(self, value: Any) -> str | None:
        """What to give instead of a value that is outside the limits."""
        if self.choices:
            return None if value in self.choices else f"choose {either(self.choices)}"
        if not isinstance(value, (int, float)) or isinstance(value, bool) or self._holds(value):
            return None
        low = f"above {self.gt}, " if self.ge is None else f"from {self.ge} "
        return f"give a number {low}{'' if self.le is None else f'up to {self.le}'}".strip(" ,")

    def _holds(self, value: float) -> bool:
        return (
            value < math.inf  # false for a NaN too
            and (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
        )


@functools.cache
def settings_of(kind: type) -> dict[str, Setting]:
    """The settings of a dataclass by the names of their fields."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name].__metadata__[0] for field in dataclasses.fields(kind)}


def check(options: Any) -> None:
    """Raises TokenizerError (exit code 2) naming the first setting that is outside its limits."""
    kind: Any = type(options)
    for name, setting in settings_of(kind).items():
        value = getattr(options, name)
        if value is not None and (refused := setting.refusal(value)):
            shown = repr(value) if isinstance(value, str) else value
            raise usage_error(f"{name.replace('_', '-')} {shown}: {refused}")


def either(names: tuple[str, ...]) -> str:
    """The names in a row with `or` before the last one."""
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]
