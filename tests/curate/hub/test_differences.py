"""What a push sends: files that the repository does not have as they are."""

from __future__ import annotations

import json
from hashlib import sha1, sha256
from types import SimpleNamespace

import pytest

from curate.hub.contents import _product
from curate.hub.push import _differs

DATA = b"ab\n"
# As `git hash-object` has it, and LFS.
GIT = sha1(b"blob 3\0" + DATA).hexdigest()
LFS = SimpleNamespace(sha256=sha256(DATA).hexdigest())
OTHER = SimpleNamespace(sha256=sha256(b"abc").hexdigest())


@pytest.mark.parametrize(
    ("entry", "differs"),
    [
        (None, True),
        ({"size": 3, "lfs": None, "blob_id": GIT}, False),
        ({"size": 3, "lfs": None, "blob_id": "0" * 40}, True),
        ({"size": 4, "lfs": None, "blob_id": GIT}, True),
        ({"size": 3, "lfs": LFS, "blob_id": ""}, False),
        ({"size": 3, "lfs": OTHER, "blob_id": GIT}, True),
        ({"size": 2, "lfs": LFS, "blob_id": ""}, True),
    ],
)
def test_a_file_differs_by_size_or_by_what_git_or_lfs_calls_its_bytes(tmp_path, entry, differs):
    path = tmp_path / "file"
    path.write_bytes(DATA)
    there = None if entry is None else SimpleNamespace(**entry)
    assert [_differs(path, there), _differs(DATA, there)] == [differs, differs]


def test_of_two_products_of_a_kind_the_last_one_is_pushed(bench):
    products = [
        {"makes": m, "files": [f]} for m, f in (("shards", "a"), ("shards", "b"), ("x", "c"))
    ]
    record = {"stages": [], "totals": {}, "products": products}
    (bench.folder / "run.json").write_text(json.dumps(record))
    assert _product(bench.folder, "shards") == products[1]
    assert _product(bench.folder, "model") is None
