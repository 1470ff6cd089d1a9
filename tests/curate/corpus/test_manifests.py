"""Manifests, written an entry at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from curate.corpus.manifests import MANIFEST_VERSION, read_manifest, write_manifest


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_manifest_is_the_json_of_all_its_files(tmp_path: Path, count: int) -> None:
    files = [
        {"name": f'p"{n}', "documents": n, "text_bytes": 2 * n, "ids": "0"} for n in range(count)
    ]
    write_manifest(tmp_path / "corpus", iter(files), "key", {"mix": [{"a": {}}]})
    whole = {
        "version": MANIFEST_VERSION,
        "documents": sum(range(count)),
        "text_bytes": 2 * sum(range(count)),
        "stage": "key",
        "mix": [{"a": {}}],
        "files": {f.pop("name"): f for f in files},
    }
    assert (tmp_path / "corpus.json").read_text() == json.dumps(whole, indent=1) + "\n"
    assert read_manifest(tmp_path / "corpus") == whole
    assert [p.name for p in tmp_path.iterdir()] == ["corpus.json"]
