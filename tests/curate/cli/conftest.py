from __future__ import annotations

import pytest

from tests.curate.command_line import build_once


@pytest.fixture(autouse=True)
def _parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call of the command line would take a while to build its parser."""
    build_once(monkeypatch)
