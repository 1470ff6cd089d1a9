"""Runs without reports, which take longer than the runs themselves: import `no_reports`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from curate.inspect.report import page


@pytest.fixture(scope="module", autouse=True)
def no_reports() -> Iterator[None]:
    """run.json has no figures then, and report.html nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "gather", lambda out, by_date: page.Figures())
        patch.setattr(page, "render", lambda record, answer: "")
        yield
