"""Commands as the documentation shows them, checked against the command line."""

from __future__ import annotations

import pytest
import typer

from llmcurate.base.errors import LlmcurateError
from tests.curate.command_line import app_command


def mistake(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """The error of the parser on a command line; nothing is run."""
    monkeypatch.setattr(typer.core.TyperCommand, "invoke", lambda self, ctx: 0)
    monkeypatch.setattr("curate.cli.options.make_folder", lambda path: None)
    try:
        app_command().main(arguments, standalone_mode=False)
    except LlmcurateError as error:
        return str(error)
    except Exception as error:
        if type(error).__name__ in ("NoSuchOption", "NoSuchCommand"):
            return str(error)
    return ""
