"""A hub for each test, and nobody's login."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.curate.lab.hub.hub_server import TOKEN, Hub, serving


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    constants = pytest.importorskip("huggingface_hub.constants", reason="without the extra `hf`")
    # Without a network, lm-evaluation-harness is imported with the hub's own variables set.
    for name in ("LLMCURATE_OFFLINE", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with serving() as server:
        # Of processes that the test starts, and of this one, which may have read them already.
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        settings = {
            "ENDPOINT": server.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": template,
            "HF_HUB_DISABLE_XET": True,
            "HF_HUB_OFFLINE": False,
        }
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
        for name, value in settings.items():
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf-cache"))
        yield server
