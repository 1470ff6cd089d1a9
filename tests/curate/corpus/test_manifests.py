"""Manifests, written an entry at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from curate.corpus.manifests import (
    MANIFEST_VERSION,
    entries,
    is_complete,
    kept_ids,
    names_in_manifest,
    total_ids,
    write_manifest,
)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_manifest_is_the_json_of_all_its_files(tmp_path: Path, count: int) -> None:
    files = [
        {"name": f'p"{n}', "documents": n, "text_bytes": 2 * n, "ids": "0"} for n in range(count)
    ]
    write_manifest(tmp_path / "corpus", iter(files), "key", mix=[{"a": {}}])
    whole = {
        "version": MANIFEST_VERSION,
        "documents": sum(range(count)),
        "text_bytes": 2 * sum(range(count)),
        "stage": "key",
        "mix": [{"a": {}}],
        "files": {f.pop("name"): f for f in files},
    }
    assert (tmp_path / "corpus.json").read_text() == json.dumps(whole, indent=1) + "\n"
    assert names_in_manifest(tmp_path / "corpus") == whole.keys()
    assert [p.name for p in tmp_path.iterdir()] == ["corpus.json"]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_manifest_is_checked_an_entry_at_a_time(tmp_path: Path, count: int) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    ids = [f"{n + 7:032x}" for n in range(count)]
    files = [
        {"name": f"p{n}", "documents": 1, "text_bytes": 1, "ids": i} for n, i in enumerate(ids)
    ]
    write_manifest(corpus, files, "key", mix={"x": {"y": 1}})
    for n in range(count):
        assert not is_complete(corpus, "key")
        (corpus / f"p{n}").touch()
    assert is_complete(corpus, "key") and not is_complete(corpus, "other")
    assert kept_ids(tmp_path) == total_ids(ids)
    whole = (tmp_path / "corpus.json").read_text()
    for lines in range(len(whole.splitlines())):  # cut anywhere, it is no manifest
        (tmp_path / "corpus.json").write_text("".join(whole.splitlines(True)[:lines]))
        assert not is_complete(corpus, "key")


@pytest.mark.parametrize("files", [[], {"part-00000.parquet": 7}], ids=str)
def test_a_manifest_with_an_invalid_file_list_is_ignored(tmp_path: Path, files: object) -> None:
    (tmp_path / "corpus.json").write_text(json.dumps({"version": 2, "stage": "x", "files": files}))
    assert names_in_manifest(tmp_path / "corpus") is None and not [*entries(tmp_path / "corpus")]
