"""Where the model comes from: the setting, the environment, the cache, the network."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from curate.fetch.published import Published
from curate.scoring.language import identification as locate
from curate.scoring.language.identification import effective, model_path
from llmcurate.base.disk.files import cache_folder
from llmcurate.base.errors import UsageError
from tests.curate.one_file_web import OneFileWeb


def test_the_setting_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert effective(None) == "lid.176.ftz"
    monkeypatch.setenv("LLMCURATE_LID_MODEL", "env.bin")
    assert effective(None) == "env.bin"
    assert effective("mine.bin") == "mine.bin"


def test_a_missing_model_is_named() -> None:
    with pytest.raises(
        UsageError, match=r"nowhere\.bin does not exist: give --set language\.model=PATH"
    ):
        model_path("nowhere.bin")


def test_without_a_model_or_a_download_the_error_says_how() -> None:
    with pytest.raises(UsageError) as caught:
        model_path("lid.176.ftz")
    message = str(caught.value)
    start = "no language model: give --set language.model=PATH, set LLMCURATE_LID_MODEL, or"
    assert message.startswith(start)
    assert "lid.176.ftz" in message
    assert "\n" not in message


def publish(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    digest = hashlib.sha256(content).hexdigest()
    published = Published("https://example.test/m", len(content), digest, "models/lid.176.ftz")
    monkeypatch.setitem(locate.PUBLISHED, "lid.176.ftz", published)


def test_a_published_model_is_fetched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    publish(monkeypatch, b"model")
    web = OneFileWeb(monkeypatch, b"model")
    path = model_path("lid.176.ftz")
    assert path.read_bytes() == b"model"
    assert model_path("lid.176.ftz") == path
    assert web.asked == ["https://example.test/m"]


def test_a_dry_run_fetches_no_model(monkeypatch: pytest.MonkeyPatch, bench: Any) -> None:
    web = OneFileWeb(monkeypatch, b"model")
    (bench.folder / "r.yaml").write_text("steps: [language, c4]")
    bench.jsonl("in.jsonl", [{"text": "one text here"}])
    done = bench.command("run", "r.yaml", "in.jsonl", "-o", "out", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"a run would first fetch {locate.PUBLISHED['lid.176.ftz'].url}\n"
    assert "language to c4" in done.stdout and "0 of 1 partition" in done.stdout
    assert web.asked == [] and not (bench.folder / "out").exists()
    again = bench.command("run", "r.yaml", "in.jsonl", "-o", "out", "--dry-run", "--json", "-q")
    assert json.loads(again.stdout)["partitions"] == 1


def test_a_preview_of_a_refresh_fetches_no_model(
    monkeypatch: pytest.MonkeyPatch, bench: Any, model: Path
) -> None:
    """Neither of the first one nor of one into a HOME whose model has left the cache."""
    publish(monkeypatch, model.read_bytes())
    web = OneFileWeb(monkeypatch, model.read_bytes())
    (bench.folder / "r.yaml").write_text("steps: [language]")
    bench.jsonl("in/1.jsonl", [{"text": "one text here"}])
    refresh = ("refresh", "r.yaml", "in", "-o", "home")
    first = bench.command(*refresh, "--dry-run")
    assert first.stderr == "a refresh fetches https://example.test/m first\n" and not web.asked
    assert bench.command(*refresh, "--quiet").returncode == 0 and len(web.asked) == 1
    shutil.rmtree(cache_folder())
    bench.jsonl("in/2.jsonl", [{"text": "another one"}])
    later = bench.command(*refresh, "--dry-run")
    assert later.returncode == 0 and "home: 1 new input" in later.stdout
    assert later.stderr == first.stderr and len(web.asked) == 1
    assert bench.command(*refresh, "--quiet").returncode == 0 and len(web.asked) == 2


@pytest.mark.parametrize("content", [b"mode", b"model and more", b"", None])
def test_a_download_with_another_checksum_is_never_cached(
    monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    publish(monkeypatch, b"model")
    OneFileWeb(monkeypatch, content)
    why = r"download failed: (the received file has sha256|it has more than|no route)"
    with pytest.raises(UsageError, match=why):
        model_path("lid.176.ftz")
    assert not list(cache_folder().rglob("*lid*"))


def test_the_published_checksum_is_that_of_the_file(ftz: Path) -> None:
    published = locate.PUBLISHED["lid.176.ftz"]
    assert ftz.stat().st_size == published.size
    assert hashlib.sha256(ftz.read_bytes()).hexdigest() == published.sha256
