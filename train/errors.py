"""The one error of this package: a line that says what to do, and the exit code it stands for."""

from __future__ import annotations


class TrainError(Exception):
    """Something the user can put right. ``exit_code``: 2 for wrong use, 1 for failure."""

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def counted(number: int, noun: str) -> str:
    """A number of things in a message: `1 document`, `1,234 documents`."""
    plural = "es" if noun.endswith(("ch", "ss")) else "s"
    return f"{number:,} {noun}{'' if number == 1 else plural}"
