"""Migrations of texts that tests write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from curate.lab.migrate.migration import Migration, migrate
from curate.steps.recipe import parse

Migrate = Callable[..., Migration]


@pytest.fixture
def migrated(tmp_path: Path) -> Migrate:
    """Writes a configuration and returns its migration, whose recipe can be read again."""

    def of(text: str, name: str = "pipeline.py", tool: str | None = None) -> Migration:
        path = tmp_path / name
        path.write_text(text)
        done = migrate(path, tool)
        if done.steps:
            steps = parse(done.recipe("again"), "again.yaml").steps
            assert [step.name for step in steps] == [step.step for step in done.steps]
        return done

    return of
